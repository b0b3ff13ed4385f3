"""Queues are written at once where they are few, and some at a time where they are many."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from trio.testing import wait_all_tasks_blocked

from server.sessions import flushing
from server.sessions.flushing import AT_ONCE, REST_SECONDS, Flushing


class Counted:
    """A queue that knows what it had to send, and what it wrote each time."""

    def __init__(self) -> None:
        self.waiting = 0
        self.writes: list[int] = []

    def flush(self) -> None:
        if self.waiting:
            self.writes.append(self.waiting)
        self.waiting = 0


def _touch(made: Flushing, queues: list[Counted]) -> None:
    for queue in queues:
        queue.waiting += 1
        made.touch(queue)


async def test_few_are_written_at_once() -> None:
    made, queues = Flushing(), [Counted() for _ in range(AT_ONCE)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.run)
        await wait_all_tasks_blocked()
        _touch(made, queues)
        made.flush()
        assert [queue.writes for queue in queues] == [[1]] * AT_ONCE
        nursery.cancel_scope.cancel()


async def test_many_turns_for_many_observers_are_few_writes(
    autojump_clock: trio.testing.MockClock,
) -> None:
    made, queues = Flushing(), [Counted() for _ in range(2 * AT_ONCE)]
    turns = 200
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.run)
        await wait_all_tasks_blocked()
        for n in range(turns):
            _touch(made, queues)
            made.flush()
            if n % 10 == 9:
                await trio.lowlevel.checkpoint()
        await trio.sleep(2 * REST_SECONDS)
        assert [sum(queue.writes) for queue in queues] == [turns] * len(queues)
        assert max(len(queue.writes) for queue in queues) <= turns // 10 + 2
        nursery.cancel_scope.cancel()


async def test_a_few_are_written_while_many_wait_for_the_task() -> None:
    made, queues, few = Flushing(), [Counted() for _ in range(AT_ONCE + 1)], [Counted()]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.run)
        await wait_all_tasks_blocked()
        _touch(made, queues)
        made.flush()
        assert queues[-1].writes == [1], "many are written at once while the task is idle"
        _touch(made, queues)
        made.flush()
        _touch(made, few)
        made.flush()
        assert [few[0].writes, queues[0].writes] == [[1], [1]]
        nursery.cancel_scope.cancel()
    assert all(queue.writes == [1, 1] for queue in queues)


async def test_the_task_rests_after_a_pass_for_as_long_as_that_took_if_more_waits(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    monkeypatch.setattr(flushing, "perf_counter", iter(range(10_000)).__next__)  # each look takes a second
    made, queues = Flushing(slice_seconds=1e9, rest_seconds=1e9), [Counted() for _ in range(AT_ONCE + 1)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.run)
        await wait_all_tasks_blocked()
        for turn in range(1, 4):
            await wait_all_tasks_blocked()
            _touch(made, queues)
            made.flush()
            assert queues[-1].writes == [1] * turn, "at once after a rest"
            _touch(made, queues)
            made.flush()  # while the task looks whether more waits
            await trio.sleep(AT_ONCE)
            assert queues[-1].waiting, "within the rest"
            await trio.sleep(4 * AT_ONCE)
            queues[-1].writes.pop()
        nursery.cancel_scope.cancel()


async def test_a_change_that_comes_after_a_pass_is_written_without_a_rest() -> None:
    made, queues = Flushing(rest_seconds=1e9), [Counted() for _ in range(AT_ONCE + 1)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.run)
        for turn in range(1, 4):
            await wait_all_tasks_blocked()
            _touch(made, queues)
            made.flush()
            await wait_all_tasks_blocked()
            assert queues[-1].writes == [1] * turn
        nursery.cancel_scope.cancel()


async def test_others_run_while_many_are_written() -> None:
    made = Flushing(slice_seconds=-1.0)  # each write takes longer than that
    queues = [Counted() for _ in range(AT_ONCE + 1)]
    passes = 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.run)
        await wait_all_tasks_blocked()
        _touch(made, queues)
        made.flush()
        while not all(queue.writes for queue in queues):
            passes += 1
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert passes >= len(queues) - 2, "one is written at once, and one in each pass of the task"


async def test_nothing_stays_unwritten_when_the_task_ends_or_never_ran() -> None:
    made, queues = Flushing(), [Counted() for _ in range(3 * AT_ONCE)]
    _touch(made, queues)
    made.flush()
    assert [queue.writes for queue in queues] == [[1]] * len(queues)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.run)
        await wait_all_tasks_blocked()
        _touch(made, queues)
        made.flush()
        _touch(made, queues)
        made.flush()
        assert queues[-1].waiting
        nursery.cancel_scope.cancel()
    assert [sum(queue.writes) for queue in queues] == [3] * len(queues)
