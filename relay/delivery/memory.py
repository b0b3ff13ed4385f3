"""A memory budget: what the changes that wait for all observers of a daemon may take together.

Each observer has bounds of its own, which it rarely needs; but a thousand that stall at once would need them
all.  So what waits is added up, and while it is too much, no observer may have more than an equal share.

Always: ``used`` is what the observations that have not left say that they hold.
"""

from __future__ import annotations

from typing import Final

WAITING_BYTES: Final = 512 << 20
"""Bytes that may wait for all observers together, before each must keep to its share."""

LEAST: Final = 64 << 10
"""Bytes that wait for an observer in any case."""

OVERHEAD: Final = 256
"""Bytes that a waiting change takes beside its wire form, about."""


class MemoryBudget:
    """The memory shared by many delivery queues; ``limit`` in bytes."""

    __slots__ = ("limit", "observers", "used")

    def __init__(self, limit: int = WAITING_BYTES) -> None:
        self.limit = limit
        self.used = 0
        self.observers = 0

    @property
    def share(self) -> int:
        """Returns the bytes that may wait for one observer while there is too much for all."""
        return max(LEAST, self.limit // max(1, self.observers))

    def denies(self, used: int) -> bool:
        """True if an observer that uses so much must use less."""
        return self.used > self.limit and used > self.share
