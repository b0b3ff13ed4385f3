"""Rules over time derive what the definitions say, whatever comes when, and after a restart as well."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from functools import cache
from types import FrameType
from typing import Any

import pytest

from dataspace.kernel.actions import ASSERT, RETRACT, SEND, Action
from dataspace.kernel.changes import Epoch
from dataspace.kernel.limits import SpaceLimits
from dataspace.kernel.space import Space
from dataspace.rules.engine import engine
from dataspace.rules.engine.rebuilding import rebuild
from dataspace.rules.language.arithmetic import time_of
from dataspace.rules.language.parser import read_rules
from dataspace.rules.relations import relations, times, timing
from index.values.values import Record, Value, key
from tests.model.rules import GRID, Past, follow_in

MS = 1_000
START = 1_000_000 * MS
WINDOW = 40 * MS

RULES = {
    "w": "w($d) <- r($d, _) within {D}.",
    "a": "a($d, count($v), sum($v)) <- r($d, $v) within {D}.",
    "o": "o($d, $t) <- r($d, $v) at $t within {D}.",
    "p": "p($d, $t) <- f($d, _) at $t.",
    "h": "h($d) <- (f($d, $v), $v > 1) for {D}.",
    "s": "s($d) <- dev($d), not r($d, _) within {D}.",
    "l": "l($d) <- f($d, _) at $t, $t + {D} <= now.",
    "e": "e($d) <- f($d, _) at $t, now < $t + {D}.",
    "z": "final(z($m, count($v))) <- r($d, $v) at $t within {L}, $m = floor($t, 40 ms).",
    "x": "x($d) <- w($d) within {D}.",
    "g": "g($d) <- (dev($d), not w($d)) for {D}.",
    "c": "c(count($d)) <- x($d) within {D}.",
    "v": "v($d) <- dev($d), (r($d, _) within {D} or f($d, 2)).",
    "n": "n($d, $n) <- dev($d), count() of (r($d, _) within {D}) = $n.",
    "q": "q($d) <- dev($d), not (r($d, $v) within {D}, $v > 1).",
    "y": "y($d) <- (dev($d), (f($d, 0) or f($d, $v), $v > 2)) for {D}.",
    "m": "m($d) <- dev($d) at $t, ($t + {D} <= now or f($d, 3)).",
}
"""Texts by their names, in the order in which they follow from each other."""


def text_of(name: str, span: int) -> str:
    """Returns the text of a rule with a span in microseconds."""
    milliseconds, longer = f"{span // MS} ms", f"{(span + WINDOW) // MS} ms"
    return RULES[name].replace("{D}", milliseconds).replace("{L}", longer)


SPANS = [10, 20, 30, 50, 15]
STEPS = [0, 0, 1, 3, 5, 10, 10, 12, 37, 60]


read = cache(read_rules)


class Run:
    """A space and the history of what was done to it, side by side."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.space = Space("s")
        self.space.submit_timed = self.past_append
        self.history = Past()
        self.begun: dict[Record, int] = {}
        """In which state each text came."""
        self.past: list[Epoch] = []
        self.handles: dict[Record, int] = {}
        self.number = 0
        self.time = START
        self.base: set[Record] = set()

    def past_append(self, epoch: Epoch) -> None:
        self.past.append(epoch)

    def state(self, time: int, messages: list[Record]) -> None:
        """Adds a state to the history, with what follows in it."""
        for text in [each for each in self.begun if each not in self.base]:
            del self.begun[text]
        rules = [
            (rule, self.begun.setdefault(text, len(self.history.times)))
            for text in sorted(self.base, key=str)
            if text.label == "rule"
            for rule in read(str(text.fields[1]))
        ]
        facts: list[Value] = [*self.base]
        self.history.add(time, follow_in(self.history, rules, facts, time, messages), messages)

    def until(self, time: int) -> None:
        """Adds the states of all instants up to a time."""
        if not self.history.times:
            return
        instant = self.history.times[-1] // GRID * GRID + GRID
        while instant <= time:
            self.state(instant, [])
            instant += GRID

    def commit(self, added: list[Record], removed: list[Record], messages: list[Record]) -> None:
        actions: list[Action] = [(RETRACT, self.handles.pop(fact)) for fact in removed]
        for fact in added:
            self.number += 1
            self.handles[fact] = self.number
            actions.append((ASSERT, self.number, fact))
        actions += [(SEND, each) for each in messages]
        epoch = self.space.commit("client", actions, self.time)
        if not epoch.silent:
            self.past.append(epoch)

    def add_rule(self, name: str) -> None:
        self.add_with(name, self.random.choice(SPANS) * MS)

    def add_with(self, name: str, span: int) -> None:
        self.make([Record("rule", name, text_of(name, span))], [], [])

    def turn(self) -> None:
        choose = self.random
        count = choose.choice([0, 0, 1, 1, 2])
        messages = [Record("r", choose.choice("ab"), choose.randrange(3)) for _ in range(count)]
        wanted = [
            Record("f", choose.choice("ab"), choose.randrange(4)),
            Record("dev", choose.choice("ab")),
            Record("r", choose.choice("ab"), choose.randrange(3)),
        ]
        changed = [fact for fact in wanted if choose.random() < 0.4]
        added = [fact for fact in changed if fact not in self.base]
        removed = [fact for fact in changed if fact in self.base]
        self.make(added, removed, messages)

    def make(self, added: list[Record], removed: list[Record], messages: list[Record]) -> None:
        """Makes a turn, with the same state in the history."""
        self.until(self.time)
        self.base = (self.base | set(added)) - set(removed)
        self.state(self.time, messages)
        self.commit(added, removed, messages)

    def probe(self) -> None:
        """Has the space make what is due, without a turn of a client."""
        self.until(self.time)
        epoch = self.space.advance(self.time)
        if epoch is not None and not epoch.silent:
            self.past.append(epoch)

    def restart(self) -> None:
        """Puts a new space in place of this one, from its claims and its epochs."""
        old = self.space
        self.space = Space("s")
        self.space.restore({o: dict(c) for o, c in old.all_claims().items()}, old.epoch, old.time)
        self.space.submit_timed = self.past_append
        rebuild(
            self.space.rules.times,
            [],
            START,
            [(e.number, e.time, e.added, e.messages, e.removed) for e in self.past],
        )

    def check(self) -> None:
        facts = [fact for fact in self.space.index.values() if isinstance(fact, Record)]
        assert set(facts) == set(self.history.facts[-1].values()), (self.time - START, self.begun)


def run(seed: int, steps: int, names: list[str], kind: type[Run] = Run) -> None:
    """Runs one random history."""
    one = kind(seed)
    waiting = list(names)
    one.add_rule(waiting.pop(0))
    for _ in range(steps):
        one.time += one.random.choice(STEPS) * MS
        what = one.random.random()
        if waiting and what < 0.25:
            one.add_rule(waiting.pop(0))
        elif what < 0.35:
            one.probe()
        elif what < 0.42:
            one.restart()
        else:
            one.turn()
        if what >= 0.42 or what < 0.35:
            one.check()
    one.time += 500 * MS
    one.probe()
    one.check()


def in_order(names: list[str]) -> list[str]:
    """Returns some rules with those that they follow from, in the order of ``RULES``."""
    needed = {"x": "w", "g": "w", "c": "x"}
    wanted = set(names)
    for _ in needed:
        wanted |= {needed[name] for name in wanted if name in needed}
    return [name for name in RULES if name in wanted]


@pytest.mark.parametrize("name", RULES)
def test_one_form_alone(name: str) -> None:
    for seed in range(4):
        run(seed, 25, in_order([name]))


def test_several_together() -> None:
    for seed in range(8):
        chosen = random.Random(seed).sample([*RULES], 4)
        run(seed, 30, in_order(chosen))


def test_too_many_rows_suspend_the_text_that_keeps_most() -> None:
    one = Run(1)
    one.space = Space("s", limits=SpaceLimits(time_rows=100))
    for name in ("p", "o"):
        one.commit([Record("rule", name, text_of(name, 50 * MS))], [], [])
    one.commit([Record("f", "a", 1)], [], [])
    for number in range(200):
        one.commit([], [], [Record("r", "a", number)])
    found = {value.label: value for value in one.space.index.values() if isinstance(value, Record)}
    assert found["rule-error"].fields[0] == "o"
    assert "rows of the past" in str(found["rule-error"].fields[3])
    assert "p" in found and "o" not in found
    assert one.space.rules.times.rows <= 100


def test_one_turn_of_too_many_messages_is_not_kept_at_all() -> None:
    one = Run(1)
    one.space = Space("s", limits=SpaceLimits(time_rows=100))
    one.commit([Record("rule", "w", text_of("w", 50 * MS)), Record("rule", "p", text_of("p", 0))], [], [])
    one.commit([Record("f", "a", 1)], [], [Record("r", "a", 1)] * 30)
    assert one.space.rules.times.rows == 2, "plain windows keep equal messages once"
    one.commit([], [], [Record("r", number, 1) for number in range(500)])
    assert one.space.rules.times.rows == 1
    errors = [
        each for each in one.space.index.values() if isinstance(each, Record) and each.label == "rule-error"
    ]
    assert [each.fields[0] for each in errors] == ["w"]


def test_too_many_bytes_of_rows_suspend_the_text_that_keeps_most() -> None:
    space = Space("s", limits=SpaceLimits(derived_bytes=100_000))
    times = space.rules.times
    texts = ["few($n) <- m($n, _) within 1 h.", "many(count()) <- m(_, $text) within 1 h."]
    rules: list[Action] = [(ASSERT, at, Record("rule", str(at), text)) for at, text in enumerate(texts)]

    def counted() -> int:
        return sum(term.size for form in times.forms.values() for row in form.rows() for term in row)

    space.commit("a", rules, START)
    for number in range(60):
        space.commit("b", [(SEND, Record("m", number, f"{number:9}" + "x" * 1_000))], START + number)
    assert not errors(space)
    assert times.value_bytes == sum(
        term.size for form in times.forms.values() for row in form.rows() for term in row
    )
    assert 60_000 < times.value_bytes < 100_000 < times.bytes
    for number in range(60, 120):
        space.commit("b", [(SEND, Record("m", number, f"{number:9}" + "x" * 1_000))], START + number)
    (reason,) = errors(space)
    assert "bytes of the past are kept for it, of" in reason and "raise limits.derived_bytes=100000" in reason
    assert times.value_bytes == sum(
        term.size for form in times.forms.values() for row in form.rows() for term in row
    )
    assert times.rows == 120 and times.value_bytes < 10_000


def test_a_condition_that_flaps_leaves_no_heap_of_instants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dataspace.rules.relations.times.STALE_FROM", 10)
    one = Run(1)
    one.commit([Record("rule", "h", "h($d) <- (f($d)) for 1 h. o($d) <- r($d) at $t within 1 h.")], [], [])
    times = one.space.rules.times
    for number in range(200):
        one.time += 7 * MS
        one.commit([Record("f", "a")], [], [Record("r", number)] if number % 20 == 0 else [])
        one.time += 7 * MS
        one.commit([], [Record("f", "a")], [])
    assert times.pending < 60, "of 210 that were made"
    one.commit([Record("f", "a")], [], [])
    since = one.time
    for instant, is_there in (since + 3_600_000 * MS - GRID, False), (since + 3_600_000 * MS, True):
        one.space.until(instant)
        one.space.advance(instant)
        labels = [each.label for each in one.space.index.values() if isinstance(each, Record)]
        assert ("h" in labels) == is_there
    assert times.rows == 1 and "o" not in labels


@pytest.mark.parametrize(
    "text",
    [
        "out($j) <- job($j, $t), $t <= now.",
        "out($j) <- (job($j, _)) for 50 ms.",
        "out($j) <- job($j, _) at $t, now < $t + 50 ms.",
        "out($j, count($v)) <- r($j, $v) within 50 ms.",
        "final(out($m, $j, count($v))) <- r($j, $v) at $t within 150 ms, $m = floor($t, 50 ms).",
    ],
)
def test_rows_that_come_due_together_are_causes_of_work_like_facts_that_come(text: str) -> None:
    space = Space("s", limits=SpaceLimits(derive_work=100))
    space.commit("a", [(ASSERT, 0, Record("rule", "r", text))], START)
    for begin in range(0, 600, 60):
        jobs = [Record("job", n, time_of(START + 50 * MS)) for n in range(begin, begin + 60)]
        actions: list[Action] = [(ASSERT, n, job) for n, job in enumerate(jobs, start=begin + 1)]
        space.commit("a", [*actions, *[(SEND, Record("r", n, 1)) for n in range(begin, begin + 60)]], START)
    seen: set[int] = set()
    for instant in range(START, START + 200 * MS, GRID):
        space.until(instant)
        labels = [each.label for each in space.index.values() if isinstance(each, Record)]
        seen.add(labels.count("out"))
        assert not errors(space)
    assert {0, 600} <= seen


def errors(space: Space) -> list[str]:
    found = [each for each in space.index.values() if isinstance(each, Record) and each.label == "rule-error"]
    return [str(each.fields[3]) for each in found]


@pytest.mark.parametrize(
    "text",
    [
        "p($x) <- q($x, $n), r($x) at $t, $t > $n.",
        "p($x) <- q($x, $n), r($x) at $t, $n <= $t + 5.",
        "p($x) <- q($x, $n), r($x), $n <= now.",
        "p($x) <- q($x, $n), r($x), now < $n.",
    ],
)
def test_a_time_that_is_compared_with_a_number_is_an_error_of_the_rule(text: str) -> None:
    space = Space("s")
    space.commit("a", [(ASSERT, 1, Record("rule", "r", text)), (ASSERT, 2, Record("r", 1))], START)
    space.commit("a", [(ASSERT, 3, Record("q", 1, "soon")), (ASSERT, 4, Record("q", 2, 5))], START)
    assert not errors(space), "a text is in no order with a time, and nothing joins with the number"
    space.commit("a", [(ASSERT, 5, Record("q", 1, 7))], START)
    (reason,) = errors(space)
    assert "cannot compare" in reason and "a time is compared with a time, as in $t + 60" in reason
    space.commit("a", [(RETRACT, 5)], START)
    assert not errors(space), "and it is carried out again"


def test_a_clock_that_is_put_back_takes_nothing_back() -> None:
    for seed in range(6):
        one, twin = Run(seed), Run(seed)
        for run_ in (one, twin):
            for name in ("w", "h", "l"):
                run_.add_with(name, 30 * MS)
        newest = START
        for _ in range(40):
            one.time = START + one.random.choice([0, 3, 10, 12, 45, 90, 300]) * MS
            newest = twin.time = max(newest, one.time)
            twin.random.setstate(one.random.getstate())
            one.space.until(one.time)
            twin.space.until(twin.time)
            fact, message = Record("f", "a", one.random.randrange(4)), Record("r", "b", 1)
            for run_ in (one, twin):
                run_.commit(*(([], [fact]) if fact in run_.handles else ([fact], [])), [message])
            assert set(map(key, one.space.index.values())) == set(map(key, twin.space.index.values()))
        times = [epoch.time for epoch in one.past]
        assert times == sorted(times) == [epoch.time for epoch in twin.past]


def test_an_epoch_is_not_before_a_turn_that_had_no_effect() -> None:
    """Windows would end by the time of that turn, which no epoch has, and by another one after a start."""
    space, fact = Space("s"), Record("r", 1)
    rule = Record("rule", "w", "w($d) <- r($d) within 10 ms.")
    space.commit("a", [(ASSERT, 1, rule), (ASSERT, 2, fact)], START)
    assert space.commit("a", [(ASSERT, 3, fact)], START + 100 * MS).silent
    gone = space.commit("a", [(RETRACT, 2), (RETRACT, 3)], START + 50 * MS)
    assert gone.time == START + 100 * MS
    made = list[Epoch]()
    space.submit_timed = made.append
    space.until(START + 300 * MS)
    assert [(each.time, list(each.removed)) for each in made] == [(gone.time + 10 * MS, [Record("w", 1)])]


class InSteps(Run):
    """A history in which the turns of instants are made in steps, and often not to the end before a turn."""

    def commit(self, added: list[Record], removed: list[Record], messages: list[Record]) -> None:
        self.advance_in_steps()
        super().commit(added, removed, messages)

    def probe(self) -> None:
        self.advance_in_steps()
        super().probe()

    def advance_in_steps(self) -> None:
        while self.space.rules.due <= self.time:
            before = self.seen()
            left, end = self.random.randrange(1, 30), self.random.random()
            for _ in self.space.making_instant():
                assert self.seen() == before, "nothing of it is seen"
                left -= 1
                if not left:
                    break
            else:
                continue
            if end < 0.3:
                self.space.abandon()
                assert self.seen() == before
            elif end < 0.6:
                self.space.finish()
            else:
                break

    def seen(self) -> tuple[int, int, dict[object, int]]:
        """Returns what is to be seen of the space."""
        space = self.space
        return space.epoch, space.time, {key(each): space.index.count(each) for each in space.index.values()}


@pytest.mark.parametrize("name", RULES)
def test_instants_in_steps(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(times, "MUCH", 1)
    for module in (engine, relations, times, timing):
        monkeypatch.setattr(module, "STEP", 1)
    for seed in range(3):
        run(seed, 25, in_order([name]), InSteps)
    run(7, 30, in_order([name, *random.Random(name).sample([*RULES], 3)]), InSteps)


def test_an_instant_in_steps_is_one_epoch_and_no_step_is_long() -> None:
    spaces = [Space("s"), Space("s")]
    epochs: list[list[Epoch]] = [[], []]
    rule = Record("rule", "r", "recent($d, $v) <- r($d, $v) within 2 s. most($d, max($v)) <- recent($d, $v).")
    for space, past in zip(spaces, epochs, strict=True):
        space.submit_timed = past.append
        space.commit("a", [(ASSERT, 0, rule)], START)
        space.commit("a", [(SEND, Record("r", n % 30, n)) for n in range(3_000)], START)
    spaces[0].until(START + 2_000 * MS)
    lines: list[int] = []
    steps = spaces[1].making_instant()

    def count(frame: FrameType, event: str, _: object) -> Callable[..., Any]:
        frame.f_trace_opcodes = False
        lines[-1] += event == "line"
        return count

    while not epochs[1]:
        lines.append(0)
        sys.settrace(count)
        next(steps, None)
        sys.settrace(None)
    assert epochs[0] == epochs[1] and len(epochs[1]) == 1
    assert len(epochs[1][0].removed) == 3_030 and not spaces[1].rules.claimed
    assert len(lines) > 100 and max(lines[:-2]) < 5_000, "all but what applies the epoch"


@pytest.mark.torture(long=True)
def test_twenty_thousand_ticks() -> None:
    for seed in range(1000, 1500):
        chosen = random.Random(seed).sample([*RULES], 5)
        run(seed, 40, in_order(chosen))
