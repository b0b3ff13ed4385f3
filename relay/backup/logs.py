"""Copying one log: the segments that the copy does not hold yet, then the header and the newest snapshot.

Segments ascend and are sealed to one another, and none ever changes.  So the first part is copied in short
moments, at any pace, while the log goes on; an interrupted copy is continued where it stopped; and an earlier
copy gets only the segments that it lacks.  Only the last part, the header and the snapshot are read in one
moment, which is the epoch that the copy is of.

Always: the copy is of one epoch, and whole after every transaction; a copy of another log, or of a log that
went on differently, is refused and left unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from dataspace.errors import DataspaceError
from dataspace.faults import reach
from relay.backup.copies import (
    CopyPace,
    LogTarget,
    Moment,
    Moments,
    SourceEnd,
    SourceSnapshot,
    put_mark,
    replace,
)
from relay.log.reader import LogReader
from relay.log.segments import FORMAT, Segment
from relay.log.snapshots import renumbered_chunks
from relay.store.ports import AcknowledgedMark
from relay.store.private import make_anew
from relay.store.sqlite.failures import translated

PORTION_BYTES: Final = 4 << 20
"""Bytes that are read in one short moment, and written in one transaction."""

MOST_ROWS: Final = 4096
"""The same in rows."""

ROUNDS: Final = 64
"""Times that new epochs are copied in short moments; the rest is copied in the last one."""

SMALL_BYTES: Final = 16 << 20
"""New epochs of so few bytes are left to the last moment."""

OVERTAKEN: Final = 3
"""Times that a copy begins anew because retention has deleted what was next."""

KEPT_SNAPSHOTS: Final = 8
"""Snapshots that a copy keeps, so that one of them is not later than the epoch to be restored."""

NEW: Final = "log.sqlite.new"

T = TypeVar("T")


class NotThisLog(DataspaceError):
    """A copy is there already, and the log is not its continuation."""


class _Overtaken(Exception):
    """Retention has deleted segments that were to be copied next."""


@dataclass(frozen=True, slots=True)
class CopiedLog:
    """What a copy holds: identity, oldest and newest epoch, time of that, and the highest number issued by
    then.

    ``added`` are the segments that were copied now, ``anew`` is true if all of them had to be.
    """

    identity: str
    oldest: int
    epoch: int
    time: int
    reserved: int
    added: int
    anew: bool


def copy_log(source: Moments, target: Path, pace: CopyPace, what: str) -> CopiedLog:
    """Brings the copy in a directory up to date, or makes one; O(missing segments).  ``what`` names it for
    reports.

    Raises ``NotThisLog``, ``LogDamaged`` where the log is not what was written, or ``LogFailed``.
    """
    for attempt in range(OVERTAKEN + 1):
        with suppress(_Overtaken):
            return _Copy(source, target, pace, what, patient=attempt < OVERTAKEN).run()
    raise AssertionError  # in one moment nothing is deleted


class _Copy:
    """One attempt: ``patient`` if it may read in many moments, else it reads in one."""

    def __init__(self, source: Moments, directory: Path, pace: CopyPace, what: str, *, patient: bool) -> None:
        self._moment = source
        self._directory = directory
        self._pace = pace
        self._what = what
        self._patient = patient
        self._added = 0

    def run(self) -> CopiedLog:
        whole = self._directory / LogReader.FILE
        with ExitStack() as reading:
            now = reading.enter_context(self._moment())
            anew = whole.exists() and not self._continues(whole, now)
            path = self._directory / NEW if anew else whole
            if anew:
                with translated("write", path):
                    make_anew(path)
            target = LogTarget(path)
            try:
                if self._patient:
                    reading.close()
                    self._catch_up(target)
                    now = reading.enter_context(self._moment())
                self._finish(target, now)
                copied = CopiedLog(
                    now.identity, now.oldest, now.end.epoch, now.end.time, now.reserved, self._added, anew
                )
                mark = _mark(now.end, now.reserved)
            except BaseException:
                target.abandon()
                raise
        target.close()
        reach("backup-before-mark")
        if anew:
            replace(path, whole)
        put_mark(self._directory, mark)
        return copied

    def _continues(self, path: Path, now: Moment) -> bool:
        """True if the log goes on from the copy; False if the log has lost its next segment.

        Raises ``NotThisLog`` if it is another log, or went on differently.
        """
        held = LogTarget(path)
        held.abandon()
        before = held.meta.get("identity", now.identity)
        if before != now.identity:
            raise NotThisLog(
                f"{path.parent} is a copy of the log {before}, this one is {now.identity}; "
                "back up to another directory"
            )
        if held.segment == 0:
            return True
        checksum = now.checksum_of(held.segment)
        if held.segment > now.end.segment or checksum not in (None, held.checksum):
            raise NotThisLog(
                f"{path.parent} goes to epoch {held.epoch} (segment {held.segment}), and the log, at epoch "
                f"{now.end.epoch}, has gone on differently from there; back up to another directory"
            )
        if checksum is not None:
            return True
        first = now.first_of(held.segment + 1)
        return first is not None and first > held.epoch and now.anchor_of(held.segment + 1) == held.checksum

    def _catch_up(self, target: LogTarget) -> None:
        """Copies segments in short moments, until what is left is small."""
        with self._moment() as now:
            goal = now.end.segment
        for _ in range(ROUNDS):
            while target.segment < goal:
                with self._moment() as now:
                    portion = next(_portions(self._lacking(target, now)), [])
                    self._write(target, portion, now)
                self._pause(portion)
            with self._moment() as now:
                goal = now.end.segment
                if now.bytes_after(target.segment) < SMALL_BYTES:
                    return

    def _lacking(self, target: LogTarget, now: Moment) -> Iterator[Segment]:
        """Returns the segments that the copy does not hold."""
        if now.end.segment == 0:
            return iter(())
        first = target.segment + 1 if target.segment else now.first
        # What is not needed any more may be there still: then the copy goes on, as ``_continues`` said.
        if target.segment and now.anchor_of(first) != target.checksum:
            raise _Overtaken
        return now.segments(first, now.anchor_of(first))

    def _write(self, target: LogTarget, portion: list[Segment], now: Moment) -> None:
        begins = target.meta.get("identity") is None
        if not portion and not begins:
            return
        header = {"format": FORMAT, "identity": now.identity, "reserved": now.reserved, "clean": 0}
        if begins:
            header |= {"oldest": now.oldest, "anchor": now.anchor_of(now.first)}
        target.extend(portion, now.starts(), **header)
        self._added += len(portion)
        reach("backup-portion")

    def _pause(self, portion: list[Segment]) -> None:
        self._pace.spent(self._what, sum([len(each.body) for each in portion]))

    def _finish(self, target: LogTarget, now: Moment) -> None:
        """Copies the rest, and makes the copy one of this moment."""
        self._write(target, [], now)
        for portion in _portions(self._lacking(target, now)):
            self._write(target, portion, now)
            self._pause(portion)
        snapshot = now.newest_snapshot()
        if snapshot is not None:
            snapshot = target.held(snapshot) or self._copy_snapshot(target, now, snapshot)
        meta = now.meta | {"anchor": now.anchor_of(now.first), "format": FORMAT}
        meta.pop("snapshot", None)
        target.complete(
            snapshot,
            first=now.first,
            kept=KEPT_SNAPSHOTS,
            starts=now.starts(),
            readers=now.readers(),
            meta=meta,
        )

    def _copy_snapshot(self, target: LogTarget, now: Moment, snapshot: SourceSnapshot) -> SourceSnapshot:
        here, chunks = target.begin_snapshot(snapshot), now.chunks(snapshot)
        if here != snapshot:
            chunks = renumbered_chunks(chunks, here.number)
        for rows in parts(chunks, lambda row: len(row[3])):
            target.add_chunks(rows)
            self._pace.spent(self._what, sum([len(row[3]) for row in rows]))
            reach("backup-chunks")
        return here


def _mark(end: SourceEnd, reserved: int) -> AcknowledgedMark:
    return AcknowledgedMark(end.epoch, end.segment, reserved, end.checksum)


def _portions(segments: Iterator[Segment]) -> Iterator[list[Segment]]:
    return parts(segments, lambda segment: len(segment.body))


def parts(things: Iterator[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Yields lists of things in order, each of about ``PORTION_BYTES``."""
    part: list[T] = []
    total = 0
    for thing in things:
        part.append(thing)
        total += size(thing)
        if total >= PORTION_BYTES or len(part) >= MOST_ROWS:
            yield part
            part, total = [], 0
    if part:
        yield part
