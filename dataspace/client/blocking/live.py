"""Live maps without ``async``; see ``dataspace.client.live``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, Self, TypeVar

from dataspace.client.blocking.waiting import Blocking, Waiter, documented_by, waiting
from dataspace.client.epochs.tables import LiveChange
from dataspace.client.live import LiveMap, LiveMapping
from dataspace.loops.blocks import BlockingOnly

R = TypeVar("R")


class BlockingLiveMap(BlockingOnly, Blocking[LiveMap[R]], LiveMapping[R], Generic[R]):
    """What matches a pattern now, by key; see ``LiveMap``.

    The client's thread moves it at any time, so it may be ahead of the changes that were taken.  Each access
    takes a lock, and what is iterated over is a copy; any thread may read.
    """

    _usage = "with space.live(…, by=…) as temps"

    def __init__(self, live: LiveMap[R], wait: Waiter) -> None:
        super().__init__(live.table)
        self._remote = live
        self._wait = wait

    def __repr__(self) -> str:
        return repr(self._remote)

    @property
    def epoch(self) -> int:
        """The epoch of which the map is the state."""
        return self._remote.epoch

    @property
    def error(self) -> Exception | None:
        """Why the map is not kept up to date any more; None as long as it is."""
        return self._remote.error

    changed = waiting(LiveMap.changed)
    at = waiting(LiveMap.at)

    def changes(self) -> Iterator[LiveChange[R]]:
        """Yields changes as they come, which ``async for`` does elsewhere; ends when the map has ended."""
        while (change := self._wait(self._next)) is not None:
            yield change

    async def _next(self) -> LiveChange[R] | None:
        return await anext(self._remote, None)

    @documented_by(LiveMap.subscribe)
    def subscribe(self, function: Callable[[Self], object]) -> Callable[[], None]:
        return self._remote.subscribe(lambda _live: function(self))
