"""Compacting: the log once more, in a new file without the holes.

A log that was trimmed keeps the file's size and uses the room again; and each group of turns that was
committed alone has a segment of its own.  This writes the segments that are retained into a new file, as few
and as full as may be, with the newest snapshot, and puts it in the place of the old one.

It needs the log for itself, and room for the retained epochs.  The new segments are numbered on from the last
of the old ones: so whichever of the two files a crash leaves, the acknowledged mark of the other contradicts
nothing.

Always: the new log answers every question as the old one did; until the new file is whole and on disk, the
old one is untouched.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dataspace.codec import pack
from relay.log.chain import Chain, rows_of_segments
from relay.log.log import SCHEMA, Log
from relay.log.notes import Registers
from relay.log.reader import LogReader
from relay.log.retention import Retention
from relay.log.segments import FORMAT, SEGMENT_BYTES, Segment, joined
from relay.log.snapshots import head_of, newest_head
from relay.store.errors import LogFailed
from relay.store.header import unsealed
from relay.store.ports import AcknowledgedMark
from relay.store.private import make_anew
from relay.store.sqlite.acknowledged import AcknowledgedFile
from relay.store.sqlite.failures import translated
from relay.store.sqlite.storage import Storage, flush
from relay.store.sqlite.tables import SqliteLog, insert_segments, moment_of, put_header, snapshot_of

NEW: Final = "log.sqlite.new"


@dataclass(frozen=True, slots=True)
class Compacted:
    """Segments and bytes on disk, before and after."""

    segments_before: int
    segments: int
    bytes_before: int
    bytes: int


def compact(directory: Path, registers: Callable[[], Registers] = Registers) -> Compacted:
    """Rewrites the log in a directory, which no other process may have open; O(log).

    Raises ``LogDamaged`` if it is not whole, ``LogFailed`` if the disk refuses; then nothing has changed.
    """
    old, new = directory / LogReader.FILE, directory / NEW
    _remove(new)
    with translated("write", new):
        make_anew(new)
    Storage(old, SCHEMA).close()  # takes in the write-ahead log, and adds the tables of this version
    if old.with_name(f"{old.name}-wal").exists():
        raise LogFailed(f"{old} is open elsewhere")
    tables = SqliteLog.read(old, directory / LogReader.MARK)
    try:
        before = LogReader(tables, registers=registers).verify()
        mark = _write(tables, new)
    except BaseException:
        _remove(new)
        raise
    finally:
        tables.close()
    flush(new)
    _remove(old, but_itself=True)  # empty, but it would be taken for that of the new file
    os.replace(new, old)
    flush(directory)
    acknowledged = AcknowledgedFile(directory / LogReader.MARK)
    acknowledged.write(mark, sync=True)
    acknowledged.close()
    with closing(LogReader.open(directory, registers=registers)) as reader:
        after = reader.verify()
    return Compacted(before.segments, after.segments, before.bytes, after.bytes)


def _write(old: SqliteLog, path: Path) -> AcknowledgedMark:
    new = Storage(path, SCHEMA)
    try:
        return _copy(old, new)
    finally:
        new.close()


def trim(log: Log, retention: Retention) -> None:
    """Deletes what is past retention, after a snapshot, and closes the log."""
    try:
        log.recover(snapshot=True)
        while log.trim(retention, time.time_ns() // 1000).more:
            pass
    finally:
        log.close()


def _copy(old: SqliteLog, new: Storage) -> AcknowledgedMark:
    """Copies every retained part; returns the mark of the new log."""
    names, starts, _ = old.moment()
    meta = unsealed(names, starts, old.place)
    chain = Chain(old, meta["anchor"])
    head = newest_head(old)
    joining = SegmentJoiner(chain, head[1] if head else 0, meta.get("archived_segment", 0))
    first = min(chain.first_needed(meta["oldest"], joining.snapshot), chain.last)
    mark = AcknowledgedMark(0, chain.last, meta["reserved"], chain.checksum)
    if first > 0:
        for segment in joining.segments(first):
            with new.transaction() as connection:
                insert_segments(connection, rows_of_segments([segment]))
            mark = AcknowledgedMark(segment.last, segment.ordinal, meta["reserved"], segment.checksum)
    with new.transaction() as connection, moment_of(old.storage) as source:
        for table in ("starts", "readers"):
            rows = old.storage.rows(f"SELECT * FROM {table}")
            if rows:
                marks = ", ".join("?" * len(rows[0]))
                connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
        snapshot = _copy_snapshot(source, connection, joining.snapshot)
        put_header(
            connection, **meta | snapshot | joining.names() | {"anchor": chain.checksum, "format": FORMAT}
        )
    return mark


def _copy_snapshot(source: sqlite3.Connection, target: sqlite3.Connection, segment: int) -> dict[str, object]:
    """Copies the newest complete snapshot, which is after another segment there; returns its header."""
    found = snapshot_of(source)
    head = head_of(found)
    if head is None:
        return {}
    number, _, epoch, time, chunks = head
    row = (number, segment, epoch, time, chunks)
    target.execute("INSERT INTO snapshots VALUES (?, ?, ?, ?, ?)", row)
    rows = ((number, at, checksum, body) for at, (checksum, body) in enumerate(found.chunks))
    target.executemany("INSERT INTO chunks VALUES (?, ?, ?, ?)", rows)
    return {"snapshot": pack(row)}


class SegmentJoiner:
    """The segments of a log once more, as few and as full as may be, numbered on from the newest.

    No new one goes across the segment of the newest snapshot, after which recovery begins to read, nor across
    the newest archived one; ``snapshot`` and ``archived`` become the ordinals of both among the new ones.
    """

    def __init__(self, chain: Chain, snapshot: int, archived: int) -> None:
        self._chain = chain
        self._old = {snapshot, archived}
        self._has_archive = archived > 0
        self.snapshot, self.archived = snapshot, archived

    def segments(self, first: int) -> Iterator[Segment]:
        """Yields the new segments, which begin with the old one of an ordinal; once."""
        chain, group, size = self._chain, list[Segment](), 0
        end = chain.last, chain.checksum
        before = self.snapshot, self.archived
        self.snapshot, self.archived = chain.last, chain.last
        for segment in chain.walk(first):
            full = size + len(segment.body) > SEGMENT_BYTES or (group and group[-1].ordinal in self._old)
            if group and full:
                yield (joint := joined(group, end[0] + 1, end[1]))
                end = self._note(group, joint, before)
                group, size = [], 0
            group.append(segment)
            size += len(segment.body)
        if group:
            yield (joint := joined(group, end[0] + 1, end[1]))
            self._note(group, joint, before)

    def _note(self, group: list[Segment], made: Segment, before: tuple[int, int]) -> tuple[int, bytes]:
        snapshot, archived = before
        self.snapshot = made.ordinal if group[-1].ordinal <= snapshot else self.snapshot
        self.archived = made.ordinal if group[-1].ordinal <= archived else self.archived
        return made.ordinal, made.checksum

    def names(self) -> dict[str, object]:
        """Returns what changes in the header beside the snapshot."""
        return {"archived_segment": self.archived} if self._has_archive else {}


def _remove(path: Path, *, but_itself: bool = False) -> None:
    """Removes a file and what SQLite keeps beside it, or only the latter."""
    beside = [f"{path.name}-wal", f"{path.name}-shm"]
    for name in beside if but_itself else [path.name, *beside]:
        path.with_name(name).unlink(missing_ok=True)
