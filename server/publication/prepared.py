"""Prepared: operations that were read before they come to be published.

A small batch of a bulk writer is one request, and reading it is half of what that takes, while the writer's
driver waits.  Its tasks have had the rows for some time by then.  So they show them to the daemon as soon as
they are through, and it reads them while the writer gathers its tasks.  When the same bytes come to be
published, they are read already.  Apart from staging, which keeps what it was given: this keeps nothing.

Always: what is prepared is not seen, permits nothing and may be gone at any moment, and then publishing costs
what it would without; its bytes are bounded, and the oldest go first.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from server.publication.packed import Operations

LIMIT_BYTES: Final = 2 << 20
"""Packed bytes that a space keeps read; what was read of them takes some fifteen times that."""


@dataclass(frozen=True, slots=True)
class PreparedStatistics:
    """Pieces and their packed bytes that are there now; how many were used, and how many went unused."""

    pieces: int
    bytes: int
    used: int
    unused: int


class Prepared:
    """What one space has read ahead, by the bytes it was read from."""

    def __init__(self, limit: int = LIMIT_BYTES) -> None:
        self._limit = limit
        self._read: OrderedDict[bytes, Operations] = OrderedDict()
        self._bytes = self._used = self._unused = 0

    def keep(self, body: bytes, operations: Operations) -> None:
        """Keeps what some packed operations mean, for as long as there is room; O(bytes)."""
        if body not in self._read:
            self._read[body] = operations
            self._bytes += len(body)
        while self._bytes > self._limit:
            self._bytes -= len(self._read.popitem(last=False)[0])
            self._unused += 1

    def taken(self, body: bytes) -> Operations | None:
        """What these bytes mean, if it is known; it is not kept any longer.  O(bytes)."""
        operations = self._read.pop(body, None)
        if operations is not None:
            self._bytes -= len(body)
            self._used += 1
        return operations

    def statistics(self) -> PreparedStatistics:
        """Counts, in O(1)."""
        return PreparedStatistics(len(self._read), self._bytes, self._used, self._unused)
