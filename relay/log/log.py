"""The log: every epoch of one space, in order, on disk.

One SQLite file holds the segments (each what one group commit wrote), snapshots of the state, and what the
log knows of itself.  LOG.md describes it byte by byte and says what a crash, a power failure and a flipped
bit can do to it.  The log is apart from the task that feeds it (``commits``) so that it can be opened,
verified and read without an event loop; all its calls block.

Always: an epoch that ``append`` returned from is on disk; epochs come back in order, whole and unaltered or
with ``LogDamaged``; a number that was given out is never given out again, whatever was lost.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dataspace.epochs import Epoch
from dataspace.errors import Refused
from dataspace.wire.codec import pack
from index.values import Value
from relay.log.acknowledged import AcknowledgedFile, Mark
from relay.log.chain import SCHEMA as CHAIN_SCHEMA
from relay.log.chain import Chain
from relay.log.cursors import Cursors
from relay.log.segments import CHECKSUM_BYTES, FORMAT, Encoded, Segment, cut
from relay.log.snapshots import SCHEMA as SNAPSHOT_SCHEMA
from relay.log.snapshots import RecoveredState, SnapshotWriter, drop_incomplete, newest, newest_epoch
from relay.log.storage import LogDamaged, LogFailed, Storage

__all__ = ["Log", "LogStatistics"]

logger = logging.getLogger("dataspace")

BLOCK: Final = 65_536
"""Epoch numbers that are reserved at once."""

SNAPSHOT_CHANGES: Final = 500_000
"""Changes after which a new snapshot of the state is due."""

SCHEMA: Final = f"""
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS starts (first INTEGER PRIMARY KEY, before INTEGER NOT NULL);
{CHAIN_SCHEMA}
{SNAPSHOT_SCHEMA}
"""


@dataclass(frozen=True, slots=True)
class LogStatistics:
    """What a log holds: epoch numbers, counts of segments and of changes, bytes on disk."""

    oldest: int
    last: int
    reserved: int
    segments: int
    changes: int
    snapshot_epoch: int
    bytes: int


class Log:
    """The log of one space.  One thread at a time appends; any number of threads read meanwhile."""

    def __init__(self, directory: Path, *, accept_damage: bool = False) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / "log.sqlite"
        self._accept_damage = accept_damage
        self._mark = AcknowledgedFile(directory / "acknowledged")
        self._writing = threading.Lock()
        missing = not path.exists()
        self._storage = Storage(path, SCHEMA)
        _sync_directory(directory)
        self.clients: dict[str, tuple[int, int]] = {}
        self.cursors: Final = Cursors()
        self._load()
        self._check_mark(missing)
        self._begin()

    @classmethod
    def open(cls, directory: Path, *, accept_damage: bool = False) -> Log:
        """Opens the log in a directory, or makes a new one.

        Raises ``LogDamaged`` if it holds less than was acknowledged; with ``accept_damage`` it goes on
        without, and what is before the damage can no longer be read.  Raises ``LogFailed`` if the disk does.
        """
        return cls(directory, accept_damage=accept_damage)

    # -- opening --------------------------------------------------------------------------------------

    def _load(self) -> None:
        meta = dict(self._storage.rows("SELECT name, value FROM meta"))
        if meta and meta.get("format") != FORMAT:
            raise LogDamaged(
                f"{self._storage.path} has format {meta.get('format')}, this program reads {FORMAT}"
            )
        self.identity: str = meta.get("identity") or uuid.uuid4().hex
        self.oldest: int = meta.get("oldest", 1)
        self._anchor: bytes = meta.get("anchor", bytes(CHECKSUM_BYTES))
        self.reserved: int = meta.get("reserved", 0)
        self.clean: bool = bool(meta.get("clean", 1))
        self._chain: Chain = Chain(self._storage, self._anchor)

    def _check_mark(self, missing: bool) -> None:
        """Compares the log with what was acknowledged."""
        mark = self._mark.mark
        shortfall = ""
        if mark.segment > self._chain.last:
            held = "the file log.sqlite is gone" if missing else f"its last is {self.last}"
            shortfall = f"epochs up to {mark.epoch} were acknowledged, but {held}"
        elif mark.segment >= self._chain.first and self._chain.checksum_of(mark.segment) != mark.checksum:
            shortfall = f"the segment of the acknowledged epoch {mark.epoch} is not the one that was written"
        if shortfall:
            self._face(f"{self._storage.path}: {shortfall}")
            self.oldest = max(self.reserved, mark.reserved, self.last) + 1

    def _face(self, damage: str) -> None:
        """Stops at a damage, unless the operator has said that it is known."""
        if not self._accept_damage:
            raise LogDamaged(f"{damage}; accept the damage to go on without what is missing")
        logger.warning("%s; going on without, as told", damage)

    def _begin(self) -> None:
        """Numbers go on above everything that may have been given out; the first block is reserved."""
        self.next_epoch: int = max(self.reserved, self._mark.mark.reserved, self.last) + 1
        self.issued = self.next_epoch - 1
        drop_incomplete(self._storage)
        reserved = self.issued + BLOCK
        with self._storage.transaction() as connection:
            for name, value in (
                ("format", FORMAT),
                ("identity", self.identity),
                ("oldest", self.oldest),
                ("anchor", self._anchor),
                ("reserved", reserved),
                ("clean", 0),
            ):
                _put(connection, name, value)
            connection.execute("INSERT OR REPLACE INTO starts VALUES (?, ?)", (self.next_epoch, self.last))
        self._noted(reserved, sync=True)

    def _noted(self, reserved: int, *, sync: bool = False) -> None:
        """A transaction is on disk: the mark follows, and only then what depends on it."""
        self._mark.write(Mark(self.last, self._chain.last, reserved, self._chain.checksum), sync=sync)
        self.reserved = reserved

    # -- writing --------------------------------------------------------------------------------------

    def append(self, entries: Sequence[Encoded]) -> None:
        """Writes entries, in ascending order and after all before, in one transaction; O(bytes).

        They are on disk when it returns.  Raises ``LogFailed``, and then none of them is.
        """
        with self._writing:
            segments = list(cut(entries, self._chain.last + 1, self._chain.checksum))
            if not segments:
                return
            self.issued = max(self.issued, segments[-1].last)
            renewed = self.reserved - self.issued < BLOCK // 2
            reserved = self.issued + BLOCK if renewed else self.reserved
            with self._storage.transaction() as connection:
                self._chain.insert(connection, segments)
                if renewed:
                    _put(connection, "reserved", reserved)
            self._chain.extended(segments[-1])
            self._noted(reserved)

    def issue(self, number: int) -> None:
        """Notes that an epoch got this number.  O(1), but for a write when the reservation is exhausted."""
        self.issued = number
        if number > self.reserved:
            self.reserve()

    def reserve(self) -> None:
        """Reserves a block of epoch numbers beyond those given out; one small write."""
        with self._writing:
            reserved = self.issued + BLOCK
            with self._storage.transaction() as connection:
                _put(connection, "reserved", reserved)
            self._noted(reserved, sync=True)

    def close(self) -> None:
        """Closes the log and gives back the numbers that were not used."""
        issued = max(self.issued, self.last)
        try:
            with self._storage.transaction() as connection:
                _put(connection, "reserved", issued)
                _put(connection, "clean", 1)
            self._noted(issued, sync=True)
            self._storage.close()
        except LogFailed as failure:
            logger.warning("%s; what was acknowledged is there, as after a crash", failure)
        finally:
            self._mark.close()

    # -- state ----------------------------------------------------------------------------------------

    def recover(self) -> RecoveredState:
        """The state after the last epoch: the newest snapshot and what came later; O(state + later changes).

        Writes a new snapshot if much came later.  Raises ``LogDamaged`` unless damage is accepted.
        """
        state, rolled = self._roll_forward()
        state.oldest = self.oldest
        state.epoch = max(state.epoch, self.oldest - 1)
        self.clients = dict(state.clients)
        if rolled >= SNAPSHOT_CHANGES or self._accept_damage:
            writer = self.snapshot(state)
            while writer.step():
                pass
        return state

    def _roll_forward(self) -> tuple[RecoveredState, int]:
        try:
            state = newest(self._storage) or RecoveredState()
        except LogDamaged as damage:
            self._face_altered(str(damage))
            state = RecoveredState()
        start = max(state.segment + 1, self._chain.first)
        rolled = 0
        for segment in self._chain.walk(start, found=self._face_altered):
            for epoch in segment.epochs():
                state.apply(epoch, strict=not self._accept_damage)
            rolled += segment.changes + segment.entries
        state.segment = self._chain.last
        return state, rolled

    def _face_altered(self, damage: str) -> None:
        """An altered segment stands in the way of the state: if that is accepted, history begins anew."""
        self._face(damage)
        self.oldest = self.next_epoch
        with self._storage.transaction() as connection:
            _put(connection, "oldest", self.oldest)

    def snapshot(self, state: RecoveredState) -> SnapshotWriter:
        """Begins a snapshot of a state, which must be that after its ``segment``."""
        return SnapshotWriter(self._storage, state)

    @property
    def last(self) -> int:
        """The newest epoch on disk."""
        return self._chain.epoch

    @property
    def last_segment(self) -> int:
        """The ordinal of the newest segment."""
        return self._chain.last

    def snapshot_epoch(self) -> int | None:
        """The epoch of the newest complete snapshot, or None."""
        return newest_epoch(self._storage)

    def snapshot_facts(self) -> tuple[int, list[Value]]:
        """The epoch of the newest snapshot and the facts that held after it; O(state)."""
        state = newest(self._storage) or RecoveredState()
        return state.epoch, state.facts()

    def lost(self, epoch: int) -> bool:
        """Whether an epoch of this number may have been observed before a crash and never came to disk."""
        return bool(self._storage.rows("SELECT 1 FROM starts WHERE before < ? AND ? < first", epoch, epoch))

    def gaps(self, after: int) -> list[tuple[int, int]]:
        """Where numbers beyond ``after`` were skipped by a crash: pairs of the epochs before and behind."""
        query = "SELECT before, first FROM starts WHERE first > ? AND first > before + 1 ORDER BY first"
        return [(before, first) for before, first in self._storage.rows(query, after)]

    # -- reading --------------------------------------------------------------------------------------

    def read(self, after: int, upto: int | None = None) -> Iterator[Epoch]:
        """The entries in (after, upto], silent ones included, in order; holds about a mebibyte at a time.

        Raises ``Refused("epoch-gone")`` if they are not all retained, ``LogDamaged`` at an altered one.
        """
        end = self.last if upto is None else upto
        for segment in self.segments(after, end):
            for epoch in segment.epochs():
                if after < epoch.number <= end:
                    yield epoch

    def segments(self, after: int, upto: int) -> Iterator[Segment]:
        """The segments that hold the epochs in (after, upto], and more at both ends.  Raises as ``read``."""
        self.check_retained(after)
        return self._chain.walk(self._chain.beyond(after), upto)

    def within(self, after: int, upto: int, changes: int) -> int:
        """The last epoch of (after, upto] that ends no later than so many changes after ``after``.

        At least one epoch that changes something, however large it is.  O(changes).  Raises as ``read``.
        """
        last, seen = after, 0
        for segment in self.segments(after, upto):
            for number, _, counts, _, _ in segment.rows_after(after, upto):
                if seen and seen + sum(counts) > changes:
                    return last
                last, seen = number, seen + sum(counts)
        return upto

    def check_retained(self, after: int) -> None:
        """Refuses to read from an epoch whose successors are not all there."""
        if after < self.oldest - 1:
            raise Refused("epoch-gone", f"epochs after {after} are wanted, the oldest held is {self.oldest}")

    def find_turn(self, client: str, sequence: int) -> int | None:
        """The epoch of a client's turn, or None; newest segments first, most of them unread.  O(log)."""
        needle = pack(client)
        for segment in self._chain.backwards():
            for epoch in segment.epochs() if needle in segment.body else ():
                if epoch.client == client and epoch.sequence == sequence:
                    return epoch.number
        return None

    def time_of(self, epoch: int) -> int:
        """The time of an epoch, or of the newest before it; 0 before all.  O(log segments)."""
        self.check_retained(epoch)
        time = 0
        for segment in self._chain.walk(
            max(self._chain.beyond(epoch) - 1, self._chain.first), epoch, limit=2
        ):
            for entry in segment.epochs():
                if entry.number <= epoch:
                    time = entry.time
        return time

    def distance(self, one: int, other: int) -> int:
        """How many segments lie between two epochs."""
        return abs(self._chain.beyond(one) - self._chain.beyond(other))

    def verify(self) -> LogStatistics:
        """Reads all that is retained and checks every checksum; ``LogDamaged`` at the first that fails."""
        for segment in self.segments(self.oldest - 1, self.last):
            for _ in segment.epochs():
                pass
        newest(self._storage)
        return self.statistics()

    def statistics(self) -> LogStatistics:
        """Counts, in O(segments)."""
        return LogStatistics(
            self.oldest,
            self.last,
            self.reserved,
            *self._chain.counts(),
            self.snapshot_epoch() or 0,
            self._storage.size(),
        )


def _put(connection: sqlite3.Connection, name: str, value: object) -> None:
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))


def _sync_directory(directory: Path) -> None:
    """Makes sure that the names of new files survive a power failure."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
