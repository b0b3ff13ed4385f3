"""Prepared operations: operations that were read before the request to publish them comes.

A small batch of a bulk writer is one request, and reading it is half of its cost, while the writer's driver
waits.  The writer's tasks have the rows some time earlier.  So they send them to the daemon as soon as they
are done, and it reads them while the writer collects the results of its tasks.  When a request to publish the
same bytes comes, they are read already.  This is apart from staging, which stores what it is given on disk.

Always: prepared operations are not visible, grant no right and may be dropped at any moment, and then
publishing costs the usual time; their bytes are bounded, and the oldest are dropped first.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from server.spaces.packed import Operations

LIMIT_BYTES: Final = 2 << 20
"""Packed bytes whose operations a space keeps in memory, where they take some fifteen times that."""


@dataclass(frozen=True, slots=True)
class PreparedStatistics:
    """Pieces and their packed bytes that are kept now; how many were used, and how many were dropped
    unused."""

    pieces: int
    bytes: int
    used: int
    unused: int


class Prepared:
    """The operations that one space has read ahead, by the bytes from which they were read."""

    def __init__(self, limit: int = LIMIT_BYTES) -> None:
        self._limit = limit
        self._read: OrderedDict[bytes, Operations] = OrderedDict()
        self._bytes = self._used = self._unused = 0

    def keep(self, body: bytes, operations: Operations) -> None:
        """Keeps the operations of some packed bytes, as long as there is memory for it; O(bytes)."""
        if body not in self._read:
            self._read[body] = operations
            self._bytes += len(body)
        while self._bytes > self._limit:
            self._bytes -= len(self._read.popitem(last=False)[0])
            self._unused += 1

    def taken(self, body: bytes) -> Operations | None:
        """Returns the operations of these bytes and drops them; None if they are not kept.  O(bytes)."""
        operations = self._read.pop(body, None)
        if operations is not None:
            self._bytes -= len(body)
            self._used += 1
        return operations

    def statistics(self) -> PreparedStatistics:
        """Returns counts, in O(1)."""
        return PreparedStatistics(len(self._read), self._bytes, self._used, self._unused)
