"""Slots for replays: how many may hold a part of the log in memory at once.

Always: a replay that reads holds a slot of its connection and one of the daemon; the others wait.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


class ReplaySlots:
    """The slots of one connection, beside those that all connections share."""

    def __init__(self, count: int, shared: trio.Semaphore) -> None:
        self._own = trio.Semaphore(count)
        self._shared = shared

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """Holds a slot, here and in all; waits until there is one."""
        async with self._own, self._shared:
            yield

    @property
    def wanted(self) -> bool:
        """True if a replay waits for a slot."""
        return any(each.statistics().tasks_waiting for each in (self._own, self._shared))
