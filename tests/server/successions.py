"""What clients of daemons over one store see while one leader after the other is killed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import trio

import dataspace
from dataspace import Record
from dataspace.client.connect import HEARTBEAT
from dataspace.client.space import RemoteSpace


class Witness:
    """A fact that is kept, and what an observer saw of it; ticks that are sent one by one."""

    def __init__(self) -> None:
        self.shown: list[tuple[object, ...]] = []
        self.acknowledged = 0

    async def watch(self, watcher: RemoteSpace) -> None:
        async with watcher.observe("here($who)", quiet=True) as seen:
            async for change in seen:
                if change.captures:
                    self.shown.append(change.captures)

    async def write(self, writer: RemoteSpace) -> None:
        while True:
            await writer.send(Record("tick", self.acknowledged))
            self.acknowledged += 1
            await trio.sleep(0.004)

    async def answered(self) -> None:
        """Returns once three more ticks were acknowledged: one may have been on its way to the client."""
        enough = self.acknowledged + 3
        while self.acknowledged < enough:  # noqa: ASYNC110  # what another task counts
            await trio.sleep(0.005)

    async def check(self, space: RemoteSpace, newest: int) -> None:
        """Each tick happened once, in its order, and the fact never went and came again."""
        async with space.observe("tick($n)", after=0, upto=newest, durable=True) as log:
            found = [(change.epoch, change.captures[0]) async for change in log if change.captures]
        assert [n for _, n in found] == list(range(len(found))), "once each, in the order of their sending"
        assert self.acknowledged <= len(found), "none that was acknowledged is lost"
        assert [epoch for epoch, _ in found] == sorted({epoch for epoch, _ in found})
        assert self.shown == [("keeper",)]


@asynccontextmanager
async def witnessed(
    urls: Sequence[str],
    at: Sequence[str] | None = None,
    *,
    space: str = "main",
    heartbeat: float = HEARTBEAT,
) -> AsyncIterator[Witness]:
    """Clients of these daemons for as long as the block runs; then all that they were told is checked.

    The observer is ``at`` other ones, if there are some, else at any of these.
    """
    connect = partial(dataspace.connect, space=space, heartbeat=heartbeat)
    witness = Witness()
    async with (
        connect(urls, name="keeper", grace=60) as keeper,
        connect(urls, name="writer") as writer,
        connect(at or urls, name="watcher", read="leader" if at else "any") as watcher,
    ):
        await keeper.assert_(Record("here", "keeper"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(witness.watch, watcher)
            nursery.start_soon(witness.write, writer)
            yield witness
            nursery.cancel_scope.cancel()
        newest = await writer.sync()  # at the leader, since it took the turns of this session
    async with connect(urls) as reader:  # or at a follower, which waits until it has them
        await witness.check(reader, newest)
