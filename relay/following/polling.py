"""Polling: a follower looks at the store of another process again and again, and at once after a hint."""

from __future__ import annotations

from typing import Final

import trio

POLL_SECONDS: Final = 0.005
"""Seconds between two looks where the leader sends no hints."""


class Polled:
    """What looks at a store again and again."""

    def __init__(self) -> None:
        self.poll = POLL_SECONDS
        """Seconds between two looks where no hint comes."""
        self._hint = trio.Event()

    def hint(self) -> None:
        """Notes that there may be more to read."""
        self._hint.set()

    def expect_no_hints(self) -> None:
        """Looks more often from now on, because no hints come."""
        self.poll = POLL_SECONDS
        self.hint()

    async def _wait_hint(self) -> None:
        with trio.move_on_after(self.poll):
            await self._hint.wait()
        self._hint = trio.Event()
