"""Reading and verifying a log: the retained segments, in order, each checked on the way.

The half of the log that changes nothing.  It is apart from the writing half so that a log can be verified,
exported and replayed while a daemon writes it, from a copy, or from a disk that is read-only.

Always: epochs are returned as they were written, in order and whole, or ``LogDamaged`` is raised; an epoch
that is not retained is refused with the oldest retained epoch; a log that verifies has every acknowledged
epoch, unaltered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from dataspace.codec import pack
from dataspace.errors import Refused
from dataspace.kernel.changes import Claims, Epoch, Origin
from index.patterns.text import unparse
from index.values.values import Value, same
from relay.log.chain import READ_BYTES, ArchivedEpochs, Chain
from relay.log.cursors import Cursors
from relay.log.notes import Note, Registers
from relay.log.segments import CHECKSUM_BYTES, EARLIER, FORMAT, Extent, Segment
from relay.log.snapshots import ClaimedValues, RecoveredState, newest, newest_claimed, newest_head
from relay.store.errors import LogDamaged, closed_on_failure
from relay.store.header import Header, check_format, refuse, unsealed
from relay.store.ports import LogTables, Start
from relay.store.reader import StoreReader
from relay.store.sqlite.tables import SqliteLog

__all__ = ["LogReader", "LogStatistics"]


NOT_APPLIED: Final = -1
"""In place of the epoch of a turn that was not applied: a turn without effect in an empty space has 0."""

PORTION_BYTES: Final = 1 << 20
"""Bytes of segments that a reader takes at once who does not read in the loop's own thread."""


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


class LogReader(StoreReader[LogTables]):
    """A log to read from.  Any number of threads may; all calls block."""

    FILE = "log.sqlite"
    MARK = "acknowledged"

    def __init__(
        self,
        tables: LogTables,
        found: Callable[[str], None] = refuse,
        *,
        registers: Callable[[], Registers] = Registers,
    ) -> None:
        """Calls ``found`` with each error in the header of the log; ``registers`` makes empty registers."""
        super().__init__(tables)
        self._registers: Final = registers
        self.cursors: Final = Cursors()
        self.archive: ArchivedEpochs | None = None
        """The archive of this log, which is read for what the log does not hold any more."""
        names, starts, _ = tables.moment()
        self._header: Final = Header(names, starts)
        check_format(tables.place, names, FORMAT, EARLIER)  # before its seal, which may be made differently
        meta = unsealed(names, starts, tables.place, found)
        self.identity: str = meta.get("identity", "")
        self._take_numbers(meta)
        self._chain = Chain(tables, meta.get("anchor", bytes(CHECKSUM_BYTES)))
        self.behind: Final = self._chain.behind
        """Returns how many changes there are after an epoch, and the time of the first of them."""
        self.ordinal_after: Final = self._chain.beyond
        """Returns the ordinal of the first segment with an epoch later than this; O(log segments)."""
        self.checksum_of: Final = self._chain.checksum_of
        """Returns the checksum of a segment; the checksum before the oldest if the segment is not there."""

    def _take_numbers(self, meta: Mapping[str, Any]) -> None:
        self.held_from: int = meta.get("oldest", 1)
        """The oldest epoch that the log itself holds."""
        self._before: int = meta.get("before", 0)  # the time of the newest epoch that is not held any more
        self.reserved: int = meta.get("reserved", 0)
        self.term: int = meta.get("term", -1)
        """A number that rises each time that the log is opened to be written."""
        self.clean: bool = bool(meta.get("clean", 1))
        self.archived: int = meta.get("archived", 0)
        """The newest epoch that an archive is known to have, 0 if there is no archive."""
        self.archived_segment: int = meta.get("archived_segment", 0)
        self.archived_in: str = meta.get("archive", "")
        """The identity of that archive."""
        self.archive_place: str = meta.get("archive_place", "")
        """Where that archive was, as the setting said."""

    def shortfall(self) -> str:
        mark, chain = self._acknowledged, self._chain
        if mark.segment > chain.last:
            return f"epochs up to {mark.epoch} were acknowledged, but its last is {self.last}"
        if mark.segment >= chain.first and chain.checksum_of(mark.segment) != mark.checksum:
            return f"the segment of the acknowledged epoch {mark.epoch} is not the one that was written"
        return ""

    # -- beside another process that writes -----------------------------------------------------------

    @classmethod
    def open(cls, directory: Path, *, registers: Callable[[], Registers] = Registers) -> Self:
        """Opens the log in a directory to read it, changing nothing; ``LogFailed`` if there is none."""
        return cls.over(SqliteLog.read(directory / cls.FILE, directory / cls.MARK), registers=registers)

    @classmethod
    def over(cls, tables: LogTables, *, registers: Callable[[], Registers] = Registers) -> Self:
        """Opens the log in some tables that another process writes, as ``open``."""
        with closed_on_failure(tables):
            found = cls(tables, registers=registers)
        found._chain.trimmed_elsewhere = found.refresh
        return found

    def refresh(self) -> bool:
        """Reads where the log begins and ends now; True if segments were deleted since.  O(starts)."""
        names, starts, ends = self._tables.moment()
        meta = unsealed(names, starts, self._tables.place)
        anchor = meta.get("anchor", bytes(CHECKSUM_BYTES))
        trimmed: bool = anchor != self._chain.anchor
        self._take_numbers(meta)
        self._chain.renew(ends, anchor)
        return trimmed

    def tail(self, ordinal: int, size: int = READ_BYTES) -> list[Segment]:
        """Returns the segments after an ordinal, in order and checked; none if there are none yet.

        It reads what another process has appended since: up to about ``size`` bytes, one segment at least.
        ``last`` becomes their newest epoch if that is later.  Raises ``Refused("epoch-gone")`` if the next
        one was deleted, and ``LogDamaged`` if the one before it is not what was read before.
        """
        return self._chain.tail(ordinal, size)

    def newest_start(self) -> int:
        """Returns the first epoch that the latest opening of the log could write; 0 if there was none."""
        return max([first for first, _ in self._tables.starts()], default=0)

    # -- where it is ----------------------------------------------------------------------------------

    @property
    def oldest(self) -> int:
        """Returns the oldest epoch that can be read, here or in the archive."""
        archive = self.archive
        if archive is not None and archive.oldest < self.held_from <= archive.upto + 1:
            return archive.oldest
        return self.held_from

    @property
    def erased(self) -> int:
        """Returns the newest epoch that an erasure of the archive reached: up to it the log is not read."""
        return 0 if self.archive is None else self.archive.erased

    @property
    def _border(self) -> int:
        """Returns the newest epoch that is read from the archive."""
        return max(self.held_from - 1, self.erased)

    @property
    def last(self) -> int:
        """Returns the newest epoch on disk."""
        return self._chain.epoch

    @property
    def last_segment(self) -> int:
        """Returns the ordinal of the newest segment."""
        return self._chain.last

    @property
    def first_segment(self) -> int:
        """Returns the ordinal of the oldest segment."""
        return self._chain.first

    def starts(self) -> list[Start]:
        """Returns the starts: of each the first epoch that it could write, and the newest before it."""
        return self._tables.starts()

    def is_settled(self, epoch: int) -> bool:
        """True if all epochs up to this one are on disk that ever will be, so that its state is final."""
        return epoch <= self.last

    def snapshot_epoch(self) -> int | None:
        """Returns the epoch of the newest complete snapshot, or None.

        ``LogDamaged`` if it is not what it was.
        """
        head = newest_head(self._tables)
        return head[2] if head else None

    def snapshot_values(self) -> AbstractContextManager[tuple[int, Iterable[ClaimedValues]]]:
        """Lends the epoch of the newest snapshot, and the values that were claimed after it, in parts."""
        return newest_claimed(self._tables)

    def lost(self, epoch: int) -> bool:
        """True if an epoch of this number may have been observed before a crash and never came to disk.

        The number before the first of a start is no epoch: observers got it with the state of that start.
        """
        starts = self._starts_after(epoch)
        if any(first == epoch + 1 for first, _ in starts):
            return False
        return any(before < epoch < first for first, before in starts)

    def gaps(self, after: int) -> list[tuple[int, int]]:
        """Returns the gaps that crashes left beyond ``after``: the epochs before and behind each."""
        starts = self._starts_after(after)
        return [(before, first) for first, before in starts if first > after and first > before + 1]

    def _starts_after(self, epoch: int) -> list[Start]:
        """Returns the starts whose first epoch is later, and perhaps others."""
        archived = self.archive.starts() if self.archive and epoch < self.held_from - 1 else []
        return archived + [each for each in self._all_starts() if not archived or each > archived[-1]]

    def _all_starts(self) -> Iterable[Start]:
        return self._tables.starts()

    # -- reading --------------------------------------------------------------------------------------

    def read(self, after: int, upto: int | None = None) -> Iterator[Epoch]:
        """Yields the entries in (after, upto], silent ones included, in order; holds about 256 KiB at a time.

        Raises ``Refused("epoch-gone")`` if they are not all retained, ``LogDamaged`` at an altered one.
        """
        end = self.last if upto is None else upto
        for segment in self.segments(after, end):
            for epoch in segment.epochs():
                if after < epoch.number <= end:
                    yield epoch

    def segments(self, after: int, upto: int) -> Iterator[Segment]:
        """Returns the segments that hold the epochs in (after, upto], and more at both ends.

        Raises as ``read``.
        """
        if self.archive is not None and after < self._border:
            return self._across(self.archive, after, upto)
        found = self._chain.after(after, upto)
        self._check_held(after)  # only now: what goes meanwhile would have moved that place
        return found

    def _across(self, archive: ArchivedEpochs, after: int, upto: int) -> Iterator[Segment]:
        """Yields segments of the archive, and then of the log; no epoch twice, however either is cut."""
        at = after
        while at < upto:
            begun = at
            if at < self._border:
                if at >= archive.upto:
                    archive.renew()
                self.check_retained(at)
                held = min(upto, self._border)
                for segment in archive.segments(at, held):
                    yield (segment := segment.beyond(at))
                    at = segment.last
                at = max(at, min(held, archive.upto))
                continue
            try:
                for segment in self._chain.after(at, upto):
                    yield (segment := segment.beyond(at))
                    at = segment.last
                return
            except Refused:
                if at == begun and at >= self._border:
                    raise

    def is_at_hand(self, after: int) -> bool:
        """True if the epochs after this one are read from a local disk, as the loop's own thread may."""
        return not self.may_wait and (self.archive is None or after >= self._border)

    def portion(self, after: int, upto: int) -> list[Segment]:
        """Returns the segments with the next epochs of (after, upto], about a mebibyte; blocks.

        All of them come from the archive, or all from the log; none if there are none.
        """
        end = upto if after >= self._border else min(upto, self._border)
        found, size = list[Segment](), 0
        for segment in self.segments(after, end):
            found.append(segment)
            size += len(segment.body)
            if size >= PORTION_BYTES:
                break
        return found

    def within(self, after: int, upto: int, changes: int, size: int | None = None) -> tuple[int, int]:
        """Returns the last epoch of (after, upto] within so many changes and bytes after ``after``.

        And how many changes there are up to it.  At least one epoch that changes something, however large it
        is (see ``Extent``).  O(changes).  Raises as ``read``.
        """
        extent = Extent(after, changes, size)
        for segment in self.segments(after, upto):
            if not extent.take(segment, upto):
                return extent.last, extent.changes
        return upto, extent.changes

    def check_retained(self, after: int) -> None:
        """Raises ``Refused`` for an epoch whose successors are not all retained, here or in the archive."""
        if after < self.oldest - 1:
            raise _gone(f"epochs after {after} are wanted", self.oldest)

    def _check_held(self, after: int) -> None:
        if after < self.held_from - 1:
            raise _gone(f"epochs after {after} are wanted", self.held_from)

    def find_turns(self, client: str, wanted: Iterable[int], *, upto: int | None = None) -> dict[int, int]:
        """Returns the epochs of a client's turns, all of them below its highest applied one.

        A turn that was not applied has ``NOT_APPLIED``; a turn is left out if the segments that would show it
        are not retained.  ``upto`` is an epoch that is later than all of them, or as late.

        Reads the newest segments first, decodes few, and ends with the first turn below all wanted turns,
        since a client's turns ascend.  O(log) at worst.
        """
        left, found = sorted(set(wanted)), dict[int, int]()
        before: int | None = None
        try:
            for sequence, number in self._turns_of(client, upto):
                if before is not None and sequence > before:  # an earlier bearer of a name that was forgotten
                    return found | dict.fromkeys(left, NOT_APPLIED)
                before = sequence
                while left and left[-1] > sequence:
                    found[left.pop()] = NOT_APPLIED
                if left and left[-1] == sequence:
                    found[left.pop()] = number
                if not left:
                    return found
        except Refused:  # what was next has just gone
            return found
        return found if self.held_from > 1 else found | dict.fromkeys(left, NOT_APPLIED)

    def _turns_of(self, client: str, upto: int | None) -> Iterator[tuple[int, int]]:
        """Yields a client's turns and their epochs, the newest first."""
        needle = pack(client)
        for segment in self._chain.backwards(upto):
            if needle in segment.body:
                for epoch in reversed(list(segment.epochs())):
                    if epoch.client == client:
                        yield epoch.sequence, epoch.number

    def origin_before(self, client: str, upto: int, epochs: int) -> Origin | None:
        """Returns where the turns of a client came from at an epoch, if so many epochs before it say so.

        Reads the newest segments first, and decodes few.  O(those epochs) at worst.
        """
        needle = pack(client)
        try:
            for segment in self._chain.backwards(upto):
                if segment.last < upto - epochs:
                    break
                if needle in segment.body:
                    origins = [each for at, each in segment.origins() if each.client == client and at <= upto]
                    if origins:
                        return origins[-1]
        except Refused:  # what was next has just gone
            pass
        return None

    def time_of(self, epoch: int) -> int:
        """Returns the time of an epoch, or of the newest before it; 0 before all.  O(log segments)."""
        self.check_retained(epoch)
        if self.archive is not None and epoch < self.held_from - 1:
            return self.archive.time_of(epoch)
        time = self._before
        ordinal = max(self._chain.beyond(epoch) - 1, self._chain.first)
        for segment in self._chain.walk(ordinal, epoch, limit=2):
            for entry in segment.epochs():
                if entry.number <= epoch:
                    time = entry.time
        return time

    def epoch_at(self, time: int) -> int:
        """Returns the newest epoch that was made at a time or before it; O(log segments).

        The time is in microseconds since 1970.  Raises ``Refused`` if the newest epoch of that time is not
        retained.
        """
        if time < self._before:
            archive = self.archive if self.oldest < self.held_from else None
            if archive is not None and (archive.oldest == 1 or time >= archive.time_of(archive.oldest)):
                return archive.epoch_at(time)
            raise _gone("what there was at that time is gone", self.oldest)
        found = self.held_from - 1
        # Begins one before the first segment that is later: all before that is at that time or earlier.
        for segment in self._chain.walk(max(self._chain.since(time + 1) - 1, self._chain.first), limit=1):
            for entry in segment.epochs():
                if entry.time > time:
                    return found
                found = entry.number
        return found

    def distance(self, one: int, other: int) -> int:
        """Returns how many segments lie between two epochs, or about as many where they are archived."""
        return abs(self._place(one) - self._place(other))

    def _place(self, epoch: int) -> int:
        archive = self.archive
        if archive is None or epoch >= self.held_from - 1:
            return self._chain.beyond(epoch)
        return self._chain.first - archive.segments_after(epoch)

    def damages(self) -> Iterator[str]:
        """Every error in the retained log, in words; O(log)."""
        if shortfall := self.shortfall():
            yield shortfall
        found: list[str] = []
        snapshot = self._newest_snapshot(found.append)
        start = self._chain.first_needed(self.held_from, snapshot.segment if snapshot else 0)
        noted = self._registers().of_notes_alone()
        # Notes before the first epoch may have gone where no epoch has.
        explained = _Explained(snapshot, noted, whole=self.held_from == self._chain.first == 1)
        for segment in self._chain.walk(start, found=found.append):
            explained.take_in(segment)
        yield from found
        if not found:  # else what the epochs say is not whole
            yield from explained.differences()

    def _rolled_forward(
        self, found: Callable[[str], None], *, strict: bool = True
    ) -> tuple[RecoveredState, int]:
        """Returns the state after the newest readable segment, and how much came after the newest snapshot.

        Counts changes and entries.  Damage goes to ``found``; O(state + later changes).
        """
        state, rolled = self._newest_snapshot(found) or RecoveredState(registers=self._registers()), 0
        for segment in self._chain.walk(max(state.segment + 1, self._chain.first), found=found):
            for item in segment.items():
                state.apply(item, strict=strict)
            state.segment = segment.ordinal
            self._chain.read = segment.ordinal, segment.checksum
            rolled += segment.changes + segment.entries
        state.oldest = self.held_from
        state.epoch = max(state.epoch, self.held_from - 1)
        return state, rolled

    def _newest_snapshot(self, found: Callable[[str], None]) -> RecoveredState | None:
        """Returns the newest snapshot, None if there is none to be read; O(state).

        Damage goes to ``found`` as text, also that the log does not go on where the snapshot was made.
        """
        first = self._chain.first  # before it is read: a newer one lets more go
        try:
            snapshot = newest(self._tables, self._registers)
        except LogDamaged as damage:
            found(str(damage))
            return None
        if snapshot is not None and snapshot.segment < first - 1:
            found(f"{self._tables.place}: segment {snapshot.segment + 1}, after the snapshot, is gone")
        return snapshot

    def verify(self) -> LogStatistics:
        """Reads the whole retained log and checks every checksum; ``LogDamaged`` at the first that fails."""
        for damage in self.damages():
            raise LogDamaged(damage)
        return self.statistics()

    def statistics(self) -> LogStatistics:
        """Counts, in O(segments)."""
        try:
            snapshot = self.snapshot_epoch() or 0
        except LogDamaged:
            snapshot = 0
        size = self.size()
        return LogStatistics(self.held_from, self.last, self.reserved, *self._chain.counts(), snapshot, size)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Counts of a log, and its damages: the log is sound if ``damages`` is empty."""

    identity: str
    statistics: LogStatistics
    damages: tuple[str, ...]


def verify(directory: Path, registers: Callable[[], Registers] = Registers) -> Verdict:
    """Checks the log in a directory; O(log).  Raises ``LogFailed`` if there is none that can be read."""
    with closing(LogReader.open(directory, registers=registers)) as reader:
        return verdict(reader)


def verdict(reader: LogReader) -> Verdict:
    """Checks a log; O(log).  Raises ``LogFailed`` if it cannot be read."""
    return Verdict(reader.identity, reader.statistics(), tuple(reader.damages()))


# -- checks of snapshots ---------------------------------------------------------------------------
#
# A snapshot is a copy of what a daemon had in memory. Whatever a defect left there would be a fact from then
# on, in no epoch, and every checksum of it would be right. So the snapshot is computed once more from the
# epochs: all of it if they are retained from the first one on; otherwise every claim and every part of a
# register that the retained epochs and notes have touched, and the earlier rest is taken on trust. Nothing
# here changes anything; memory is bounded by the snapshot and the claims that the epochs touch.


_MOST: Final = 20
"""Differences that are described; the others are counted."""

_Place = tuple[str, int]
"""An owner and a handle of its."""


def _gone(what: str, oldest: int) -> Refused:
    return Refused("epoch-gone", f"{what}, the oldest held is {oldest}")


class _Explained:
    """What the epochs say that owners claim, as far as they say."""

    def __init__(self, snapshot: RecoveredState | None, noted: Registers, *, whole: bool) -> None:
        """``whole`` if the epochs to come are all epochs of the log since its beginning.

        ``noted`` are empty registers of which the notes are all that changes them.
        """
        self._snapshot = snapshot
        self._whole: Final = whole
        self._noted: Final = noted
        if snapshot is not None and not whole:
            noted.restore(snapshot.registers.of_notes_alone().rows())  # the notes must lead to the same again
        self._claimed: dict[_Place, Value] = {}
        self._ended: set[_Place] = set()
        self._found: list[str] = []

    def take_in(self, segment: Segment) -> None:
        """Takes in the next segment; O(its claims), and O(snapshot) where the snapshot was made before it."""
        if self._snapshot is not None and segment.ordinal > self._snapshot.segment:
            self._compare()
        for item in segment.items():
            if isinstance(item, Note):
                self._noted.apply(item)
                continue
            for change in item.claims:
                self._apply(item.number, change)

    def _apply(self, number: int, change: Claims) -> None:
        owner = change.owner
        for handle, value in change.asserted:
            self._claimed[owner, handle] = value
            self._ended.discard((owner, handle))
        for handle in change.retracted:
            place = owner, handle
            known = place in self._claimed
            if known:
                del self._claimed[place]
            elif self._whole or place in self._ended:
                self._found.append(f"epoch {number} ends claim {handle} of {owner}, which no epoch begins")
            if not self._whole:
                self._ended.add(place)

    def differences(self) -> Iterator[str]:
        """Yields what is odd in the epochs, and wrong in the snapshot, in words; O(claims)."""
        self._compare()
        yield from self._found[:_MOST]
        if len(self._found) > _MOST:
            yield f"{len(self._found) - _MOST} more claims that differ between epochs and snapshot"

    def _compare(self) -> None:
        """Compares the snapshot with the epochs up to it, once."""
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None:
            self._found += self._wrong(snapshot)

    def _wrong(self, snapshot: RecoveredState) -> Iterator[str]:
        subject = f"snapshot after epoch {snapshot.epoch}"
        for owner, claims in snapshot.owners.items():
            for handle, value in claims.items():
                place = owner, handle
                what = f"{owner} claims {unparse(value):.200} under handle {handle}"
                if place in self._claimed:
                    if not same(self._claimed[place], value):
                        yield f"{subject}: {what}, but the epochs say {unparse(self._claimed[place]):.200}"
                elif place in self._ended:
                    yield f"{subject}: {what}, but the epochs end that claim"
                elif self._whole:
                    yield f"{subject}: {what}, but no epoch does"
        for (owner, handle), value in self._claimed.items():
            if handle not in snapshot.owners.get(owner, ()):
                what = f"{owner} claims {unparse(value):.200} under handle {handle}"
                yield f"{subject}: by the epochs {what}, but it is not there"
        for difference in snapshot.registers.differences(self._noted):
            yield f"{subject}: {difference}"
