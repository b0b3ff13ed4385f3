"""Facts that one turn asserts whole are asserted as they are one by one."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from dataspace.errors import ProtocolError, Refused, UsageError
from dataspace.kernel.actions import ASSERT, Action
from dataspace.kernel.bulk_assertions import Assertions
from dataspace.kernel.changes import Changes
from dataspace.kernel.handles import NO_HANDLE
from dataspace.kernel.limits import SpaceLimits
from dataspace.kernel.space import Space
from index.patterns.text import parse_pattern
from index.values.values import Record, Value, key
from tests.strategies import values

facts = st.lists(st.one_of(values, st.builds(Record, st.sampled_from("pq"), st.integers(0, 2))), max_size=6)


class World:
    """A space where another owner claims some facts, and what an observer of ``p($)`` has been told since."""

    def __init__(self, there: list[Value], observed: bool, limits: SpaceLimits | None = None) -> None:
        self.space = Space("test", limits=limits)
        self.heard: list[Changes] = []
        if observed:
            self.space.observe(parse_pattern("p($)"), self)
        self.space.commit("other", [(ASSERT, at, fact) for at, fact in enumerate(there)], 1)
        self.heard.clear()

    def offer(self, changes: Changes) -> None:
        self.heard.append(changes)

    def told(self) -> object:
        """All that there is to see of it."""
        claims = [(at, key(fact)) for each in ("w", "other") for at, fact in self.space.claims(each).items()]
        return claims, self.space.statistics(), repr(self.heard)


@given(there=facts, asserted=facts, first=st.integers(0, NO_HANDLE - 7), observed=st.booleans())
def test_as_by_an_action_for_each(
    there: list[Value], asserted: list[Value], first: int, observed: bool
) -> None:
    actions = Assertions(first, asserted)
    one_by_one: list[Action] = [(ASSERT, first + at, fact) for at, fact in enumerate(asserted)]
    assert list(actions) == one_by_one
    assert actions[::2] == one_by_one[::2]
    whole, plain = World(there, observed), World(there, observed)
    epoch = whole.space.commit("w", actions, 2, publication=True)
    assert repr(epoch) == repr(plain.space.commit("w", one_by_one, 2))
    assert whole.told() == plain.told()
    whole.space.index.check()


TOO_DEEP = Record("p", 1)
for _ in range(20_000):
    TOO_DEEP = Record.of("p", (TOO_DEEP,))


@pytest.mark.parametrize(
    ("first", "fact", "error", "said"),
    [
        (6, Record("p", 1), Refused, "handle 7 stands for"),
        (NO_HANDLE - 1, Record("p", 1), ProtocolError, "not below 2\\^63"),
        (-1, Record("p", 1), ProtocolError, "handles -1 to 0"),
        (20, TOO_DEEP, UsageError, "deep"),
        (20, Record("p", 1), Refused, "the limit is limits.facts_per_owner=2"),
    ],
)
def test_what_cannot_be_taken_changes_nothing(
    first: int, fact: Value, error: type[Exception], said: str
) -> None:
    limits = SpaceLimits(facts_per_owner=2)
    world, same = World([], True, limits), World([], True, limits)
    for each in (world, same):
        each.space.commit("w", [(ASSERT, 7, Record("p", 0))], 1)
    with pytest.raises(error, match=said):
        world.space.commit("w", Assertions(first, [Record("p", 2), fact]), 2, publication=True)
    assert world.told() == same.told()
    world.space.index.check()
