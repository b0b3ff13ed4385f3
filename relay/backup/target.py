"""The target of a copy: a log that grows by segments, and is whole after every transaction.

Always: after each transaction ``log verify`` finds the copy whole, at some epoch between the earlier copy's
and the source's; the header, the snapshot and the mark of the source come last.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from dataspace.codec import pack
from relay.backup.source import Row, SourceSnapshot
from relay.log.chain import put_meta, read_meta
from relay.log.log import SCHEMA
from relay.log.reader import LogReader
from relay.log.segments import Segment
from relay.log.snapshots import drop_incomplete
from relay.store.acknowledged import AcknowledgedFile, AcknowledgedMark
from relay.store.errors import translated
from relay.store.storage import Storage, flush

_COLUMNS: Final = tuple([each.name for each in fields(Segment)])


class LogTarget:
    """A log file that is being copied to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._storage = Storage(path, SCHEMA)
        drop_incomplete(self._storage)
        self.meta = read_meta(self._storage)
        rows = self._storage.rows(
            "SELECT segment, last, checksum FROM segments ORDER BY segment DESC LIMIT 1"
        )
        self.segment: int = rows[0][0] if rows else 0
        self.epoch: int = rows[0][1] if rows else 0
        self.checksum: bytes = rows[0][2] if rows else b""

    def extend(self, segments: Sequence[Segment], starts: Iterable[Row], **meta: Any) -> None:
        """Adds segments that follow the held segments, in one transaction."""
        rows = [tuple([getattr(segment, name) for name in _COLUMNS]) for segment in segments]
        with self._storage.transaction() as connection:
            connection.executemany("INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
            connection.executemany("INSERT OR REPLACE INTO starts VALUES (?, ?)", starts)
            put_meta(connection, **meta)
        self.meta |= meta
        if segments:
            newest = segments[-1]
            self.segment, self.epoch, self.checksum = newest.ordinal, newest.last, newest.checksum

    def holds(self, snapshot: SourceSnapshot) -> bool:
        """True if this snapshot is the newest one here."""
        return bool(self.meta.get("snapshot") == pack(tuple(snapshot)))

    def begin_snapshot(self, snapshot: SourceSnapshot) -> None:
        """Begins a snapshot, which nothing reads before the header names it."""
        with self._storage.transaction() as connection:
            row = (*snapshot[:4], None)
            connection.execute("INSERT INTO snapshots VALUES (?, ?, ?, ?, ?)", row)

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
            put_meta(connection, **meta)
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
