"""A handle that is used in threads: it is closed when no thread is using it.

A call in a thread cannot be interrupted.  A stream that is aborted meanwhile would close the file that the
call is using, or miss the file that it is just opening.

Always: one call at a time; ``close`` happens once, at once if no call is under way, else right after it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from dataspace.loops.here import loop, parking_lot

T = TypeVar("T")


class Threads:
    """Makes calls in threads, and closes the resource that they use."""

    __slots__ = ("_close", "_idle", "_over", "busy")

    def __init__(self, close: Callable[[], object]) -> None:
        self._close: Final = close
        self._idle: Final = parking_lot()
        self._over = False
        self.busy = False

    async def call(self, fn: Callable[..., T], *args: Any) -> T:
        """Calls a function in a thread and waits for its end, cancelled or not.

        Under asyncio a cancellation is raised after the call, and its result is lost: the function itself
        stores results that must not get lost.
        """
        self.busy = True
        try:
            result: T = await loop().run_in_thread(fn, *args)
            return result
        finally:
            self.busy = False
            self._idle.unpark_all()
            if self._over:
                self._close()

    def close(self) -> None:
        """Closes the resource, now or after the call that is under way."""
        if not self._over:
            self._over = True
            if not self.busy:
                self._close()

    async def wait_idle(self) -> None:
        """Returns when no call is under way."""
        while self.busy:
            await self._idle.park()
