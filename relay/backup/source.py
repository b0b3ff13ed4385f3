"""The source of a copy: one log, seen as it was at one moment, while another process may write it.

A moment is one read transaction of SQLite: it reads one commit, however long it lasts.  It does not hold up
the writer, but the write-ahead log cannot be used again before it ends.  So copies read what never changes,
the segments, in many short moments, and only the rest in one.

Always: a segment that is handed out is sealed to the one before it; nothing in the directory is changed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from relay.log.chain import meta_of
from relay.log.reader import LogReader
from relay.log.segments import CHECKSUM_BYTES, FORMAT, Segment
from relay.store.errors import LogDamaged
from relay.store.storage import Storage, check_format

Row = tuple[Any, ...]


class SourceEnd(NamedTuple):
    """The newest segment, the newest epoch, the segment's checksum, and the time of the epoch in
    microseconds.
    """

    segment: int
    epoch: int
    checksum: bytes
    time: int


class SourceSnapshot(NamedTuple):
    """Number, segment, epoch, time and chunks of a complete snapshot."""

    number: int
    segment: int
    epoch: int
    time: int
    chunks: int


class Moment:
    """A log within one read transaction."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        """Raises ``LogDamaged`` for an altered header or another format."""
        self._connection = connection
        self._path = path
        self.meta: Final = meta_of(connection, path)
        check_format(path, self.meta, FORMAT)
        self.identity: Final[str] = self.meta.get("identity", "")
        self.oldest: Final[int] = self.meta.get("oldest", 1)
        self.reserved: Final[int] = self.meta.get("reserved", 0)
        rows = self.rows("SELECT segment, last, checksum, until FROM segments ORDER BY segment DESC LIMIT 1")
        anchor = self.meta.get("anchor", bytes(CHECKSUM_BYTES))
        self.end: Final = SourceEnd(*rows[0]) if rows else SourceEnd(0, 0, anchor, 0)
        self.first: Final = self._first_needed()
        """The oldest segment that is needed, as ``Chain.first_needed`` says, also by the oldest snapshot."""

    def _first_needed(self) -> int:
        snapshot = self.rows("SELECT ifnull(min(segment), 0) FROM snapshots WHERE chunks IS NOT NULL")[0][0]
        question = "SELECT segment FROM segments WHERE last >= ? OR segment > ? ORDER BY segment LIMIT 1"
        rows = self.rows(question, self.oldest, snapshot)
        return rows[0][0] if rows else max(1, self.end.segment)

    def rows(self, question: str, *values: object) -> list[Row]:
        """Returns all rows of a short answer."""
        return self._connection.execute(question, values).fetchall()

    def checksum_of(self, segment: int) -> bytes | None:
        """Returns the checksum of a segment, None if it is not there."""
        rows = self.rows("SELECT checksum FROM segments WHERE segment = ?", segment)
        return rows[0][0] if rows else None

    def anchor_of(self, segment: int) -> bytes:
        """Returns the checksum to which a segment is sealed."""
        before = self.checksum_of(segment - 1)
        return self.meta.get("anchor", bytes(CHECKSUM_BYTES)) if before is None else before

    def bytes_after(self, segment: int) -> int:
        """Returns the bytes of the segments after one; O(those)."""
        question = "SELECT ifnull(sum(length(body)), 0) FROM segments WHERE segment > ?"
        return int(self.rows(question, segment)[0][0])

    def segments(self, first: int, previous: bytes) -> Iterator[Segment]:
        """Yields the segments from one on, which is sealed to ``previous``; ``LogDamaged`` at an altered
        one.
        """
        question = "SELECT * FROM segments WHERE segment >= ? ORDER BY segment"
        for row in self._connection.execute(question, (first,)):
            segment = Segment(*row)
            if segment.ordinal != first:
                raise LogDamaged(f"{self._path}: segment {first}, before epoch {segment.first}, is gone")
            if not segment.sealed_by(previous):
                numbers = f"{segment.first} to {segment.last}"
                raise LogDamaged(f"{self._path}: segment {first} with epochs {numbers} was altered")
            first, previous = first + 1, segment.checksum
            yield segment

    def snapshots(self) -> list[SourceSnapshot]:
        """Returns the complete snapshots, the oldest first: a log has one, a backup may have several."""
        question = (
            "SELECT snapshot, segment, epoch, time, chunks FROM snapshots"
            " WHERE chunks IS NOT NULL ORDER BY snapshot"
        )
        return [SourceSnapshot(*row) for row in self.rows(question)]

    def chunks(self, snapshot: SourceSnapshot) -> Iterator[Row]:
        """Yields the rows of a snapshot's chunks, in order."""
        question = "SELECT * FROM chunks WHERE snapshot = ? ORDER BY chunk"
        yield from self._connection.execute(question, (snapshot.number,))


class LogSource:
    """The log in a directory, opened read-only; it may be written meanwhile by another process."""

    def __init__(self, directory: Path) -> None:
        """Raises ``LogFailed`` if there is none that can be read."""
        self._storage = Storage(directory / LogReader.FILE)

    @contextmanager
    def moment(self) -> Iterator[Moment]:
        """Returns the log as it is now, until the block ends."""
        with self._storage.reading() as connection:
            connection.execute("BEGIN")
            try:
                yield Moment(connection, self._storage.path)
            finally:
                connection.execute("ROLLBACK")

    def close(self) -> None:
        """Closes the file."""
        self._storage.close()


def identity_of(directory: Path) -> str:
    """Returns the identity of the log in a directory."""
    with closing(LogSource(directory)) as log, log.moment() as now:
        return now.identity
