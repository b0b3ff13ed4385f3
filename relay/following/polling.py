"""Polling: a follower looks at the store of another process again and again, and at once after a hint."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import Final

import trio

from relay.store.errors import LogAway

logger = logging.getLogger("dataspace")

POLL_SECONDS: Final = 0.005
"""Seconds between two looks where the leader sends no hints."""

AWAY_SECONDS: Final = 0.5
"""Seconds until a database that was not reached is asked again."""

SLICE_SECONDS: Final = 0.002
"""Seconds of work on new entries before others have their turn."""


class Polled(ABC):
    """What looks at a store again and again, in a task that ends with ``close``."""

    def __init__(self) -> None:
        self.poll = POLL_SECONDS
        """Seconds between two looks where no hint comes."""
        self._hint = trio.Event()
        self._over: Final = trio.Event()
        """Set at the end of ``run``."""
        self._running: Final = trio.CancelScope()

    def hint(self) -> None:
        """Notes that there may be more to read."""
        self._hint.set()

    @abstractmethod
    async def run(self) -> None:
        """Reads what is new, until ``close``."""

    @abstractmethod
    async def catch_up(self) -> None:
        """Ends ``run``, and reads everything that is on disk."""

    async def close(self) -> None:
        """Ends ``run``."""
        self._running.cancel()
        await self._over.wait()

    async def wait_for(self, away: LogAway) -> None:
        """Waits a moment for a database that was not reached; readers are served meanwhile."""
        logger.warning("%s; what was read before is served", away)
        await trio.sleep(AWAY_SECONDS)

    async def _wait_hint(self) -> None:
        with trio.move_on_after(self.poll):
            await self._hint.wait()
        self._hint = trio.Event()
