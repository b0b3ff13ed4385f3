"""The chain: the table of segments, each sealed to the one before.

It finds segments by epoch, hands them out in order, and checks the seal of each on the way, so that no
reader gets what was altered.  It is apart from the log, which knows what an epoch number is worth, what
was acknowledged and what to do about damage; the chain only knows what is there.

Always: a segment handed out is the one that was written, and follows the one handed out before; memory is
bounded by what a reader fetches at once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from relay.log.segments import CHECKSUM_BYTES, Segment
from relay.log.storage import LogDamaged, Storage

READ_BYTES: Final = 1 << 20
READ_SEGMENTS: Final = 256
"""What a reader fetches at once: segments up to so many, and up to about so many bytes."""

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS segments (
    segment INTEGER PRIMARY KEY,
    first INTEGER NOT NULL, last INTEGER NOT NULL, entries INTEGER NOT NULL, changes INTEGER NOT NULL,
    since INTEGER NOT NULL, until INTEGER NOT NULL, checksum BLOB NOT NULL, body BLOB NOT NULL
);
"""


def refuse(damage: str) -> None:
    """What is done about damage unless somebody knows better."""
    raise LogDamaged(damage)


class Chain:
    """The segments of one log.

    ``first`` and ``last`` are the ordinals of the oldest and the newest segment (``last`` is one less than
    ``first`` if there is none), ``epoch`` is the newest epoch, ``checksum`` seals the newest segment.
    ``anchor`` is the checksum of the segment before the oldest.
    """

    def __init__(self, storage: Storage, anchor: bytes = bytes(CHECKSUM_BYTES)) -> None:
        self._storage = storage
        self._anchor = anchor
        self.first, self.last, self.epoch, self.checksum = 1, 0, 0, anchor
        for self.first in _column(storage.rows("SELECT segment FROM segments ORDER BY segment LIMIT 1")):
            self.last, self.epoch, self.checksum = storage.rows(
                "SELECT segment, last, checksum FROM segments ORDER BY segment DESC LIMIT 1"
            )[0]

    # -- writing --------------------------------------------------------------------------------------

    def insert(self, connection: sqlite3.Connection, segments: Sequence[Segment]) -> None:
        """Writes segments that follow the newest one, within a transaction of the caller's."""
        rows = [tuple([getattr(segment, name) for name in Segment.__slots__]) for segment in segments]
        connection.executemany("INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def extended(self, newest: Segment) -> None:
        """Notes that the transaction is on disk."""
        self.last, self.epoch, self.checksum = newest.ordinal, newest.last, newest.checksum

    # -- reading --------------------------------------------------------------------------------------

    def walk(
        self,
        ordinal: int,
        upto: int | None = None,
        *,
        found: Callable[[str], None] = refuse,
        limit: int = READ_SEGMENTS,
    ) -> Iterator[Segment]:
        """The segments from an ordinal on that begin no later than epoch ``upto``.

        Damage goes to ``found`` as text; if that returns, the segment is passed over.  At most ``limit``
        are fetched at once.
        """
        previous = self.checksum_of(ordinal - 1)
        while fetched := self._fetch(ordinal, upto, limit):
            for segment in fetched:
                if segment.ordinal != ordinal:
                    found(f"{self._storage.path}: segment {ordinal}, before epoch {segment.first}, is gone")
                elif segment.sealed_by(previous):
                    yield segment
                else:
                    numbers = f"{segment.first} to {segment.last}"
                    found(f"{self._storage.path}: segment {ordinal} with epochs {numbers} was altered")
                ordinal, previous = segment.ordinal + 1, segment.checksum

    def backwards(self) -> Iterator[Segment]:
        """All segments, the newest first."""
        for ordinal in range(self.last, self.first - 1, -1):
            yield from islice(self.walk(ordinal, limit=1), 1)

    def beyond(self, epoch: int) -> int:
        """The ordinal of the first segment with an epoch later than this; O(log segments)."""
        low, high = self.first, self.last + 1
        while low < high:
            middle = (low + high) // 2
            found = _column(self._storage.rows(_LAST, middle))
            if not found or found[0] > epoch:
                high = middle
            else:
                low = middle + 1
        return low

    def checksum_of(self, ordinal: int) -> bytes:
        """The checksum of a segment; the anchor for one that is not there."""
        question = "SELECT checksum FROM segments WHERE segment = ?"
        found: list[bytes] = _column(self._storage.rows(question, ordinal))
        return found[0] if found else self._anchor

    def counts(self) -> tuple[int, int]:
        """How many segments and changes there are; O(segments)."""
        question = "SELECT count(*), ifnull(sum(changes), 0) FROM segments"
        segments, changes = self._storage.rows(question)[0]
        return segments, changes

    def _fetch(self, ordinal: int, upto: int | None, limit: int) -> list[Segment]:
        """Some segments from an ordinal on, as they are in the file, in one short transaction."""
        fetched: list[Segment] = []
        size = 0
        with self._storage.reading() as connection:
            cursor = connection.execute(
                "SELECT * FROM segments WHERE segment >= ? ORDER BY segment", (ordinal,)
            )
            for row in cursor:
                segment = Segment(*row)
                if upto is not None and segment.first > upto:
                    break
                fetched.append(segment)
                size += len(segment.body)
                if size >= READ_BYTES or len(fetched) >= limit:
                    break
            cursor.close()
        return fetched


_LAST: Final = "SELECT last FROM segments WHERE segment >= ? ORDER BY segment LIMIT 1"


def _column(rows: list[tuple[Any, ...]]) -> list[Any]:
    return [row[0] for row in rows]
