"""Survey: how far behind are the slowest observers?

To look at every observer takes a microsecond for each, so it is done in slices, between which other tasks
run; the figures are of some moment while it was done.  Disk sizes are asked for in a thread, since a disk may
not answer.

Always: a stream that ends meanwhile is no error; what a slow observer waits for is not copied.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import trio

from relay.delivery.queue_members import QueueMember
from server.sessions.peer import PEERS

if TYPE_CHECKING:
    from relay.delivery.outbox import OutStream
    from server.home import Home
    from server.sessions.state import DaemonState

SLICE: Final = 1024
"""Streams that are looked at in one step, in about a millisecond."""


@dataclass(slots=True)
class Lag:
    """How far behind observers are: values that wait, and epochs and seconds since the oldest of them."""

    backlog: int = 0
    epochs: int = 0
    seconds: float = 0.0

    def include(self, backlog: int, epochs: int, seconds: float) -> None:
        """Keeps the larger of each figure."""
        self.backlog = max(self.backlog, backlog)
        self.epochs = max(self.epochs, epochs)
        self.seconds = max(self.seconds, seconds)


@dataclass(slots=True)
class Survey:
    """The figures of a survey."""

    slowest: dict[str, Lag]
    """Of the observers of each space."""
    disk: dict[str, dict[str, int]]
    """Bytes of each space by part."""


def _sizes(home: Home, spaces: Iterable[str]) -> dict[str, dict[str, int]]:
    """Returns the bytes on disk of each space by part; blocks."""
    return {space: home.sizes(space) for space in spaces}


def lag_of(streams: Iterable[OutStream], epoch: int, now: int) -> Lag:
    """Returns how far behind the slowest of some streams is, at an epoch and a time in microseconds."""
    slowest = Lag()
    for stream in streams:
        waiting = stream.backlog
        if isinstance(waiting, QueueMember) and (oldest := waiting.oldest) is not None:
            first, time = oldest
            slowest.include(
                len(waiting), max(0, epoch + 1 - first), max(0.0, (now - time) / 1e6) if time else 0.0
            )
    return slowest


async def survey(daemon: DaemonState, now: int) -> Survey:
    """Returns what was found in one walk over all observers and files."""
    disk = await trio.to_thread.run_sync(_sizes, daemon.home, list(daemon.spaces))
    slowest = {name: Lag() for name in daemon.spaces}
    looked = 0
    for connection in list(daemon.parts[PEERS].values()):
        hosted = connection.hosted
        streams = list(connection.streams.values())
        for at in range(0, len(streams), SLICE):
            part = streams[at : at + SLICE]
            lag = lag_of(part, hosted.space.epoch, now)
            slowest[hosted.name].include(lag.backlog, lag.epochs, lag.seconds)
            looked += len(part)
            if looked >= SLICE:
                looked = 0
                await trio.lowlevel.checkpoint()
    return Survey(slowest, disk)
