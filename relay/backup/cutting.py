"""Cutting: which part of a log is its state at an epoch or at a time?

The state after an epoch is a snapshot that is not later, or the emptiness before epoch 1, and the epochs
since. A claim that has ended cannot be put back without the epoch that made it, so nothing is computed
backwards.

Always: the cut is between two epochs, also where that is within a segment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from dataspace.errors import UsageError
from relay.backup.source import Moment, SourceSnapshot
from relay.log.segments import Segment, cut


@dataclass(frozen=True, slots=True)
class Cut:
    """The last epoch that stays, its time, the segment it is in (0 for none), and the snapshot to begin
    with.
    """

    epoch: int
    time: int
    segment: int
    snapshot: SourceSnapshot | None


def at_end(log: Moment) -> Cut:
    """Returns the cut at the end of the log."""
    snapshots = log.snapshots()
    return Cut(log.end.epoch, log.end.time, log.end.segment, snapshots[-1] if snapshots else None)


def at_epoch(log: Moment, epoch: int) -> Cut:
    """Returns the cut after an epoch.  Raises ``UsageError`` if that cannot be restored."""
    if epoch > log.end.epoch:
        raise UsageError(f"epoch {epoch} is wanted, the backup ends with epoch {log.end.epoch}")
    if epoch < log.oldest:
        raise UsageError(f"epoch {epoch} is wanted, the oldest in the backup is {log.oldest}")
    return _cut(log, epoch)


def at_time(log: Moment, time: int) -> Cut:
    """Returns the cut after the last epoch that is not later than a time in microseconds."""
    rows = log.rows("SELECT segment FROM segments WHERE since <= ? ORDER BY segment DESC LIMIT 1", time)
    if not rows:
        return _before_all(log, time)
    segment = _segment(log, rows[0][0])
    return _cut(log, max(each.number for each in segment.epochs() if each.time <= time))


def _before_all(log: Moment, time: int) -> Cut:
    rows = log.rows("SELECT since FROM segments ORDER BY segment LIMIT 1")
    if log.oldest > 1:
        raise UsageError(
            f"the state at {text_of(time)} is wanted, the oldest epoch is of {text_of(rows[0][0])}"
        )
    return Cut(0, 0, 0, None)


def _cut(log: Moment, epoch: int) -> Cut:
    rows = log.rows("SELECT segment FROM segments WHERE first <= ? ORDER BY segment DESC LIMIT 1", epoch)
    if not rows or rows[0][0] < log.first:
        return Cut(log.end.epoch, log.end.time, log.end.segment, _base(log, epoch, log.end.segment))
    ordinal = rows[0][0]
    segment = _segment(log, ordinal)
    time = max(each.time for each in segment.epochs() if each.number <= epoch)
    whole = segment.last <= epoch
    reached = min(epoch, segment.last)
    return Cut(reached, time, ordinal, _base(log, reached, ordinal if whole else ordinal - 1))


def _base(log: Moment, epoch: int, last: int) -> SourceSnapshot | None:
    """Returns the newest snapshot after a segment that is not later than the last whole one."""
    for snapshot in reversed(log.snapshots()):
        if snapshot.segment <= last:
            return snapshot
    if log.oldest == 1:
        return None
    least = min([each.epoch for each in log.snapshots()], default=log.end.epoch)
    raise UsageError(
        f"epoch {epoch} cannot be restored: what was before epoch {log.oldest} is past retention, and the "
        f"oldest state in the backup is of epoch {least}; give that epoch or a later one"
    )


def _segment(log: Moment, ordinal: int) -> Segment:
    return next(log.segments(ordinal, log.anchor_of(ordinal)))


def kept(log: Moment, where: Cut) -> Iterator[Segment]:
    """Yields the segments up to a cut, the last of them made anew where the cut is within it."""
    if where.segment == 0:
        return
    previous = log.anchor_of(log.first)
    for segment in log.segments(log.first, previous):
        if segment.last > where.epoch:
            yield from cut(segment.encoded_until(where.epoch), segment.ordinal, previous)
            return
        yield segment
        if segment.ordinal >= where.segment:
            return
        previous = segment.checksum


def text_of(time: int) -> str:
    """Returns a time in microseconds since 1970 as text.

    >>> text_of(1_357_034_400_000_000)
    '2013-01-01T10:00:00+00:00'
    """
    return datetime.fromtimestamp(time / 1e6, UTC).isoformat()
