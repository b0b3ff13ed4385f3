"""Tables of segments and of a header in SQLite, the mark beside their file, and the log of a space.

Compaction, backups and upgrades are of files, hence SQLite's alone: they hold a connection of their own in a
transaction, and write by the functions here.

Always: a write is one transaction, so a crash leaves all of it or nothing; the mark is read before the file,
which is never behind it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

from relay.store.errors import closed_on_failure
from relay.store.header import SEAL, refuse, seal_of, unsealed
from relay.store.ports import (
    KEY_BITS,
    AcknowledgedMark,
    ChainEnds,
    ChainHead,
    LogMoment,
    Names,
    Row,
    SnapshotMoment,
    Start,
)
from relay.store.sqlite.acknowledged import AcknowledgedFile
from relay.store.sqlite.storage import Schema, Storage, flush

HEADER_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS starts (first INTEGER PRIMARY KEY, before INTEGER NOT NULL);
"""

CHAIN_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS segments (
    segment INTEGER PRIMARY KEY,
    first INTEGER NOT NULL, last INTEGER NOT NULL, entries INTEGER NOT NULL, changes INTEGER NOT NULL,
    since INTEGER NOT NULL, until INTEGER NOT NULL, checksum BLOB NOT NULL, body BLOB NOT NULL
);
"""

LOG_TABLES: Final = f"""
{HEADER_SCHEMA}
{CHAIN_SCHEMA}
CREATE TABLE IF NOT EXISTS snapshots (
    snapshot INTEGER PRIMARY KEY, segment INTEGER NOT NULL, epoch INTEGER NOT NULL, time INTEGER NOT NULL,
    chunks INTEGER
);
CREATE TABLE IF NOT EXISTS chunks (
    snapshot INTEGER NOT NULL, chunk INTEGER NOT NULL, checksum BLOB NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (snapshot, chunk)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS readers (
    name TEXT PRIMARY KEY, epoch INTEGER NOT NULL, seen INTEGER NOT NULL
) WITHOUT ROWID;
"""

_SPAN: Final = "FROM segments WHERE segment > ? AND segment < ?"
_LAST: Final = "SELECT last FROM segments WHERE segment >= ? ORDER BY segment LIMIT 1"
_UNTIL: Final = "SELECT until FROM segments WHERE segment >= ? ORDER BY segment LIMIT 1"
_STARTS: Final = "SELECT first, before FROM starts ORDER BY first"
_NEWEST: Final = (
    "SELECT snapshot, segment, epoch, time, chunks FROM snapshots"
    " WHERE chunks IS NOT NULL ORDER BY snapshot DESC LIMIT 1"
)


# -- within a transaction of the caller --------------------------------------------------------------


def insert_segments(connection: sqlite3.Connection, segments: Iterable[Row]) -> None:
    """Writes segments that follow the newest ones of their chains."""
    connection.executemany("INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", segments)


def delete_segments(connection: sqlite3.Connection, ordinal: int) -> None:
    """Deletes the segments of a chain before an ordinal."""
    before = (ordinal - 1) >> KEY_BITS << KEY_BITS
    connection.execute(f"DELETE {_SPAN}", (before, ordinal))


def put_names(connection: sqlite3.Connection, names: Names) -> None:
    """Writes names of the header."""
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", names.items())


def put_header(connection: sqlite3.Connection, **named: object) -> None:
    """Writes names of the header and its new seal, as the last step of a transaction that changes starts."""
    put_names(connection, named)
    put_names(connection, {SEAL: seal_of(*_header(connection))})


def header_of(
    connection: sqlite3.Connection, path: Path, found: Callable[[str], None] = refuse
) -> dict[str, Any]:
    """Returns the header by name, as of the caller's transaction; O(starts).

    Damage is passed to ``found``; if that returns, the header is returned as it is.
    """
    return unsealed(*_header(connection), str(path), found)


def _header(connection: sqlite3.Connection) -> tuple[dict[str, Any], list[Start]]:
    return names_of(connection), connection.execute(_STARTS).fetchall()


def names_of(connection: sqlite3.Connection) -> dict[str, Any]:
    """Returns the header by name, as it lies there."""
    return dict(connection.execute("SELECT name, value FROM meta"))


@contextmanager
def moment_of(storage: Storage) -> Iterator[sqlite3.Connection]:
    """Lends a connection that reads one commit; a writer does not come between its questions."""
    with storage.reading() as connection:
        connection.execute("BEGIN")
        try:
            yield connection
        finally:
            connection.execute("COMMIT")


# -- tables ------------------------------------------------------------------------------------------


class SqliteChains:
    """The chains of one file, with the mark beside it."""

    may_wait = False

    def __init__(
        self, storage: Storage, mark: AcknowledgedMark | None = None, file: AcknowledgedFile | None = None
    ) -> None:
        """``file`` is the mark's, for tables that are written."""
        self.storage: Final = storage
        self.place: str = str(storage.path)
        self.mark: AcknowledgedMark = mark or AcknowledgedMark()
        self._file = file

    @classmethod
    def open(cls, path: Path, mark: Path, schema: Schema) -> Self:
        """Opens the tables of a file to write them, or makes both.

        Raises ``LogFailed`` if the disk refuses, ``LogDamaged`` for a file that is no database, or of another
        format.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        file = AcknowledgedFile(mark)
        with closed_on_failure(file):
            storage = Storage(path, schema)
            with closed_on_failure(storage):
                flush(path.parent)
                return cls(storage, file.mark, file)

    @classmethod
    def read(cls, path: Path, mark: Path) -> Self:
        """Opens the tables of a file to read them, changing nothing; ``LogFailed`` if there is none."""
        acknowledged = AcknowledgedFile.read(mark)  # before the file, which is ahead of it
        return cls(Storage(path), acknowledged)

    def write_mark(self, mark: AcknowledgedMark, *, sync: bool = False) -> None:
        if self._file is not None:
            self._file.write(mark, sync=sync)
            self.mark = mark

    def ends(self, key: int) -> ChainEnds | None:
        with self.storage.reading() as connection:
            return self._ends(connection, key)

    def _ends(self, connection: sqlite3.Connection, key: int) -> ChainEnds | None:
        span = (key << KEY_BITS, (key + 1) << KEY_BITS)
        oldest = connection.execute(f"SELECT segment {_SPAN} ORDER BY segment LIMIT 1", span).fetchall()
        question = f"SELECT segment, last, checksum {_SPAN} ORDER BY segment DESC LIMIT 1"
        return ChainEnds(oldest[0][0], *connection.execute(question, span).fetchone()) if oldest else None

    def fetch(self, ordinal: int, upto: int | None, most: int, size: int) -> Sequence[Row]:
        fetched: list[Row] = []
        end = ((ordinal >> KEY_BITS) + 1) << KEY_BITS
        with self.storage.reading() as connection:
            cursor = connection.execute(f"SELECT * {_SPAN} ORDER BY segment", (ordinal - 1, end))
            for row in cursor:
                fetched.append(row)
                first, body = row[1], row[8]
                size -= len(body) if body.__class__ is bytes else 0
                beyond = upto is not None and first.__class__ is int and first > upto
                if beyond or size <= 0 or len(fetched) >= most:
                    break
            cursor.close()
        return fetched

    def first_by_last(self, low: int, high: int, least: int) -> int:
        return self._first(_LAST, low, high, least)

    def first_by_until(self, low: int, high: int, least: int) -> int:
        return self._first(_UNTIL, low, high, least)

    def _first(self, question: str, low: int, high: int, least: int) -> int:
        if low >= high:
            return low
        with self.storage.reading() as connection:
            while low < high:
                middle = (low + high) // 2
                found = connection.execute(question, (middle,)).fetchall()
                if not found or found[0][0] >= least:
                    high = middle
                else:
                    low = middle + 1
        return low

    def checksum_of(self, ordinal: int) -> bytes | None:
        rows = self.storage.rows("SELECT checksum FROM segments WHERE segment = ?", ordinal)
        return rows[0][0] if rows else None

    def head_of(self, ordinal: int) -> ChainHead:
        question = "SELECT last, until, checksum FROM segments WHERE segment = ?"
        return ChainHead(*self.storage.rows(question, ordinal)[0])

    def bytes_between(self, first: int, beyond: int) -> int:
        question = f"SELECT ifnull(sum(length(body)), 0) {_SPAN}"
        return int(self.storage.rows(question, first - 1, beyond)[0][0])

    def changes_between(self, first: int, beyond: int) -> int:
        question = f"SELECT ifnull(sum(changes), 0) {_SPAN}"
        return int(self.storage.rows(question, first - 1, beyond)[0][0])

    def portion(self, first: int, beyond: int, limit: int) -> tuple[int, int]:
        size = 0
        with self.storage.reading() as connection:
            question = f"SELECT segment, length(body) {_SPAN} ORDER BY segment"
            for ordinal, each in connection.execute(question, (first - 1, beyond)):
                if size and size + each > limit:
                    return ordinal, size
                size += each
        return max(first, beyond), size

    def counts(self, key: int) -> tuple[int, int]:
        question = f"SELECT count(*), ifnull(sum(changes), 0) {_SPAN}"
        segments, changes = self.storage.rows(question, key << KEY_BITS, (key + 1) << KEY_BITS)[0]
        return segments, changes

    def size(self) -> int:
        return self.storage.size()

    def used(self) -> int:
        return self.storage.used()

    def close(self) -> None:
        try:
            self.storage.close()
        finally:
            self.abandon()

    def abandon(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class SqliteLog(SqliteChains):
    """The tables of a log."""

    def moment(self) -> LogMoment:
        with moment_of(self.storage) as connection:
            return LogMoment(*_header(connection), self._ends(connection, 0))

    def starts(self) -> list[Start]:
        return self.storage.rows(_STARTS)

    def append(self, segments: Sequence[Row], names: Names) -> None:
        with self.storage.transaction() as connection:
            insert_segments(connection, segments)
            if names:
                put_names(connection, names)

    def begin_start(self, first: int, before: int, names: Names) -> None:
        with self.storage.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO starts VALUES (?, ?)", (first, before))
            put_names(connection, names)

    def put_header(self, names: Names) -> None:
        with self.storage.transaction() as connection:
            put_names(connection, names)

    def drop_before(self, ordinal: int, oldest: int, names: Names) -> None:
        with self.storage.transaction() as connection:
            delete_segments(connection, ordinal)
            connection.execute("DELETE FROM starts WHERE first < ?", (oldest,))
            put_names(connection, names)

    # -- snapshots ------------------------------------------------------------------------------------

    @contextmanager
    def newest_snapshot(self) -> Iterator[SnapshotMoment]:
        with moment_of(self.storage) as connection:
            found = snapshot_of(connection)
            try:
                yield found
            finally:
                found.chunks.close()  # else a connection that is lent again may have half an answer

    def begin_snapshot(self, segment: int, epoch: int, time: int) -> int:
        with self.storage.transaction() as connection:
            question = "INSERT INTO snapshots (segment, epoch, time) VALUES (?, ?, ?)"
            return connection.execute(question, (segment, epoch, time)).lastrowid or 0

    def put_chunk(self, snapshot: int, chunk: int, checksum: bytes, body: bytes) -> None:
        with self.storage.transaction() as connection:
            connection.execute("INSERT INTO chunks VALUES (?, ?, ?, ?)", (snapshot, chunk, checksum, body))

    def complete_snapshot(self, snapshot: int, chunks: int, names: Names) -> None:
        with self.storage.transaction() as connection:
            connection.execute("UPDATE snapshots SET chunks = ? WHERE snapshot = ?", (chunks, snapshot))
            connection.execute("DELETE FROM chunks WHERE snapshot < ?", (snapshot,))
            connection.execute("DELETE FROM snapshots WHERE snapshot < ?", (snapshot,))
            put_names(connection, names)

    def drop_incomplete_snapshots(self) -> None:
        with self.storage.transaction() as connection:
            unfinished = "SELECT snapshot FROM snapshots WHERE chunks IS NULL"
            connection.execute(f"DELETE FROM chunks WHERE snapshot IN ({unfinished})")
            connection.execute("DELETE FROM snapshots WHERE chunks IS NULL")

    # -- named readers --------------------------------------------------------------------------------

    def readers(self) -> list[Row]:
        return self.storage.rows("SELECT name, epoch, seen FROM readers")

    def put_reader(self, name: str, epoch: int, seen: int) -> None:
        with self.storage.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO readers VALUES (?, ?, ?)", (name, epoch, seen))

    def delete_reader(self, name: str) -> None:
        with self.storage.transaction() as connection:
            connection.execute("DELETE FROM readers WHERE name = ?", (name,))


def snapshot_of(connection: sqlite3.Connection) -> SnapshotMoment:
    """Returns the newest complete snapshot as of the caller's transaction."""
    named = connection.execute("SELECT value FROM meta WHERE name = 'snapshot'").fetchone()
    row = connection.execute(_NEWEST).fetchone()
    return SnapshotMoment(named[0] if named else None, row, _chunks(connection, row[0] if row else 0))


def _chunks(connection: sqlite3.Connection, snapshot: int) -> Generator[tuple[Any, Any]]:
    question = "SELECT checksum, body FROM chunks WHERE snapshot = ? ORDER BY chunk"
    yield from connection.execute(question, (snapshot,))
