"""A space that follows the epochs of another one holds and shows what that one does."""

from __future__ import annotations

from itertools import product
from sys import getrefcount
from typing import Final

import pytest
from hypothesis import given, strategies as st

from dataspace.errors import InternalError
from dataspace.kernel.actions import ASSERT, REPLACE, RETRACT, SEND, Action
from dataspace.kernel.changes import Changes, Claims, Epoch
from dataspace.kernel.space import Space
from index.patterns.text import parse_pattern
from index.values.values import Record, Value, key
from relay.log.segments import cut, encode

PATTERNS: Final = ("p($)", "q($)", "said($)", "rule-error($,$,$,$)")
RULE: Final = Record("rule", "one", "q($x) <- p($x).")
KEPT: Final = Record("rule", "two", "next(q($x)) <- said($x). next(q($x)) <- q($x), not p($x).")


class Shown:
    """A space, and what observers of a few patterns have been told."""

    def __init__(self) -> None:
        self.space = Space("test")
        self.heard: dict[str, list[Changes]] = {pattern: [] for pattern in PATTERNS}
        for pattern, heard in self.heard.items():
            self.space.observe(parse_pattern(pattern), _Observer(heard))

    def state(self) -> object:
        space = self.space
        claims = {owner: _claimed(space, owner) for owner in space.owners()}
        return claims, space.epoch, space.time, repr(self.heard), space.statistics()


class _Observer:
    def __init__(self, heard: list[Changes]) -> None:
        self.offer = heard.append


def _claimed(space: Space, owner: str) -> list[tuple[int, object]]:
    return sorted((handle, key(value)) for handle, value in space.claims(owner).items())


class Pair:
    """A space that makes turns, and one that reads its epochs from segments."""

    def __init__(self) -> None:
        self.leader, self.follower = Shown(), Shown()
        self.epochs: list[Epoch] = []

    def turn(self, owner: str, actions: list[Action], now: int = 1) -> None:
        try:
            self.leader.space.commit(owner, actions, now, submit=self.epochs.append)
        except Exception:  # noqa: BLE001  # refused: no epoch, so nothing to follow
            return
        while self.leader.space.rules.pending:
            self.leader.space.advance(now, submit=self.epochs.append)

    def follow(self) -> None:
        for segment in cut([encode(each) for each in self.epochs], 1, bytes(16)):
            for epoch in segment.epochs():
                self.follower.space.follow(epoch)
        self.epochs.clear()

    def check(self) -> None:
        assert self.follower.state() == self.leader.state()
        self.follower.space.index.check()


P1, P2, SAID = Record("p", 1), Record("p", 2), Record("said", 1)
STEPS: Final[list[tuple[str, list[Action]]]] = [
    ("a", [(ASSERT, 1, P1)]),
    ("a", [(RETRACT, 1)]),
    ("a", [(REPLACE, 1, 2, P2)]),
    ("b", [(ASSERT, 1, P1), (SEND, SAID)]),
    ("b", [(ASSERT, 2, RULE)]),
    ("b", [(RETRACT, 2)]),
    ("b", [(ASSERT, 3, KEPT)]),
    ("b", [(SEND, SAID), (ASSERT, 4, Record("q", 1))]),
]


@pytest.mark.parametrize("first", range(len(STEPS)))
def test_every_few_turns_are_followed_and_gone_on_with(first: int) -> None:
    for rest in product(STEPS, repeat=2):
        pair = Pair()
        for owner, actions in (STEPS[first], *rest):
            pair.turn(owner, actions)
            pair.follow()
            pair.check()
        last = pair.leader.space.commit("a", [(ASSERT, 9, Record("p", 3))], 2)
        mine = pair.follower.space.commit("a", [(ASSERT, 9, Record("p", 3))], 2)
        assert _shown(mine) == _shown(last), (STEPS[first], rest)
        pair.check()


def _shown(epoch: Epoch) -> object:
    """What observers and the log see of an epoch."""
    values = [sorted(map(repr, each)) for each in (epoch.added, epoch.messages, epoch.removed)]
    claims = [(owner, sorted(map(repr, begun)), sorted(ended)) for owner, begun, ended in epoch.claims]
    return epoch.number, values, claims


actions_of = st.one_of(
    st.tuples(st.just(ASSERT), st.integers(0, 4), st.sampled_from([P1, P2, RULE, KEPT, Record("q", 2)])),
    st.tuples(st.just(RETRACT), st.integers(0, 4)),
    st.tuples(
        st.just(REPLACE), st.integers(0, 4), st.integers(0, 4), st.sampled_from([P1, P2, Record("q", 2)])
    ),
    st.tuples(st.just(SEND), st.sampled_from([SAID, P1])),
)
turns = st.lists(st.tuples(st.sampled_from("abc"), st.lists(actions_of, max_size=4)), max_size=12)


@given(turns, st.integers(1, 5))
def test_what_is_followed_is_what_was_made(made: list[tuple[str, list[Action]]], together: int) -> None:
    pair = Pair()
    for at, (owner, actions) in enumerate(made, 1):
        pair.turn(owner, actions, at)
        if not at % together:
            pair.follow()
            pair.check()
    pair.follow()
    pair.check()
    pair.leader.space.end(["a"], 99, submit=pair.epochs.append)
    pair.follow()
    pair.check()


def test_an_epoch_that_does_not_fit_damages_the_space() -> None:
    space = Space("test")
    with pytest.raises(InternalError, match="could not be undone"):
        space.follow(Epoch(1, 1, claims=[Claims("a", [], [7])]))
    with pytest.raises(InternalError):
        space.follow(Epoch(1, 1))
    with pytest.raises(InternalError):
        space.commit("a", [(ASSERT, 1, _value())], 1)


def _value() -> Value:
    return P1


def test_a_space_that_is_emptied_holds_no_fact_and_tells_nobody() -> None:
    shown = Shown()
    shown.space.commit("a", [(ASSERT, n, Record("p", n)) for n in range(3_000)], 1)
    shown.space.commit("b", [(ASSERT, n, Record("p", n)) for n in range(2_990, 3_100)], 1)
    heard, facts = repr(shown.heard), [*shown.space.index.values()]
    before = getrefcount(facts[7])
    steps = sum([1 for _ in shown.space.emptying()])
    assert 6 <= steps < 20 and len(shown.space.index) == 0
    assert repr(shown.heard) == heard
    after = getrefcount(facts[7])  # not within ``assert``, which has it as well
    assert after == before - 2, "neither its owner nor the index has it"
