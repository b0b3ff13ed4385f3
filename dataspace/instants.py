"""Instants: the grid of times at which something comes or goes by time alone, in rules and in flows."""

from __future__ import annotations

from typing import Final

GRID: Final = 10_000
"""Microseconds between two instants, so that there are at most 100 epochs a second of them."""

NEVER: Final = 1 << 62
"""Later than any instant."""


def instant_of(micros: int) -> int:
    """Returns the first instant at or after a time.

    >>> instant_of(20_000), instant_of(20_001)
    (20000, 30000)
    """
    return -(-micros // GRID) * GRID
