"""A fact, a derived fact and messages that are alike are occurrences of their own, whatever of them is in one
turn: for each form, all histories of a few turns with the same value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, combinations, product
from typing import Final

import pytest

from dataspace.kernel.limits import SpaceLimits
from dataspace.kernel.space import Space
from index.values.values import Record
from tests.dataspace.rules.test_times import MS, WINDOW, Run, errors
from tests.model.rules import GRID

SPAN: Final = 20 * MS
PLAIN, LONGER, BASE, DEVICE = (
    Record("r", "a", 2),
    Record("r", "a", 2, "more"),
    Record("base", "a", 2),
    Record("dev", "a"),
)
DERIVING: Final = Record("rule", "derives", "r($d, $v) <- base($d, $v).")


FORMS: Final = {
    "within": "it($d) <- r($d, _) within 20 ms.",
    "count": "it(count()) <- r($d) within 20 ms.",
    "mean": "it(count($v), sum($v), avg($v)) <- r($d, $v) within 20 ms.",
    "last": "it(max($t), count()) <- r(_) at $t within 20 ms.",
    "at": "it($d, $t) <- r($d, _) at $t.",
    "counted at": "it(count()) <- r($d) at $t.",
    "at within": "it($d, $t) <- r($d, $v) at $t within 20 ms.",
    "now": "it(count()) <- r($d) at $t, $t + 20 ms <= now.",
    "until": "it($d) <- r($d) at $t, now < $t + 20 ms.",
    "for": "it($d) <- (r($d, $v), $v > 1) for 20 ms.",
    "final": "final(it($m, count())) <- r($d) at $t within 60 ms, $m = floor($t, 40 ms).",
    "floor": "it($m, count()) <- r($d) at $t within 60 ms, $m = floor($t, 40 ms).",
    "silence": "it($d) <- dev($d), not r($d, _) within 20 ms.",
    "group": "it($n) <- dev($d), count() of (r($d, $v) within 20 ms) = $n.",
}
"""Texts of one rule each."""

TOGGLED: Final = {"fact": PLAIN, "longer fact": LONGER, "derived fact": BASE}
SENT: Final = {"message": [PLAIN], "longer message": [LONGER], "messages": [PLAIN, PLAIN]}
TEXT: Final = "text"
"""The text comes, or goes."""
RESTART: Final = "restart"
Turn = tuple[str, ...]
"""What happens at once."""

LATER: Final = (0, 15 * MS)
STRIDE: Final = 17
"""Without torture some of the histories are carried out, and not the same for each form."""


def turns(most: int) -> list[Turn]:
    """Returns all sets of up to so many of these, a restart, and time that passes."""
    parts = [*TOGGLED, *SENT, TEXT]
    sets = chain.from_iterable(combinations(parts, size) for size in range(most + 1))
    return [*sets, (RESTART,)]


class Alike(Run):
    """A history of values that are alike, under one form."""

    def __init__(self, form: str, *, is_sending: bool = False) -> None:
        super().__init__(0)
        self.sends = is_sending
        text = FORMS[form] + (" send(now($x)) <- it($x)." if is_sending else "")
        self.text = Record("rule", "it", text)
        self.make([DERIVING, DEVICE], [], [])

    def shown(self) -> set[Record]:
        facts = self.history.facts[-1].values()
        return {each for each in facts if isinstance(each, Record) and each.label == "it"}

    def make_turn(self, turn: Turn, later: int) -> None:
        """Makes a turn, and looks at what follows from it."""
        self.time += later
        if turn == (RESTART,):
            self.restart()
            self.probe()
            self.check()
            return
        toggled = [TOGGLED[each] for each in turn if each in TOGGLED]
        messages = [message for each in turn for message in SENT.get(each, ())]
        self.until(self.time)
        if TEXT in turn:
            toggled.append(self.text)
        added = [each for each in toggled if each not in self.base]
        before, had_text = self.shown(), TEXT not in turn
        self.make(added, [each for each in toggled if each in self.base], messages)
        self.check()
        if self.sends and had_text and not self.past[-1].silent and self.past[-1].time == self.time:
            sent = {each for each in self.past[-1].messages if each.label == "now"}  # type: ignore[union-attr]
            assert sent <= {Record("now", *each.fields) for each in self.shown()}
            if self.past[-1].added or self.past[-1].messages:
                assert sent == {Record("now", *each.fields) for each in self.shown() - before}

    def end(self) -> None:
        """Looks at every instant until nothing changes any more."""
        for _ in range((2 * SPAN + 2 * WINDOW) // GRID):
            self.time += GRID
            self.probe()
            self.check()


def carry_out(form: str, history: Iterable[tuple[Turn, int]], *, is_sending: bool = False) -> None:
    one = Alike(form, is_sending=is_sending)
    one.space.submit_timed = one.past_append
    try:
        for turn, later in history:
            one.make_turn(turn, later)
        one.end()
    except Exception as error:
        error.add_note(f"{one.text} {history}")
        raise


def histories(most: int, length: int) -> Iterator[tuple[tuple[Turn, int], ...]]:
    """Yields histories that begin with the text, and may have it in any turn behind that."""
    first = [(each, 0) for each in turns(most) if TEXT in each]
    for start in first:
        for rest in product(product(turns(most), LATER), repeat=length - 1):
            yield (start, *rest)


@pytest.mark.parametrize("form", FORMS)
def test_what_is_alike_in_one_turn_counts_apart(form: str) -> None:
    every = list(histories(2, 2))
    for at in range(len(form) % STRIDE, len(every), STRIDE):
        carry_out(form, every[at])


def test_all_at_once() -> None:
    for form in FORMS:
        for text in (), (TEXT,):
            whole: Turn = (*TOGGLED, "messages", "longer message", *text)
            carry_out(form, [((TEXT,), 0), (whole, 0), (whole, 15 * MS), ((RESTART,), 0), (whole, 0)])


def test_messages_of_rules_say_what_holds_in_the_turn() -> None:
    for form in ("count", "within"):
        for turn in turns(3):
            if TEXT not in turn and turn != (RESTART,):
                carry_out(form, [((TEXT,), 0), (turn, 0), (turn, 15 * MS)], is_sending=True)


@pytest.mark.torture(long=True)
@pytest.mark.parametrize("form", FORMS)
def test_all_histories_of_three_turns(form: str) -> None:
    for history in chain(histories(3, 2), histories(1, 3)):
        carry_out(form, history)


def test_equal_messages_of_a_turn_take_a_time_in_proportion() -> None:
    calls: list[int] = []
    for count in (200, 400, 800):
        space = Space("s")
        terms, made = space.rules.times.terms, 0
        of = terms.of

        def counted(value: object, of: Callable[..., object] = of) -> object:
            nonlocal made
            made += 1
            return of(value)

        terms.of = counted  # type: ignore[method-assign,assignment]  # counts what an occurrence looks up
        one = Alike("count")
        one.space = space
        one.commit([one.text], [], [])
        one.commit([], [], [PLAIN] * count)
        calls.append(made)
        assert Record("it", count) in set(space.index.values())
    assert calls[2] - calls[1] <= 2.2 * (calls[1] - calls[0])


def test_windows_that_read_too_many_messages_of_a_turn_are_suspended_before_they_do() -> None:
    space = Space("s", limits=SpaceLimits(derive_work=1_000, derive_work_per_action=2))
    one = Alike("count")
    one.space = space
    texts = [f"it{n}($d) <- r($d, {n}) within 20 ms." for n in range(30)]
    heavy = " ".join(f"more{n}($d) <- r($d, {n}) within 20 ms." for n in range(5))
    one.commit([Record("rule", str(n), text) for n, text in enumerate([*texts, heavy])], [], [])
    one.commit([], [], [PLAIN] * 30)
    assert not errors(space), "30 messages for 35 windows are within 1060 units"
    one.commit([], [], [PLAIN] * 100)
    assert space.rules.times.rows == 1, "it2 goes on"
    reasons = [each.partition(";")[0] for each in errors(space)]
    assert "its windows read 500 messages of one turn, and those of all rules 3500" in reasons
    assert len(reasons) == 19, "3000 are left by 30 texts, and 1200 may"
    one.commit([], [], [Record("other")] * 2_000)
    assert len(errors(space)) == 19, "messages of another class cost nothing"
