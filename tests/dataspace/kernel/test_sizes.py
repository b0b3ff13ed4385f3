"""Bytes of facts and of patterns: counted as turns come, bounded, and given back."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from dataspace.errors import Refused
from dataspace.kernel.actions import ASSERT, REPLACE, RETRACT, Action
from dataspace.kernel.bulk_assertions import Assertions
from dataspace.kernel.changes import Changes
from dataspace.kernel.limits import FACT_BYTES, SpaceLimits, size_of, weight
from dataspace.kernel.space import Space
from index.patterns.patterns import capture
from index.trie.nodes import at_of
from index.values.values import Map, Record, Value
from tests.strategies import values

BIG = Record("p", "x" * 10_000)
SMALL = Record("p", 1)


class _Ear:
    def offer(self, changes: Changes) -> None: ...


def _bytes(space: Space) -> int:
    return space.statistics().facts_bytes


@given(st.lists(values, max_size=8))
def test_what_is_retracted_counts_for_nothing(facts: list[Value]) -> None:
    space = Space("s")
    space.commit("a", [(ASSERT, n, fact) for n, fact in enumerate(facts)], 0)
    space.commit("b", Assertions(0, facts), 0, publication=True)
    assert _bytes(space) == 2 * size_of(len(facts), sum(weight(at_of(fact)) for fact in facts))
    assert space.held("a")[1] == space.held("b")[1] == _bytes(space) // 2
    again = Space("s")
    again.restore(space.all_claims(), 1, 1)
    assert _bytes(again) == _bytes(space), "a restart counts the same"
    space.commit("a", [(RETRACT, n) for n in range(len(facts))], 0)
    assert _bytes(space) == space.held("b")[1]
    space.end(["b"], 0)
    assert _bytes(space) == 0 == space.held("b")[1]


@pytest.mark.parametrize(
    "fact",
    [BIG, "x" * 10_000, b"x" * 10_000, ("x" * 10_000,), Map({"a": "x" * 10_000}), Record("p", "é" * 5_000)],
)
def test_a_fact_of_any_kind_counts_for_its_text(fact: Value) -> None:
    assert 20_000 <= size_of(1, weight(at_of(fact))) <= 90_000


@pytest.mark.parametrize(
    ("limits", "named"),
    [
        (SpaceLimits(facts_bytes=25_000), "the limit is limits.facts_bytes=25000"),
        (SpaceLimits(facts_bytes_per_owner=25_000), "the limit is limits.facts_bytes_per_owner=25000"),
    ],
)
def test_beyond_the_bytes_growth_is_refused_and_retraction_goes_on(limits: SpaceLimits, named: str) -> None:
    space = Space("s", limits=limits)
    space.commit("a", [(ASSERT, 1, BIG)], 0)
    before = _bytes(space)
    refused: list[list[Action]] = [
        [(ASSERT, 2, Record("q", "y" * 10_000))],
        [(ASSERT, 2, SMALL), (REPLACE, 1, 3, Record("q", "y" * 20_000))],
    ]
    for turn in refused:
        with pytest.raises(Refused, match=named):
            space.commit("a", turn, 0)
        assert _bytes(space) == before
        assert dict(space.claims("a")) == {1: BIG}
    with pytest.raises(Refused, match=named):
        space.commit("a", Assertions(5, [Record("q", "y" * 10_000)]), 0, publication=True)
    space.commit("b", [(ASSERT, 1, SMALL)], 0)
    space.commit("a", [(REPLACE, 1, 3, SMALL), (ASSERT, 4, Record("q", "y" * 10_000))], 0)
    space.commit("a", [(RETRACT, 4)], 0)
    assert _bytes(space) == 2 * size_of(1, weight(SMALL.text))


def test_what_is_beyond_a_limit_already_may_shrink() -> None:
    known = Space("s")
    known.commit("a", [(ASSERT, 1, BIG), (ASSERT, 2, SMALL)], 0)
    space = Space("s", limits=SpaceLimits(facts_bytes=1_000, facts_bytes_per_owner=1_000))
    space.restore(known.all_claims(), 1, 1)
    with pytest.raises(Refused, match="limit"):
        space.commit("a", [(REPLACE, 2, 3, BIG)], 0)
    space.commit("a", [(REPLACE, 1, 3, Record("p", "shorter"))], 0)
    assert _bytes(space) < 1_000


def test_a_turn_is_admitted_by_what_it_adds() -> None:
    space = Space("s")
    added: list[tuple[int, int]] = []
    space.commit("a", [(ASSERT, 1, SMALL), (ASSERT, 2, SMALL)], 0, admit=lambda *grown: added.append(grown))
    space.commit("a", [(RETRACT, 1)], 0, admit=lambda *grown: added.append(grown))
    assert added == [(2, 2 * size_of(1, weight(SMALL.text)))]

    def refuse(facts: int, size: int) -> None:
        raise Refused("limit", f"{facts} {size}")

    with pytest.raises(Refused, match=f"limit: 1 {FACT_BYTES}"):
        space.commit("c", [(ASSERT, 1, 5)], 0, admit=refuse)
    assert "c" not in space.owners()
    assert _bytes(space) == size_of(1, weight(SMALL.text))


def test_bytes_are_told_where_turns_come_without_epochs() -> None:
    space = Space("s")
    space.act("a", [(ASSERT, 1, BIG)], 0)
    space.commit("a", [(ASSERT, 2, SMALL)], 0)
    assert _bytes(space) == size_of(2, weight(BIG.text) + weight(SMALL.text))


@pytest.mark.parametrize(
    ("limits", "named"),
    [
        (SpaceLimits(patterns=2), "the limit is limits.patterns=2"),
        (SpaceLimits(patterns_bytes=30_000), "the limit is limits.patterns_bytes=30000"),
    ],
)
def test_patterns_are_bounded_and_those_there_are_observed_by_more(limits: SpaceLimits, named: str) -> None:
    space, ears = Space("s", limits=limits), [_Ear() for _ in range(5)]
    first = space.observe(Record("p", capture()), ears[0])
    space.observe(Record("q", "x" * 10_000), ears[1])
    with pytest.raises(Refused, match=named):
        space.observe(Record("r", "x" * 10_000), ears[2])
    space.observe(Record("p", capture()), ears[3])
    assert space.statistics().patterns == 2
    space.ignore(first, ears[0])
    space.ignore(first, ears[3])
    space.observe(Record("r", 1), ears[4])
