"""Durations: how often something took how long, counted with plain integers.

A duration costs one search in a short tuple and three additions.  The reader of the counts does the rest.

Always: the counts add up to the number of durations.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

BOUNDS: Final[tuple[float, ...]] = (
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    10.0,
)
"""Seconds: from a write that no disk has to confirm to a disk that hardly answers."""


class Durations:
    """Counts of durations, by the bounds that they do not exceed.

    >>> waits = Durations((0.1, 1.0))
    >>> for seconds in (0.05, 0.1, 0.5, 7.0):
    ...     waits.add(seconds)
    >>> waits.cumulative(), waits.longest
    ([(0.1, 2), (1.0, 3), (inf, 4)], 7.0)
    """

    __slots__ = ("_bounds", "_counts", "longest", "total")

    def __init__(self, bounds: tuple[float, ...] = BOUNDS) -> None:
        self._bounds: Final = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        """Seconds of all together."""
        self.longest = 0.0

    def add(self, seconds: float) -> None:
        """Counts one duration."""
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self.total += seconds
        if seconds > self.longest:
            self.longest = seconds

    def cumulative(self) -> list[tuple[float, int]]:
        """Returns each bound with how many durations did not exceed it; the last bound is infinite."""
        found, count = [], 0
        for bound, each in zip((*self._bounds, float("inf")), self._counts, strict=True):
            count += each
            found.append((bound, count))
        return found
