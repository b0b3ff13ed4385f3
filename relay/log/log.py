"""The log: every epoch of one space, in order, on disk.

One SQLite file holds the segments (each what one group commit wrote), snapshots of the state, and the
log's header.  LOG.md describes it byte by byte and says what a crash, a power failure and a flipped
bit can do to it.  The log is apart from the task that feeds it (``writer``) so that it can be opened,
verified and read without an event loop; all its calls block.

Always: an epoch that ``append`` returned from is on disk; epochs come back in order, whole and unaltered or
with ``LogDamaged``; a number that was given out is never given out again, whatever was lost.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, Self

from dataspace.faults import reach
from relay.log.chain import rows_of_segments
from relay.log.notes import Registers
from relay.log.reader import LogReader
from relay.log.retention import Readers, Retention, Trimmed
from relay.log.segments import EARLIER, FORMAT, Encoded, cut
from relay.log.snapshots import Past, RecoveredState, SnapshotWriter, newest, newest_head
from relay.store.errors import LogDamaged, LogFailed, closed_on_failure
from relay.store.ports import AcknowledgedMark, LogTables, Start
from relay.store.sqlite.storage import Schema
from relay.store.sqlite.tables import LOG_TABLES, SqliteLog

__all__ = ["Log"]

logger = logging.getLogger("dataspace")

BLOCK: Final = 65_536
"""Epoch numbers that are reserved at once."""

SNAPSHOT_CHANGES: Final = 500_000
"""Changes after which a new snapshot of the state is due."""

SCHEMA: Final = Schema(LOG_TABLES, FORMAT, EARLIER)

TRIM_BYTES: Final = 16 << 20
"""Bytes dropped in one transaction, so that turns do not wait for it."""


class Log(LogReader):
    """The log of one space.  One thread at a time appends; any number of threads read meanwhile."""

    def __init__(
        self,
        tables: LogTables,
        *,
        accept_damage: bool = False,
        term: int = 0,
        registers: Callable[[], Registers] = Registers,
    ) -> None:
        """Raises as ``open``, and leaves the tables open then.

        Its term is the given one where that is higher than all before, else the next.
        """
        self._accept_damage = accept_damage
        self._writing = threading.Lock()
        self._is_closed = False
        self._is_archive_known = False
        self.clients: dict[str, tuple[int, int]] = {}
        self.registers = registers()
        """What notes have built up, as of the newest entry that was submitted."""
        self._past: Past | None = None
        self._has_past = False  # whether the newest snapshot has been asked
        self.past_epoch: int | None = None
        """The epoch after which the newest snapshot says since when rows of rules had been there, if any."""
        super().__init__(tables, self._face, registers=registers)
        self.readers: Final = Readers(tables)
        self._check_mark()
        self.term = max(self.term + 1, term)
        self._begin()

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        accept_damage: bool = False,
        registers: Callable[[], Registers] = Registers,
    ) -> Self:
        """Opens the log in a directory, or makes a new one.

        Without ``registers`` for all that its notes build up, it writes no snapshot and deletes nothing.
        Raises ``LogDamaged`` if it holds less than its acknowledged mark says; with ``accept_damage`` it goes
        on with the rest, and epochs before the damage can no longer be read.  Raises ``LogFailed`` if the
        disk does.
        """
        tables = SqliteLog.open(directory / cls.FILE, directory / cls.MARK, SCHEMA)
        with closed_on_failure(tables):
            return cls(tables, accept_damage=accept_damage, registers=registers)

    # -- opening --------------------------------------------------------------------------------------

    def _check_mark(self) -> None:
        """Compares the log with its acknowledged mark."""
        shortfall = self.shortfall()
        if shortfall:
            gone = "" if self.identity else " (all of it is gone)"
            self._face(f"{self._tables.place}: {shortfall}{gone}")
            self.held_from = max(self.reserved, self._tables.mark.reserved, self.last) + 1

    def _begin(self) -> None:
        """Continues numbers above every number that may have been issued, and reserves the first block.

        A log of an earlier format becomes one of today's in the same write.
        """
        self.next_epoch: int = max(self.reserved, self._tables.mark.reserved, self.last) + 1
        self.issued = self.next_epoch - 1
        self.identity = self.identity or uuid.uuid4().hex
        try:
            newest_head(self._tables)  # an altered one might look like one in the making
            self._tables.drop_incomplete_snapshots()
        except LogDamaged as damage:
            self._face(str(damage))
        reserved = self.issued + BLOCK
        header = {
            "format": FORMAT,
            "identity": self.identity,
            "term": self.term,
            "oldest": self.held_from,
            "anchor": self._chain.anchor,
            "reserved": reserved,
            "clean": 0,
        }
        # an earlier start, after which no epoch was made, knows what was lost before it
        before = dict(self._tables.starts()).get(self.next_epoch, self.last)
        with self._header.changing(header, start=(self.next_epoch, before)) as names:
            self._tables.begin_start(self.next_epoch, before, names)
        self._starts = self._tables.starts()
        self._noted(reserved, sync=True)

    def _noted(self, reserved: int, *, sync: bool = False) -> None:
        """Writes the mark of a transaction that is on disk, before anything that depends on it."""
        self._tables.write_mark(
            AcknowledgedMark(self.last, self._chain.last, reserved, self._chain.checksum), sync=sync
        )
        self.reserved = reserved

    def _all_starts(self) -> Iterable[Start]:
        return self._starts  # which nobody else writes: the loop may ask, however far the tables are

    # -- writing --------------------------------------------------------------------------------------

    def is_settled(self, epoch: int) -> bool:
        """True as for any reader; an entry that was not written before this log was opened never will be."""
        return epoch <= self.last or epoch < self.next_epoch

    @property
    def is_busy(self) -> bool:
        """True if ``append`` would have to wait for another thread."""
        return self._writing.locked()

    def append(self, entries: Sequence[Encoded]) -> None:
        """Writes entries, in ascending order and after all before, in one transaction; O(bytes).

        They are on disk when it returns.  Raises ``LogFailed``, and then no entry is on disk.
        """
        with self._writing:
            segments = list(cut(entries, self._chain.last + 1, self._chain.checksum))
            if not segments:
                return
            self.issued = max(self.issued, segments[-1].last)
            renewed = self.reserved - self.issued < BLOCK // 2
            reserved = self.issued + BLOCK if renewed else self.reserved
            rows = rows_of_segments(segments)
            if renewed:
                with self._header.changing({"reserved": reserved}) as names:
                    self._tables.append(rows, names)
            else:
                self._tables.append(rows, {})
            self._chain.extended(segments[-1])
            self._noted(reserved)

    def issue(self, number: int) -> None:
        """Notes that an epoch got this number.  O(1), but for a write when the reservation is exhausted."""
        self.issued = number
        if number >= self.reserved:  # the last one is never given to an epoch: the next start begins with it
            self.reserve()

    def reserve(self) -> None:
        """Reserves a block of epoch numbers beyond those issued; one small write."""
        with self._writing:
            reserved = self.issued + BLOCK
            self._put(reserved=reserved)
            self._noted(reserved, sync=True)

    def _put(self, **named: object) -> None:
        with self._header.changing(named) as names:
            self._tables.put_header(names)

    def close(self) -> None:
        """Closes the log and gives back the numbers that were not used; does nothing the second time."""
        if self._is_closed:
            return
        self._is_closed = True
        reserved = self.last if self.issued <= self.last else self.issued + 1  # some epochs were discarded
        try:
            self._put(reserved=reserved, clean=1)
            self._noted(reserved, sync=True)
            self._tables.close()
        except LogFailed as failure:
            logger.warning("%s; what was acknowledged is there, as after a crash", failure)
            self._tables.abandon()

    # -- state ----------------------------------------------------------------------------------------

    def recover(self, *, snapshot: bool = False) -> RecoveredState:
        """Returns the state after the last epoch, from the newest snapshot on; O(state + later changes).

        Writes a new snapshot if much came later or if ``snapshot`` is set.  Raises ``LogDamaged`` unless
        damage is accepted.
        """
        state, rolled = self._rolled_forward(self._face_altered, strict=not self._accept_damage)
        state.segment = self._chain.last  # also where the last segments are passed over
        self.clients, self.registers = dict(state.clients), state.registers
        self._past = None if state.past is None else (state.past_epoch, list(state.past))
        self.past_epoch = state.past_epoch if state.past is not None else None
        self._has_past = True
        is_due = rolled >= SNAPSHOT_CHANGES or self._accept_damage
        if snapshot or (is_due and not self.registers.lacking):
            writer = self.snapshot(state)
            while writer.step():
                pass
        return state

    def changes_since_snapshot(self) -> int:
        """Returns how many changes came after the newest snapshot; O(segments since)."""
        head = newest_head(self._tables)
        return self._tables.changes_between(head[1] + 1 if head else 0, self._chain.last + 1)

    def _face_altered(self, damage: str) -> None:
        """Raises ``LogDamaged`` for an altered segment; if the damage is accepted, history begins anew."""
        self._face(damage)
        self.held_from = self.next_epoch
        self._put(oldest=self.held_from)

    def past(self) -> Past | None:
        """Returns the epoch and the rows of the past that the newest snapshot has; None if it has none.

        O(state) unless the state was recovered.
        """
        if not self._has_past:
            self._has_past = True
            state = newest(self._tables, Registers)
            if state is not None and state.past is not None:
                self._past, self.past_epoch = (state.past_epoch, list(state.past)), state.past_epoch
        past, self._past = self._past, None
        return past

    # -- retention ------------------------------------------------------------------------------------

    def acknowledge(self, reader: str, epoch: int, now: int) -> None:
        """Notes on disk that a named reader needs no epoch up to this one any more."""
        with self._writing:
            self.readers.acknowledge(reader, epoch, now)

    def forget(self, reader: str) -> bool:
        """Forgets a named reader, which holds back nothing from now on; True if there was one."""
        with self._writing:
            return self.readers.forget(reader)

    def note_archived(self, epoch: int, segment: int, archive: str, place: str) -> None:
        """Notes on disk that an archive has all epochs up to this one, and segments up to that ordinal.

        ``archive`` is its identity, ``place`` where it is.  Until then nothing counts as archived: another
        archive may have been meant before this log was opened.  Writes only what is new.
        """
        noted = epoch, segment, archive, place
        with self._writing:
            if noted != (self.archived, self.archived_segment, self.archived_in, self.archive_place):
                self._put(archived=epoch, archived_segment=segment, archive=archive, archive_place=place)
            self.archived, self.archived_segment, self.archived_in, self.archive_place = noted
            self._is_archive_known = True

    def trim(self, retention: Retention, now: int) -> Trimmed:
        """Drops some of the oldest segments that need not be kept, about 16 MiB at most; O(those).

        Every epoch that stays can still be rebuilt: nothing later than the newest snapshot goes, nor the
        newest segment, nor what an archive has to take in yet, nor what registers need, as ``recover`` finds.
        ``now`` is in microseconds.  Raises ``LogFailed``, and then nothing was dropped.
        """
        self.registers.check_whole()
        chain = self._chain
        archived = self.archived_segment if self._is_archive_known else 0
        wanted = retention.first_kept(chain, self.readers, now, archived)
        wanted = retention.kept_for_registers(chain, wanted, self.registers.needs_after(), archived)
        head = newest_head(self._tables)
        most = head[1] + 1 if head else 1
        if self.past_epoch is not None:  # what a snapshot says of the past of rules, later epochs go on from
            most = min(most, max(chain.first, chain.beyond(self.past_epoch)))
        allowed = min(wanted, chain.last, most)
        first, size = chain.portion(allowed, TRIM_BYTES)
        if first > chain.first:
            self._drop_before(first)
        held_back = chain.bytes_between(most, min(wanted, chain.last)) if wanted > most else 0
        return Trimmed(self.held_from, size, more=first < allowed, held_back=held_back)

    def _drop_before(self, ordinal: int) -> None:
        newest_dropped = self._chain.head_of(ordinal - 1)
        oldest = max(self.held_from, newest_dropped.last + 1)
        before = (self.held_from, self._before)
        with self._writing:
            # A concurrent reader must find the numbers ahead of the rows, so that it gets ``epoch-gone``
            # and not ``LogDamaged``, or nothing.
            self.held_from, self._before = oldest, newest_dropped.until
            try:
                header = {
                    "oldest": oldest,
                    "anchor": newest_dropped.checksum,
                    "before": newest_dropped.until,
                }
                with (
                    self._chain.dropping(ordinal),
                    self._header.changing(header, oldest_start=oldest) as names,
                ):
                    reach("trim-before-write")
                    self._tables.drop_before(ordinal, oldest, names)
            except LogFailed:
                self.held_from, self._before = before
                raise
        reach("trim-after-write")

    def snapshot(self, state: RecoveredState) -> SnapshotWriter:
        """Begins a snapshot of a state, which must be that after its ``segment``."""
        return SnapshotWriter(self._tables, self._header, state)
