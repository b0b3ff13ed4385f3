"""Pace: how fast a backup may read, and its reports of progress.

Always: without a rate nothing waits; every copied byte is reported, however the copy is paced.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

SLICE: Final = 0.25
"""Seconds that one pause lasts at most, so that an interrupt is handled soon."""

MADE_UP: Final = 1.0
"""Seconds of slowness that may be made up for by a faster copy."""


class CopyPace:
    """Counts the bytes that were copied, and waits where that is faster than ``rate`` bytes in a second."""

    def __init__(
        self,
        rate: float | None = None,
        report: Callable[[str, int], None] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """``report`` is called with the name of the part that is being copied and the bytes copied so far, of
        all parts."""
        self.copied = 0
        self._rate = rate
        self._report = report
        self._clock = clock
        self._sleep = sleep
        self._due = clock()

    def spent(self, what: str, count: int) -> None:
        """Counts bytes that were copied just now, and returns when the next ones may be."""
        self.copied += count
        if self._report is not None:
            self._report(what, self.copied)
        if not self._rate:
            return
        self._due = max(self._due, self._clock() - MADE_UP) + count / self._rate
        while (left := self._due - self._clock()) > 0:
            self._sleep(min(left, SLICE))
