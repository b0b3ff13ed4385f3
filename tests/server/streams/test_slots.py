"""Slots for replays: what one connection may hold, and what all of them may."""

from __future__ import annotations

import trio
from trio.testing import wait_all_tasks_blocked

from server.streams.replay import ReplaySlots


async def test_replays_wait_for_a_slot_of_all_connections() -> None:
    shared = trio.Semaphore(1)
    mine, yours = ReplaySlots(2, shared), ReplaySlots(2, shared)
    order: list[str] = []

    async def read(slots: ReplaySlots, name: str, done: trio.Event) -> None:
        async with slots.reading():
            order.append(name)
            await done.wait()

    first, second = trio.Event(), trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(read, mine, "mine", first)
        await wait_all_tasks_blocked()
        nursery.start_soon(read, yours, "yours", second)
        await wait_all_tasks_blocked()
        assert order == ["mine"]
        assert (mine.wanted, yours.wanted) == (True, True)
        first.set()
        await wait_all_tasks_blocked()
        assert order == ["mine", "yours"]
        assert (mine.wanted, yours.wanted) == (False, False)
        second.set()


async def test_replays_wait_for_a_slot_of_their_connection() -> None:
    mine, entered = ReplaySlots(1, trio.Semaphore(9)), list[int]()
    async with mine.reading():
        with trio.move_on_after(0):
            async with mine.reading():
                entered.append(2)
        assert not entered
    async with mine.reading():
        assert not mine.wanted
