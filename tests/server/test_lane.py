"""The lane lets one slice run between two passes of the loop, and every asker has its turn."""

from __future__ import annotations

import threading
from itertools import pairwise

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from server.lane import SLICE_SECONDS, Lane, LaneStatistics


class Steps:
    """A clock of work: each look at it is a fifth of a slice later."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += SLICE_SECONDS / 5
        return self.now


async def _toil(lane: Lane, asker: str, slices: int, order: list[str]) -> None:
    async with lane.work(asker) as work:
        for n in range(slices):
            order.append(asker)
            while not work.is_over:
                pass
            if n + 1 < slices:
                await work.pass_on()


async def test_askers_take_turns_however_many_pieces_one_has() -> None:
    lane, order = Lane(clock=Steps()), list[str]()
    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(_toil, lane, "bully", 3, order)
        nursery.start_soon(_toil, lane, "innocent", 3, order)
    at = [n for n, asker in enumerate(order) if asker == "innocent"]
    assert len(order) == 33
    assert at[0] <= 11, "it may have come when ten had just begun"
    assert [later - earlier for earlier, later in pairwise(at)] == [2, 2]


async def test_what_an_asker_has_begun_ends_before_it_begins_something_else() -> None:
    lane, order = Lane(clock=Steps()), list[str]()

    async def toil(name: str) -> None:
        async with lane.work("one asker") as work:
            for _ in range(3):
                order.append(name)
                while not work.is_over:
                    pass
                await work.pass_on()

    async with trio.open_nursery() as nursery:
        for name in "abc":
            nursery.start_soon(toil, name)
    assert [order[at : at + 3] for at in (0, 3, 6)] == [[name] * 3 for name in dict.fromkeys(order)]


async def test_a_task_that_is_no_work_runs_after_each_slice() -> None:
    lane, order = Lane(clock=Steps()), list[str]()
    longest = 0
    async with trio.open_nursery() as nursery:
        for n in range(40):
            nursery.start_soon(_toil, lane, f"asker {n}", 5, order)
        while len(order) < 200:
            before = len(order)
            await trio.lowlevel.checkpoint()
            longest = max(longest, len(order) - before)
    assert longest <= 2, "two where the token was passed and the next ran in the same pass"


async def test_one_that_is_cancelled_leaves_no_gap() -> None:
    lane = Lane(clock=Steps())
    first = lane.work("first")
    await first.enter()
    with trio.move_on_after(0):
        async with lane.work("second"):
            raise AssertionError("it is not its turn")
    assert lane.statistics() == LaneStatistics(1, 0, 0)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_toil, lane, "third", 1, [])
            await wait_all_tasks_blocked()
            assert lane.statistics() == LaneStatistics(1, 1, 1)
            first.leave()  # the token is on its way to the third
            scope.cancel()
    assert lane.statistics().slices == 1, "what is cancelled does not begin"
    with trio.fail_after(60):
        async with lane.work("last"):
            pass


async def test_a_thread_takes_its_turns() -> None:
    lane, order = Lane(clock=Steps()), list[str]()

    async def in_thread(asker: str) -> None:
        async with lane.work(asker) as work:

            def toil() -> None:
                for _ in range(3):
                    order.append(asker)
                    while not work.is_over:
                        pass
                    work.pass_on_from_thread()

            await trio.to_thread.run_sync(toil)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(in_thread, "one")
        nursery.start_soon(in_thread, "two")
    assert sorted(order[:2]) == sorted(order[2:4]) == sorted(order[4:]) == ["one", "two"]


async def test_work_waits_for_others_outside_of_its_turn() -> None:
    lane = Lane(clock=Steps())
    work = lane.work("one")
    await work.enter()
    work.leave()
    work.leave()
    async with lane.work("two"):
        assert lane.statistics().waiting == 0
    await work.enter()
    await work.enter()
    assert lane.statistics() == LaneStatistics(3, 0, 0)
    work.leave()


@pytest.mark.parametrize("far", [False, True])
async def test_a_turn_is_left_to_others_while_a_database_is_read_and_not_while_a_disk_is(far: bool) -> None:
    lane, answered, others = Lane(), threading.Event(), list[str]()
    reads, other = lane.work("reads"), lane.work("other")

    async def read() -> None:
        async with reads:
            assert await reads.read(answered.wait, far=far)
            assert reads.has_turn
            others.append("read")

    async def work() -> None:
        async with other:
            others.append("other")
            answered.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await wait_all_tasks_blocked()
        nursery.start_soon(work)
        await wait_all_tasks_blocked()
        assert others[:1] == (["other"] if far else [])
        answered.set()
    assert others == (["other", "read"] if far else ["read", "other"])
