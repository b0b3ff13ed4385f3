"""Reading back from the log for clients that go on: epochs of the previous daemon, and old turns."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

import trio

from relay.following.following import Following
from relay.log.reader import LogReader
from relay.log.recent import RecentEpochs
from relay.log.writer import GroupCommit
from server.lane import Work
from server.owners.turn_numbers import Client


class Recalling:
    """Reads the last epochs of the previous daemon back into memory, once, for all clients that go on from
    there: observers that come back, and turns that expect something unchanged.

    Always: one reads, and the others wait for it; the reading has its turn in the lane, and runs in a thread.
    """

    def __init__(self) -> None:
        self._lock = trio.Lock()

    async def recall(self, recent: RecentEpochs, log: LogReader, after: int, work: Work) -> bool:
        """Returns True if all epochs beyond ``after`` are in memory; reads epochs of the previous daemon."""
        if recent.lacks(after):
            async with self._lock:
                if recent.lacks(after):  # else another one has read it meanwhile
                    async with work:
                        read = await work.read(partial(recent.missing, log, after), far=log.may_wait)
                    if read is not None:
                        recent.put_before(after, read)
        return after >= recent.after


async def find_turns(
    commits: GroupCommit | Following, log: LogReader, work: Work, client: Client, wanted: Collection[int]
) -> dict[int, int]:
    """Returns the epochs of old turns of a client, as ``HostedSpace.find_turns`` does."""
    known = {at: epoch for at in wanted if (epoch := client.epoch_of(at)) is not None}
    missing = [at for at in wanted if at not in known]
    if missing:
        newest = client.first_epoch or 0
        await commits.wait_durable(newest)  # else the log would not know of turns on their way to it
        find = partial(log.find_turns, client.name, missing, upto=newest)
        async with work:
            known |= await work.read(find, far=log.may_wait)
    return known
