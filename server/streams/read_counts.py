"""Read statistics: rows and bytes that bulk readers were sent, which show what a query costs.

Each connection that reads by the column has one fact in the space ``system``, with totals that grow as its
reads end, and each read is a line in the log of the daemon.

Always: the fact is there from the end of the first read until the connection ends.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import trio

from index.patterns.text import unparse_pattern
from index.values.values import Record
from server.sessions.peer import Peer
from server.streams.request import StreamRequest
from server.system import SystemSpace

if TYPE_CHECKING:
    from relay.log.columns import ColumnBlock

logger: Final = logging.getLogger("dataspace")


@dataclass(slots=True)
class Read:
    """One read: its rows and their bytes so far, and when it began."""

    began: float
    rows: int = 0
    bytes: int = 0

    def sent(self, block: ColumnBlock) -> None:
        """Notes one more block made for the reader."""
        self.rows += len(block)
        self.bytes += len(block.packed)


class ReadCounts:
    """The reads of one connection."""

    def __init__(self, peer: Peer, system: SystemSpace) -> None:
        self._peer = peer
        self._system = system
        self._totals = [0, 0, 0, 0.0]
        self._fact: Record | None = None

    def begun(self) -> Read:
        """Returns a read that begins now."""
        return Read(trio.current_time())

    def ended(self, read: Read, request: StreamRequest) -> None:
        """Counts a read that has ended; its last block or two may still wait in the stream."""
        seconds = trio.current_time() - read.began
        peer, session = self._peer, self._peer.own.number
        self._totals = [a + b for a, b in zip(self._totals, (1, read.rows, read.bytes, seconds), strict=True)]
        reads, rows, size, spent = self._totals
        fact = Record("read", session, peer.name, peer.home.name, reads, rows, size, round(spent * 1000))
        self._say(fact)
        logger.info(
            "session %d read %d rows, %d bytes, up to epoch %s of %s in %.3f s",
            session,
            read.rows,
            read.bytes,
            request.upto,
            unparse_pattern(request.pattern),
            seconds,
        )

    def end(self) -> None:
        """Retracts the fact, since the connection has ended."""
        self._say(None)

    def _say(self, fact: Record | None) -> None:
        before, self._fact = self._fact, fact
        facts = [[each] if each is not None else [] for each in (fact, before)]
        self._system.state(*facts)
