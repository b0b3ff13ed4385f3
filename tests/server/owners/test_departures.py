"""Owners that end in the same moment end together, in order, and no group of them is divided."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given, strategies as st

from server.owners import departures
from server.owners.departures import Departures


def _ended(sizes: Sequence[Sequence[int]]) -> list[list[str]]:
    """Returns the turns that groups of owners end in, whose claims are so many."""
    turns: list[list[str]] = []
    claims = {f"{group}.{at}": size for group, some in enumerate(sizes) for at, size in enumerate(some)}
    departed = Departures(lambda owners: turns.append([*owners]), claims.__getitem__)
    for group, some in enumerate(sizes):
        departed.soon([f"{group}.{at}" for at in range(len(some))])
    departed.now()
    assert not departed.noted
    return turns


def test_owners_of_one_moment_end_in_one_turn() -> None:
    assert _ended([[1, 2], [3], [0, 0]]) == [["0.0", "0.1", "1.0", "2.0", "2.1"]]


def test_nothing_is_done_before_now_and_nothing_twice() -> None:
    turns: list[list[str]] = []
    departed = Departures(lambda owners: turns.append([*owners]), lambda _: 1)
    departed.now()
    departed.soon(["a"])
    assert departed.noted and not turns
    departed.now()
    departed.now()
    assert turns == [["a"]]


@given(st.lists(st.lists(st.integers(0, departures.MOST + 1), min_size=1, max_size=3), max_size=8))
def test_turns_are_bounded_groups_whole_and_all_in_order(sizes: list[list[int]]) -> None:
    turns = _ended(sizes)
    assert [owner for turn in turns for owner in turn] == [
        f"{group}.{at}" for group, some in enumerate(sizes) for at in range(len(some))
    ]
    groups = [[int(owner.split(".")[0]) for owner in turn] for turn in turns]
    for before, after in pairwise(groups):
        assert before[-1] < after[0], "a group is divided"
        assert sum(map(sum, [sizes[at] for at in {*before, after[0]}])) > departures.MOST, (
            "two turns would be one"
        )
    for turn in groups:
        assert len({*turn}) == 1 or sum([sum(sizes[at]) for at in {*turn}]) <= departures.MOST
