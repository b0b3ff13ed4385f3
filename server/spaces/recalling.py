"""Epochs of the previous daemon, read back into memory once for all clients that go on from there."""

from __future__ import annotations

import trio

from relay.log.reader import LogReader
from relay.log.recent import Recent
from server.lane import Work


class Recalling:
    """Reads the last epochs of the previous daemon back into memory, once, for all clients that go on from
    there: observers that come back, and turns that expect something unchanged.

    Always: one reads, and the others wait for it; the reading has its turn in the lane, and runs in a thread.
    """

    def __init__(self) -> None:
        self._lock = trio.Lock()

    async def recall(self, recent: Recent, log: LogReader, after: int, work: Work) -> bool:
        """Returns True if all epochs beyond ``after`` are in memory; reads epochs of the previous daemon."""
        if recent.lacks(after):
            async with self._lock:
                if recent.lacks(after):  # else another one has read it meanwhile
                    async with work:
                        read = await trio.to_thread.run_sync(recent.missing, log, after)
                    if read is not None:
                        recent.put_before(after, read)
        return after >= recent.after
