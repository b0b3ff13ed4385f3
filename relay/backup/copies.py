"""The two ends of a copy, and its pace: a log is read while another process may write it, and another grows.

A moment is one read transaction of SQLite or PostgreSQL: it reads one commit, however long it lasts.  It does
not hold up the writer, but SQLite's write-ahead log, and deleted rows of PostgreSQL, cannot be used again
before it ends.  So copies read what never changes, the segments, in many short moments, and only the rest in
one.

Always: a segment that is handed out is sealed to the one before it; nothing in the directory is changed.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from dataspace.codec import pack, unpack_own
from relay.log.chain import Chain, rows_of_segments
from relay.log.log import SCHEMA
from relay.log.reader import LogReader
from relay.log.segments import CHECKSUM_BYTES, EARLIER, FORMAT, Segment
from relay.log.snapshots import newest_head
from relay.store.errors import LogDamaged
from relay.store.header import check_format, unsealed
from relay.store.ports import AcknowledgedMark, LogTables, Start
from relay.store.sqlite.acknowledged import AcknowledgedFile
from relay.store.sqlite.failures import translated
from relay.store.sqlite.storage import Storage, flush
from relay.store.sqlite.tables import SqliteLog, header_of, insert_segments, moment_of, put_header

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


class Moment(Protocol):
    """A log as of one moment.

    ``first`` is the oldest segment that is needed, as ``Chain.first_needed`` says, also by the oldest
    snapshot.
    """

    meta: dict[str, Any]
    identity: str
    oldest: int
    reserved: int
    end: SourceEnd
    first: int

    def checksum_of(self, segment: int) -> bytes | None:
        """Returns the checksum of a segment, None if it is not there."""

    def anchor_of(self, segment: int) -> bytes:
        """Returns the checksum to which a segment is sealed."""

    def first_of(self, segment: int) -> int | None:
        """Returns the first epoch of a segment, None if it is not there."""

    def bytes_after(self, segment: int) -> int:
        """Returns the bytes of the segments after one; O(those)."""

    def segments(self, first: int, previous: bytes) -> Iterator[Segment]:
        """Yields the segments from one on, which is sealed to ``previous``; ``LogDamaged`` at an altered
        one.
        """

    def newest_snapshot(self) -> SourceSnapshot | None:
        """Returns the newest complete snapshot."""

    def chunks(self, snapshot: SourceSnapshot) -> Iterator[Row]:
        """Yields the chunks of a snapshot in order: its number, theirs, checksum and body."""

    def starts(self) -> list[Start]:
        """Returns the starts of the log."""

    def readers(self) -> list[Row]:
        """Returns the named readers."""


Moments: TypeAlias = Callable[[], AbstractContextManager[Moment]]
"""Lends a log as it is now, until the block ends."""


class FileMoment:
    """A log in a file, within one read transaction."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        """Raises ``LogDamaged`` for an altered header or another format."""
        self._connection = connection
        self._path = path
        self.meta = header_of(connection, path)
        check_format(str(path), self.meta, FORMAT, EARLIER)
        self.identity: str = self.meta.get("identity", "")
        self.oldest: int = self.meta.get("oldest", 1)
        self.reserved: int = self.meta.get("reserved", 0)
        rows = self.rows("SELECT segment, last, checksum, until FROM segments ORDER BY segment DESC LIMIT 1")
        anchor = self.meta.get("anchor", bytes(CHECKSUM_BYTES))
        self.end = SourceEnd(*rows[0]) if rows else SourceEnd(0, 0, anchor, 0)
        self.first = self._first_needed()

    def _first_needed(self) -> int:
        snapshot = self.rows("SELECT ifnull(min(segment), 0) FROM snapshots WHERE chunks IS NOT NULL")[0][0]
        question = "SELECT segment FROM segments WHERE last >= ? OR segment > ? ORDER BY segment LIMIT 1"
        rows = self.rows(question, self.oldest, snapshot)
        return rows[0][0] if rows else max(1, self.end.segment)

    def rows(self, question: str, *values: object) -> list[Row]:
        """Returns all rows of a short answer."""
        return self._connection.execute(question, values).fetchall()

    def checksum_of(self, segment: int) -> bytes | None:
        rows = self.rows("SELECT checksum FROM segments WHERE segment = ?", segment)
        return rows[0][0] if rows else None

    def anchor_of(self, segment: int) -> bytes:
        before = self.checksum_of(segment - 1)
        return self.meta.get("anchor", bytes(CHECKSUM_BYTES)) if before is None else before

    def first_of(self, segment: int) -> int | None:
        rows = self.rows("SELECT first FROM segments WHERE segment = ?", segment)
        return rows[0][0] if rows else None

    def bytes_after(self, segment: int) -> int:
        question = "SELECT ifnull(sum(length(body)), 0) FROM segments WHERE segment > ?"
        return int(self.rows(question, segment)[0][0])

    def segments(self, first: int, previous: bytes) -> Iterator[Segment]:
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

    def newest_snapshot(self) -> SourceSnapshot | None:
        return next(reversed(self.snapshots()), None)

    def chunks(self, snapshot: SourceSnapshot) -> Iterator[Row]:
        question = "SELECT * FROM chunks WHERE snapshot = ? ORDER BY chunk"
        yield from self._connection.execute(question, (snapshot.number,))

    def starts(self) -> list[Start]:
        return self.rows("SELECT first, before FROM starts")

    def readers(self) -> list[Row]:
        return self.rows("SELECT name, epoch, seen FROM readers")


class TablesMoment:
    """A log in tables whose answers are all of one moment."""

    def __init__(self, tables: LogTables) -> None:
        """Raises ``LogDamaged`` for an altered header or another format."""
        self._tables = tables
        names, self._starts, ends = tables.moment()
        check_format(tables.place, names, FORMAT, EARLIER)
        self.meta = unsealed(names, self._starts, tables.place)
        self.identity: str = self.meta.get("identity", "")
        self.oldest: int = self.meta.get("oldest", 1)
        self.reserved: int = self.meta.get("reserved", 0)
        self._chain = Chain(tables, self.meta.get("anchor", bytes(CHECKSUM_BYTES)))
        time = 0 if ends is None else self._chain.head_of(ends.newest).until
        self.end = SourceEnd(self._chain.last, self._chain.epoch, self._chain.checksum, time)
        head = newest_head(tables)
        self._snapshot = None if head is None else SourceSnapshot(*head)
        needed = self._chain.first_needed(self.oldest, 0 if head is None else head[1])
        self.first = min(needed, max(1, self.end.segment))

    def checksum_of(self, segment: int) -> bytes | None:
        return self._tables.checksum_of(segment)

    def anchor_of(self, segment: int) -> bytes:
        return self._chain.checksum_of(segment - 1)

    def first_of(self, segment: int) -> int | None:
        rows = self._tables.fetch(segment, None, 1, 1)
        return rows[0][1] if rows and rows[0][0] == segment else None

    def bytes_after(self, segment: int) -> int:
        return self._tables.bytes_between(segment + 1, self.end.segment + 1)

    def segments(self, first: int, previous: bytes) -> Iterator[Segment]:
        return self._chain.walk(first, seal=previous)

    def newest_snapshot(self) -> SourceSnapshot | None:
        return self._snapshot

    def chunks(self, snapshot: SourceSnapshot) -> Iterator[Row]:
        with self._tables.newest_snapshot() as found:
            for chunk, (checksum, body) in enumerate(found.chunks):
                yield snapshot.number, chunk, checksum, body

    def starts(self) -> list[Start]:
        return self._starts

    def readers(self) -> list[Row]:
        return self._tables.readers()


class LogSource:
    """The log in a directory, opened read-only; it may be written meanwhile by another process."""

    def __init__(self, directory: Path) -> None:
        """Raises ``LogFailed`` if there is none that can be read."""
        self._storage = Storage(directory / LogReader.FILE)

    @contextmanager
    def moment(self) -> Iterator[FileMoment]:
        """Lends the log as it is now, until the block ends."""
        with moment_of(self._storage) as connection:
            yield FileMoment(connection, self._storage.path)

    def close(self) -> None:
        """Closes the file."""
        self._storage.close()


class LogTarget:
    """A log file that is being copied to.

    Always: after each transaction ``log verify`` finds the copy whole, at some epoch between the earlier
    copy's and the source's; the header, the snapshot and the mark of the source come last.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._storage = Storage(path, SCHEMA)
        tables = SqliteLog(self._storage)
        newest_head(tables)  # an altered one might look like one in the making
        tables.drop_incomplete_snapshots()
        with moment_of(self._storage) as connection:
            self.meta = header_of(connection, path)
        rows = self._storage.rows(
            "SELECT segment, last, checksum FROM segments ORDER BY segment DESC LIMIT 1"
        )
        self.segment: int = rows[0][0] if rows else 0
        self.epoch: int = rows[0][1] if rows else 0
        self.checksum: bytes = rows[0][2] if rows else b""

    def extend(self, segments: Sequence[Segment], starts: Iterable[Row], **meta: Any) -> None:
        """Adds segments that follow the held segments, in one transaction."""
        with self._storage.transaction() as connection:
            insert_segments(connection, rows_of_segments(segments))
            connection.executemany("INSERT OR REPLACE INTO starts VALUES (?, ?)", starts)
            put_header(connection, **meta)
        self.meta |= meta
        if segments:
            newest = segments[-1]
            self.segment, self.epoch, self.checksum = newest.ordinal, newest.last, newest.checksum

    def held(self, snapshot: SourceSnapshot) -> SourceSnapshot | None:
        """Returns a snapshot as it is numbered here, if it is the newest one here."""
        packed = self.meta.get("snapshot")
        head: Any = packed and unpack_own(packed)
        found = SourceSnapshot(*head) if head else None
        return found if found is not None and found[1:] == snapshot[1:] else None

    def begin_snapshot(self, snapshot: SourceSnapshot) -> SourceSnapshot:
        """Begins a snapshot, which nothing reads before the header names it; returns it as numbered here.

        That is another number if it does not follow those here: a copied home numbers its snapshots anew.
        """
        with self._storage.transaction() as connection:
            newest = connection.execute("SELECT ifnull(max(snapshot), 0) FROM snapshots").fetchone()[0]
            here = snapshot._replace(number=max(snapshot.number, newest + 1))
            connection.execute("INSERT INTO snapshots VALUES (?, ?, ?, ?, ?)", (*here[:4], None))
        return here

    def add_chunks(self, rows: Sequence[Row]) -> None:
        """Adds chunks of the snapshot that was begun."""
        with self._storage.transaction() as connection:
            connection.executemany("INSERT INTO chunks VALUES (?, ?, ?, ?)", rows)

    def complete(
        self,
        snapshot: SourceSnapshot | None,
        *,
        first: int,
        kept: int,
        starts: Iterable[Row],
        readers: Iterable[Row],
        meta: dict[str, Any],
    ) -> None:
        """Makes this the log that ``meta`` is the header of, in one transaction.

        Deletes everything before the segment ``first``, and all snapshots but the ``kept`` newest; of these
        it deletes a snapshot whose next segment is gone.
        """
        with self._storage.transaction() as connection:
            connection.execute("DELETE FROM segments WHERE segment < ?", (first,))
            connection.execute("DELETE FROM starts")
            connection.executemany("INSERT INTO starts VALUES (?, ?)", starts)
            connection.execute("DELETE FROM readers")
            connection.executemany("INSERT INTO readers VALUES (?, ?, ?)", readers)
            if snapshot is not None:
                done = "UPDATE snapshots SET chunks = ? WHERE snapshot = ?"
                connection.execute(done, (snapshot.chunks, snapshot.number))
                _drop_snapshots(connection, first, kept)
                meta = meta | {"snapshot": pack(tuple(snapshot))}
            put_header(connection, **meta)
        self.meta |= meta

    def close(self) -> None:
        """Closes the file; it is then one file on disk, which a read-only medium may hold."""
        self._storage.close()
        settle(self.path)

    def abandon(self) -> None:
        """Closes the file, however it is."""
        self._storage.close()


def _drop_snapshots(connection: sqlite3.Connection, first: int, kept: int) -> None:
    newest = "SELECT snapshot FROM snapshots ORDER BY snapshot DESC LIMIT 1"
    useless = f"segment < {first - 1} AND snapshot <> ({newest})"
    spare = f"snapshot NOT IN (SELECT snapshot FROM snapshots ORDER BY snapshot DESC LIMIT {kept})"
    connection.execute(f"DELETE FROM snapshots WHERE {useless} OR {spare}")
    connection.execute("DELETE FROM chunks WHERE snapshot NOT IN (SELECT snapshot FROM snapshots)")


def settle(path: Path) -> None:
    """Takes in the write-ahead log of a SQLite file that no other process has open, and flushes it."""
    with translated("settle", path):
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode=DELETE")
    flush(path)


def replace(new: Path, old: Path) -> None:
    """Puts a settled file in the place of another one, if there is one."""
    if old.exists():
        settle(old)  # what it has in a write-ahead log must not be taken for the new file's
    with translated("replace", old):
        os.replace(new, old)
    flush(old.parent)


def put_mark(directory: Path, mark: AcknowledgedMark, name: str = LogReader.MARK) -> None:
    """Writes the acknowledged mark of a directory to the disk."""
    file = AcknowledgedFile(directory / name)
    try:
        file.write(mark, sync=True)
    finally:
        file.close()
    flush(directory)


SLICE: Final = 0.25
"""Seconds that one pause lasts at most, so that an interrupt is handled soon."""

MADE_UP: Final = 1.0
"""Seconds of slowness that may be made up for by a faster copy."""


class CopyPace:
    """Counts the bytes that were copied, and waits where that is faster than ``rate`` bytes in a second.

    Always: without a rate nothing waits; every copied byte is reported, however the copy is paced.
    """

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
