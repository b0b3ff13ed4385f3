"""Owners that end in the same moment end together, in order, and no group of them is divided."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import trio
import trio.testing
from hypothesis import given, strategies as st

from server.lane import Lane
from server.spaces.endings import MOST, Departures


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


class Ended:
    """Owners with claims, and the turns that they end in."""

    def __init__(self, sizes: dict[str, int]) -> None:
        self.claims = sizes
        self.turns: list[list[str]] = []
        self.departed = Departures(self._end, lambda owner: self.claims[owner])

    def _end(self, owners: Sequence[str]) -> None:
        self.turns.append([*owners])
        for owner in owners:
            self.claims[owner] = 0


def test_many_do_not_end_before_the_turn_of_another_and_an_owner_that_comes_again_ends_alone() -> None:
    ended = Ended(dict.fromkeys("abc", MOST))
    for owner in "abc":
        ended.departed.soon([owner])
    ended.departed.due_before("other")
    assert not ended.turns, "others would wait"
    ended.departed.due_before("b")
    assert ended.turns == [["b"]]
    ended.claims["b"] = 7
    ended.departed.now()
    assert ended.turns == [["b"], ["a"], ["c"]] and ended.claims["b"] == 7, "it has come again"


async def test_many_end_in_the_lane_a_turn_in_each_slice() -> None:
    ended, lane, flushed = Ended({str(n): 1_000 for n in range(40)}), Lane(), []
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ended.departed.run, lane, "space", lambda: flushed.append(len(ended.turns)))
            await trio.testing.wait_all_tasks_blocked()
            for owner in ended.claims:
                ended.departed.soon([owner])
            ended.departed.due()
            assert not ended.turns
            await ended.departed.in_turns(lane, "space")
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    assert [owner for turn in ended.turns for owner in turn] == [*ended.claims]
    assert [len(turn) for turn in ended.turns] == [4] * 10
    assert lane.statistics().slices >= 10 and {*flushed} == {10}


@given(
    st.lists(
        st.tuples(st.sampled_from(["soon", "turn", "due", "some", "again"]), st.integers(0, 5)), max_size=40
    )
)
def test_no_owner_keeps_what_it_had_and_none_loses_what_it_has_again(steps: list[tuple[str, int]]) -> None:
    """Numbers stand for owners; one that ended may come again, as leases do, and is written to first."""
    ended = Ended({str(n): MOST // 2 for n in range(6)})
    gone: set[str] = set()
    for step, number in steps:
        owner = str(number)
        if step == "soon" and owner not in gone:
            gone.add(owner)
            ended.departed.soon([owner])
        elif step == "again":
            ended.departed.due_before(owner)
            assert owner not in gone or not ended.claims[owner]
            gone.discard(owner)
            ended.claims[owner] = MOST // 2
        elif step == "turn":
            ended.departed.due_before("other")
        elif step == "due":
            ended.departed.due()
        elif step == "some":
            ended.departed.some()
    ended.departed.now()
    assert {owner for owner, size in ended.claims.items() if not size} == gone


@given(st.lists(st.lists(st.integers(0, MOST + 1), min_size=1, max_size=3), max_size=8))
def test_turns_are_bounded_groups_whole_and_all_in_order(sizes: list[list[int]]) -> None:
    turns = _ended(sizes)
    assert [owner for turn in turns for owner in turn] == [
        f"{group}.{at}" for group, some in enumerate(sizes) for at in range(len(some))
    ]
    groups = [[int(owner.split(".")[0]) for owner in turn] for turn in turns]
    for before, after in pairwise(groups):
        assert before[-1] < after[0], "a group is divided"
        assert sum(map(sum, [sizes[at] for at in {*before, after[0]}])) > MOST, "two turns would be one"
    for turn in groups:
        assert len({*turn}) == 1 or sum([sum(sizes[at]) for at in {*turn}]) <= MOST
