"""An archive read as a log: replays without the log that it was made from.

Readers that have no daemon, or want to spare it, replay a pattern from segments alone.  What a replay needs
to know of the state where it begins, it counts from the nearest archived state on.

Always: what a replay of an archive yields equals what a replay of its log yielded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from dataspace.errors import InternalError, Refused
from relay.archive.archive import Archive
from relay.archive.columns import exact_changes
from relay.archive.manifest import ArchivedState
from relay.archive.states import nearest_state
from relay.log.cursors import Cursors
from relay.log.segments import Extent, Segment, rows_of
from relay.log.snapshots import ClaimedValues


class ReadArchive:
    """The epochs of one archive for replays.  Any number of threads may read; all calls block."""

    def __init__(self, archive: Archive) -> None:
        self.archive: Final = archive
        self._cursors = Cursors()
        self._cursors_of = 0
        self._state: ArchivedState | None = None

    def beginning_at(self, epoch: int) -> ReadArchive:
        """Returns the same for replays that begin at an epoch, with the nearest state before it."""
        made = ReadArchive(self.archive)
        made._cursors, made._cursors_of = self.cursors, self._cursors_of
        made._state = nearest_state(self.archive, epoch)
        return made

    @property
    def cursors(self) -> Cursors:
        """Returns the states that earlier readers left; none from before an erasure."""
        version = self.archive.manifest.version if self.archive.erased else 0
        if version != self._cursors_of:
            self._cursors, self._cursors_of = Cursors(), version
        return self._cursors

    @property
    def oldest(self) -> int:
        return self.archive.oldest

    @property
    def erased(self) -> int:
        return 0  # archived states have what segments have, and other states go with an erasure

    def check_retained(self, after: int) -> None:
        if after < self.oldest - 1:
            raise Refused(
                "epoch-gone", f"epochs after {after} are wanted, the oldest archived is {self.oldest}"
            )

    def segments(self, after: int, upto: int) -> Iterator[Segment]:
        self.check_retained(after)
        at = after
        for segment in self.archive.segments(after, upto):
            yield (segment := segment.beyond(at))
            at = segment.last

    def distance(self, one: int, other: int) -> int:
        low, high = sorted((one, other))
        return self.archive.segments_after(low) - self.archive.segments_after(high)

    def is_settled(self, epoch: int) -> bool:
        return epoch <= self.archive.upto

    def snapshot_epoch(self) -> int | None:
        return None if self._state is None else self._state.epoch

    @contextmanager
    def snapshot_values(self) -> Iterator[tuple[int, Iterable[ClaimedValues]]]:
        state = self._state
        if state is None:
            raise InternalError("there is no state, as was said")
        contents = map(self.archive.content, state.files)
        yield state.epoch, (rows_of([value for *_, value in exact_changes(each)]) for each in contents)

    def within(self, after: int, upto: int, changes: int, size: int | None = None) -> tuple[int, int]:
        """Returns the last epoch of (after, upto] within so many changes and bytes after ``after``.

        As that of a log.  Reads one range; O(ranges + its changes).
        """
        extent = Extent(after, changes, size)
        for range_ in self.archive.ranges(after, upto):
            if range_.first > after and range_.last <= upto and extent.admits(range_.changes, range_.bytes):
                extent.add(range_.last, range_.changes, range_.bytes)
                continue
            end = min(upto, range_.last)
            for segment in self.segments(extent.last, end):
                if not extent.take(segment, end):
                    return extent.last, extent.changes
            extent.last = end
        return upto, extent.changes
