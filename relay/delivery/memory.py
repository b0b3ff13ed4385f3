"""A room: the memory in which changes wait for all the observers of a daemon together.

Each observer has bounds of its own, which it rarely needs; but a thousand that stall at once would need them
all.  So what waits is added up, and while it is too much, nobody may have more than an equal share.

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
    """The waiting room of many; ``limit`` in bytes."""

    __slots__ = ("limit", "observers", "used")

    def __init__(self, limit: int = WAITING_BYTES) -> None:
        self.limit = limit
        self.used = 0
        self.observers = 0

    @property
    def share(self) -> int:
        """The bytes that may wait for one observer while there is too much for all."""
        return max(LEAST, self.limit // max(1, self.observers))

    def denies(self, used: int) -> bool:
        """Whether one who uses so much must do with less."""
        return self.used > self.limit and used > self.share
