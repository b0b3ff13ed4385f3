"""A turn is whole: an exception at any line of it undoes all of it, or comes after all of it is done."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from dataspace.errors import Refused
from dataspace.kernel.actions import ASSERT, REPLACE, RETRACT, SEND
from dataspace.kernel.bulk_assertions import Assertions
from dataspace.kernel.changes import Changes
from dataspace.kernel.limits import SpaceLimits
from dataspace.kernel.space import Space
from index.patterns.patterns import capture
from index.values.values import Record, Value, key
from tests.striking import strike

PATTERNS: tuple[Value, ...] = (capture(), Record("p", capture()), Record("q", 1), Record("r", capture(), 2))
RULES = "r($x, 2) <- p($x), not q($x). s(count($x)) <- p($x). u($x) <- r($x, _), s(_)."
Turn = Callable[[Space], object]
THOROUGH = os.environ.get("TORTURE_ROUNDS", "0") != "0"
STRIDE, RULED_STRIDE = 13, 211
"""Without torture each kind of turn is struck at some lines only, and not all kinds at the same ones."""


class _Ear:
    def __init__(self) -> None:
        self.heard: list[Any] = []

    def offer(self, changes: Changes) -> None:
        self.heard.append(
            (changes.number, list(changes.added), list(changes.messages), list(changes.removed))
        )


class _Room:
    """A space with facts, owners and ears, and the epochs that were submitted of it."""

    def __init__(self, prepare: Turn) -> None:
        self.space = Space("main", limits=SpaceLimits(facts=40, facts_per_owner=20))
        self.ears = [_Ear() for _ in PATTERNS]
        for pattern, ear in zip(PATTERNS, self.ears, strict=True):
            self.space.observe(pattern, ear)
        self.space.commit("a", [(ASSERT, n, Record("p", n)) for n in range(4)], 1)
        self.space.commit("b", [(ASSERT, 1, Record("p", 1)), (ASSERT, 2, Record("q", 2))], 2)
        self.space.fresh_handle("a")
        prepare(self.space)

    def state(self, *, told: bool = True) -> Any:
        space = self.space
        space.index.check()
        if told:
            assert not space._touched
            assert not any(interest._waiting for interest in space.interests)
        claims = {
            owner: {h if owner != "rules" else key(v): key(v) for h, v in held.items()}
            for owner, held in space.all_claims().items()
        }
        bag = Counter(at for held in claims.values() for at in held.values())
        assert bag == {key(value): space.index.count(value) for value in space.index.values()}
        assert space._claimed == bag.total()
        sizes = {owner: space.held(owner)[1] for owner in claims if owner != "rules"}
        if space._counting:
            assert space.facts_bytes == sum(sizes.values())
            assert space._count() == space.facts_bytes, "bytes are the same as counted anew"
            assert sizes == {owner: space.held(owner)[1] for owner in sizes}
        return space.epoch, space.time, claims, space.fresh_handle("a")

    def heard(self) -> list[Any]:
        """What each ear has heard, in any order within an epoch."""
        return [
            [(epoch, *[sorted(map(repr, some)) for some in told]) for epoch, *told in e.heard]
            for e in self.ears
        ]


def _nothing(_: Space) -> None: ...


def _with_rules(space: Space) -> None:
    space.commit("rules of", [(ASSERT, 1, Record("rule", "some", RULES))], 3)
    while space.rules.pending:
        space.advance(3)


def _commit(owner: str, *actions: Any) -> Turn:
    return lambda space: space.commit(owner, list(actions), 9)


def _shared(*parts: Any) -> Turn:
    (owner, *actions), *others = parts
    return lambda space: space.commit(owner, actions, 9, others=[(each, more) for each, *more in others])


TURNS: dict[str, Turn] = {
    "assertion": _commit("a", (ASSERT, 9, Record("p", 9))),
    "first of an owner": _commit("c", (ASSERT, 9, Record("p", 9)), (ASSERT, 10, Record("q", 1))),
    "claim on what is there": _commit("c", (ASSERT, 9, Record("p", 1)), (ASSERT, 10, Record("p", 8))),
    "retraction": _commit("a", (RETRACT, 0)),
    "retraction of a copy": _commit("b", (RETRACT, 1)),
    "last of an owner": _commit("b", (RETRACT, 1), (RETRACT, 2)),
    "replacement": _commit("a", (REPLACE, 1, 7, Record("p", 7)), (REPLACE, 7, 8, Record("q", 1))),
    "handle used again": _commit(
        "a", (RETRACT, 0), (ASSERT, 0, Record("q", 1)), (RETRACT, 0), (ASSERT, 0, Record("p", 0))
    ),
    "balanced": _commit("a", (ASSERT, 9, Record("p", 9)), (RETRACT, 9), (ASSERT, 9, Record("p", 2))),
    "message": _commit("a", (SEND, Record("p", 5))),
    "of two owners": _shared(
        ("a", (REPLACE, 1, 7, Record("p", 7)), (SEND, Record("p", 5))), ("b", (RETRACT, 1), (ASSERT, 9, "p"))
    ),
    "of three owners": _shared(
        ("b", (RETRACT, 1), (RETRACT, 2)),
        ("c", (ASSERT, 9, Record("q", 1))),
        ("a", (ASSERT, 9, Record("p", 1))),
    ),
    "everything": _commit(
        "a", (ASSERT, 9, "p"), (SEND, Record("p", 5)), (RETRACT, 2), (SEND, 1), (ASSERT, 2, Record("r", 1, 2))
    ),
    "publication": lambda space: space.commit(
        "a", Assertions(1 << 40, [Record("p", 1), Record("p", 9)]), 9, publication=True
    ),
    "refused": _commit("a", (RETRACT, 0), (ASSERT, 9, Record("p", 9)), (ASSERT, 1, Record("p", 9))),
    "too much": _commit("a", (RETRACT, 0), *[(ASSERT, 9 + n, Record("p", n)) for n in range(30)]),
    "act": lambda space: space.act("a", [(REPLACE, 0, 9, Record("p", 9))], 9),
    "act of several": lambda space: space.act(
        "a", [(RETRACT, 0), (SEND, "m"), (ASSERT, 9, Record("q", 1))], 9
    ),
    "act of a message": lambda space: space.act("a", [(SEND, Record("p", 5))], 9),
    "end": lambda space: space.end(["a", "nobody", "b"], 9),
}
RULED: dict[str, Turn] = {
    name: TURNS[name]
    for name in (
        "assertion",
        "retraction",
        "replacement",
        "everything",
        "last of an owner",
        "of two owners",
        "end",
    )
} | {
    "rule": _commit("c", (ASSERT, 1, Record("rule", "new", "t($x) <- p($x).")), (ASSERT, 2, Record("p", 9))),
    "end of rules": lambda space: space.end(["rules of"], 9),
}


def _following(space: Space) -> list[Any]:
    """Two turns like any other, and what they meant: in any order, as rules may have begun anew."""
    turns = [(ASSERT, 50, Record("p", 50)), (ASSERT, 51, Record("q", 1)), (SEND, "on")], [(RETRACT, 51)]
    epochs = [space.commit("a", turn, 20) for turn in turns]
    return [
        (*epoch[:2], [Counter(map(key, values)) for values in (epoch.added, epoch.messages, epoch.removed)])
        for epoch in epochs
    ]


def _run(room: _Room, turn: Turn) -> None:
    """A turn, which may well be refused."""
    try:
        turn(room.space)
    except Refused:
        pass


def _check(prepare: Turn, turn: Turn, at: int, error: type[BaseException]) -> bool:
    """One turn that is struck, beside two that are not: whether it was long enough for that."""
    room, other, done = _Room(prepare), _Room(prepare), _Room(prepare)
    before = room.state()
    struck = False
    try:
        with strike(at, error):
            _run(room, turn)
    except error as raised:
        assert "struck" in str(raised)
        struck = True
    if not struck:
        return False
    assert room.space.damage is None
    after = room.state(told=False)
    if after == before:
        room.state()
    else:  # it came when all was done
        _run(done, turn)
        _run(other, turn)
        assert after == done.state()
    assert _following(room.space) == _following(other.space)
    assert room.state() == other.state()
    lacking = [its for mine, its in zip(room.heard(), other.heard(), strict=True) if mine != its]
    assert len(lacking) <= (after != before)  # the one that was being told may lack that
    return True


@pytest.mark.slow
@pytest.mark.torture
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("name", TURNS)
def test_an_exception_at_any_line_leaves_all_or_nothing(name: str, error: type[BaseException]) -> None:
    at = 1 + (0 if THOROUGH else (len(name) + len(error.__name__)) % STRIDE)
    while _check(_nothing, TURNS[name], at, error):
        at += 1 if THOROUGH else STRIDE
    assert at > 10


@pytest.mark.slow
@pytest.mark.torture
@pytest.mark.parametrize("name", RULED)
def test_an_exception_at_any_line_of_a_turn_with_rules_leaves_all_or_nothing(name: str) -> None:
    at = 1
    while _check(_with_rules, RULED[name], at, KeyboardInterrupt):
        at += (1 if at < 100 else 13) if THOROUGH else RULED_STRIDE
    assert at > 100


# -- observers --------------------------------------------------------------------------------------------

SEEN: Value = Record("p", Record("q", capture("x")), capture("x"))
"""A pattern of its own, at a new node."""


class _Shared(_Ear):
    def __len__(self) -> int:
        return 1


class _Observed:
    """A room with two more ears for one pattern."""

    def __init__(self, prepare: Observing) -> None:
        self.room = _Room(_nothing)
        self.space = self.room.space
        self.ears = _Ear(), _Shared()
        prepare(self)

    def observe(self, at: int = 0) -> None:
        self.space.observe(SEEN, self.ears[at])

    def share(self) -> None:
        self.space.interests.share(SEEN, lambda _interest: self.ears[1])

    def observe_and_share(self) -> None:
        self.observe()
        self.share()

    def prepare(self) -> None:
        for _ in self.space.interests.preparing(SEEN):
            pass

    def ignore(self, at: int = 0) -> None:
        (interest,) = [each for each in self.space.interests if key(each.pattern) == key(SEEN)]
        self.space.ignore(interest, self.ears[at])

    def drop(self) -> None:
        self.space.interests.drop_idle(SEEN)

    def state(self) -> Any:
        interests = self.space.interests
        observed = [(key(each.pattern), len(each.observers), each.queue is None) for each in interests]
        assert all(not each.is_idle for each in interests)
        return (
            self.room.state(),
            sorted(observed, key=repr),
            interests.size,
            self.space.index.statistics(),
        )

    def following(self) -> Any:
        """What is heard of later turns, and that the pattern can be observed and ignored."""
        for ear in self.ears:
            ear.heard.clear()
        late = _Ear()
        interest = self.space.observe(SEEN, late)
        self.space.commit("a", [(ASSERT, 60, Record("p", Record("q"), 1))], 20)
        self.space.commit("a", [(ASSERT, 61, Record("p", Record("q", 1), 1))], 20)
        self.space.commit("a", [(RETRACT, 61)], 20)
        self.space.ignore(interest, late)
        return [ear.heard for ear in (*self.ears, late)], self.state()


Observing = Callable[[_Observed], object]

OBSERVING: dict[str, tuple[Observing, Observing]] = {
    "observe": (lambda seen: None, lambda seen: seen.observe()),
    "observe what is prepared": (lambda seen: seen.prepare(), lambda seen: seen.observe()),
    "observe as a second": (lambda seen: seen.observe(), lambda seen: seen.observe(1)),
    "share": (lambda seen: None, lambda seen: seen.share()),
    "prepare": (lambda seen: None, lambda seen: seen.prepare()),
    "drop": (lambda seen: seen.prepare(), lambda seen: seen.drop()),
    "ignore": (lambda seen: seen.observe(), lambda seen: seen.ignore()),
    "ignore what is shared": (lambda seen: seen.share(), lambda seen: seen.ignore(1)),
    "ignore one of two": (lambda seen: seen.observe_and_share(), lambda seen: seen.ignore()),
}


@pytest.mark.slow
@pytest.mark.torture
@pytest.mark.parametrize("name", OBSERVING)
def test_an_exception_at_any_line_leaves_an_observer_or_none(name: str) -> None:
    prepare, act = OBSERVING[name]
    at, is_struck = 0, True
    while is_struck:
        at += 1
        seen, before, done, dropped = [_Observed(prepare) for _ in range(4)]
        is_struck = False
        try:
            with strike(at, KeyboardInterrupt):
                act(seen)
        except KeyboardInterrupt:
            is_struck = True
        act(done)
        dropped.drop()  # a preparation that fails is dropped
        state = seen.state()
        like = [each for each in (before, done, dropped) if each.state() == state]
        assert like, at
        assert seen.following() == like[0].following()
    assert at > 10
