"""A worker that takes a lock again and again: ``worker.py URL NAME FOLDER TTL``.

It writes to a store while it holds the lock, with its token, each time after a check, and notes all that it
does.  It ends when its input does.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import trio

import dataspace
from dataspace import LockLost
from tests.model.locks import Belief, Grant
from tests.server.coordination.histories import Notes, Store, now

STEP_SECONDS = 0.04


async def hold(space: dataspace.RemoteSpace, me: str, ttl: float, notes: Notes, store: Store) -> None:
    """Takes the lock once, and writes some times."""
    began = now()
    try:
        async with space.elect("store", me, ttl=ttl) as lock:
            notes.note(Grant(me, lock.token, began, now()))
            for _ in range(random.randrange(1, 5)):
                at = now()
                lock.check()
                notes.note(Belief(me, lock.token, at))
                store.write(me, lock.token)
                await trio.sleep(STEP_SECONDS)
    except LockLost:
        pass


async def work(url: str, me: str, folder: Path, ttl: float) -> None:
    """Works until the input ends; connects again if the first attempt meets a fault."""
    async with trio.open_nursery() as nursery:

        async def until_told() -> None:
            await trio.lowlevel.wait_readable(0)
            nursery.cancel_scope.cancel()

        nursery.start_soon(until_told)
        notes, store = Notes(folder / f"{me}.notes"), Store(folder / "store")
        while True:
            try:
                async with dataspace.connect(url, name=me, heartbeat=0.3) as space:
                    while True:
                        await hold(space, me, ttl, notes, store)
                        await trio.sleep(STEP_SECONDS * random.random())
            except (dataspace.Unreachable, dataspace.Broken):
                await trio.sleep(STEP_SECONDS)


if __name__ == "__main__":
    trio.run(work, sys.argv[1], sys.argv[2], Path(sys.argv[3]), float(sys.argv[4]))
