"""A program that writes a log and records what it asks of the disk: writes, truncations and syncs, in order.

It looks over SQLite's shoulder (``disk``) and notes what that asks for, and ``os.pwrite`` and ``os.fsync`` of
the acknowledged mark.  Acceptances are noted among them.  Whoever reads the record can say what a disk holds
that lost, at any instant, all that was not synced.

``recording.py DIRECTORY RECORD EPOCHS SEED``
"""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path
from random import Random

import trio

from index.values.values import Value
from relay.log.log import Log
from relay.log.writer import GroupCommit
from tests.relay.log.crashing import content
from tests.relay.log.disk import Event, hook_sqlite

_EVENTS: list[Event] = []
"""Those of ``disk``, and ``("accepted", epoch)``."""


def _note(event: Event) -> int:
    _EVENTS.append(event)
    return 0


def watch_the_mark() -> None:
    """The same for the file that is written by ourselves."""
    really_write, really_sync = os.pwrite, os.fsync

    def name(descriptor: int) -> str:
        return os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))

    def pwrite(descriptor: int, data: bytes, offset: int) -> int:
        _EVENTS.append(("write", name(descriptor), offset, bytes(data)))
        return really_write(descriptor, data, offset)

    def fsync(descriptor: int) -> None:
        really_sync(descriptor)
        _EVENTS.append(("sync", name(descriptor)))

    os.pwrite, os.fsync = pwrite, fsync  # type: ignore[assignment]  # the same for what we call them with


async def write(directory: Path, epochs: int, seed: int) -> None:
    """Some epochs in groups of any size, with snapshots on the way."""
    random, log = Random(seed), Log.open(directory)
    owners: dict[str, dict[int, Value]] = {"durable:writer": {}}
    commits = GroupCommit(log, state=lambda: owners, snapshot_changes=300)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(commits.run)
        for number in range(1, epochs + 1):
            epoch, _ = content(number)
            owners["durable:writer"].update(epoch.claims[0].asserted)
            commits.submit(epoch, lambda done: _EVENTS.append(("accepted", done.number)))
            if random.random() < 0.3:
                await commits.wait_durable(number)
        await commits.wait_durable(epochs)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    hook_sqlite(_note)
    watch_the_mark()
    trio.run(write, Path(sys.argv[1]), int(sys.argv[3]), int(sys.argv[4]))
    Path(sys.argv[2]).write_bytes(pickle.dumps(_EVENTS))
    os._exit(0)  # without the orderly end of anything
