"""Archiving a durable topic: the segments of its chain go to an archive, as the segments of a log do.

Positions of steps stand in the place of epochs, and numbers of completed epochs in the place of times.

Always: what the archive of a topic has from ``ArchivedShape.oldest`` on is enough for each of these epochs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from dataspace.errors import Refused
from relay.archive.archiver import Archiver, RangeSizes
from relay.archive.manifest import ArchivedShape, ArchiveManifest
from relay.journal.rows import Kept, Noted, entries_of, topic_of
from relay.log.chain import READ_BYTES, Chain
from relay.log.segments import Segment
from relay.objects.objects import Objects
from relay.store.ports import Start, TopicTables

PART: Final = 4
"""A range is closed at this part of the bytes that a topic retains, so that little is kept beyond those."""

LEAST_BYTES: Final = 1 << 20
"""Bytes of a range that need not be divided, however little a topic retains."""


class TopicSource:
    """The chain of a durable topic, read beside the daemon that writes it.  For one thread at a time."""

    def __init__(self, tables: TopicTables, slot: int, identity: str) -> None:
        """``identity`` belongs to the log of ``main``.

        Raises ``Refused("no-topic")`` if there is no topic in the slot, ``LogDamaged`` for an altered one.
        """
        self.identity: Final = identity
        self._tables = tables
        self._slot = slot
        self._chain = Chain(tables, b"", slot)
        self._kept = self._row()
        self.refresh()
        self._chain.trimmed_elsewhere = self.refresh

    def _row(self) -> Kept:
        row, ends = self._tables.topic_moment(self._slot)
        if row is None:
            raise Refused("no-topic", f"{self._tables.place} has no topic in slot {self._slot}")
        kept = topic_of(*row)
        self._chain.renew(ends, kept.anchor)
        return kept

    def refresh(self) -> bool:
        """Reads where the chain begins and ends now; True if segments were deleted since.

        Raises ``Refused("no-topic")`` if the topic has ended.
        """
        anchor, number = self._chain.anchor, self._kept.number
        self._kept = kept = self._row()
        if kept.number != number:
            raise Refused("no-topic", f"topic {number} in slot {self._slot} has ended")
        return self._chain.anchor != anchor

    @property
    def shape(self) -> ArchivedShape:
        """Returns the topic, and which epochs it holds, as of the last ``refresh``."""
        kept = self._kept
        state: Any = kept.state  # as StepLog.dump has it
        _, (_, _, oldest, _), forgotten, *_ = state
        shape = kept.number, kept.name, kept.dimensions, kept.partitions
        return ArchivedShape(*shape, oldest, tuple(forgotten))

    @property
    def retain(self) -> int:
        """Returns the bytes that the topic retains."""
        return self._kept.retain

    @property
    def held_from(self) -> int:
        for segment in self._chain.walk(self._chain.first, limit=1):
            return segment.first
        return self._kept.position + 1

    @property
    def last(self) -> int:
        return self._chain.epoch

    @property
    def archived(self) -> int:
        return 0  # each range is compared with the chain, which costs one row

    @property
    def archived_segment(self) -> int:
        return 0

    @property
    def archived_in(self) -> str:
        return ""

    @property
    def first_segment(self) -> int:
        return self._chain.first

    def starts(self) -> list[Start]:
        return []

    def tail(self, ordinal: int, size: int = READ_BYTES) -> list[Segment]:
        """Returns about so many bytes of the segments after an ordinal; raises as ``LogReader.tail``."""
        return self._chain.tail(ordinal, size)

    def segments(self, after: int, upto: int) -> Iterator[Segment]:
        return self._chain.after(after, upto)

    def ordinal_after(self, epoch: int) -> int:
        return self._chain.beyond(epoch)

    def checksum_of(self, ordinal: int) -> bytes:
        return self._chain.checksum_of(ordinal)

    def close(self) -> None:
        """Does nothing: the tables are of all topics."""


class TopicArchiver(Archiver):
    """The one writer of the archive of a topic, as ``Archiver``."""

    def __init__(
        self,
        source: TopicSource,
        objects: Objects,
        space: str,
        *,
        term: int = 0,
        sizes: RangeSizes | None = None,
    ) -> None:
        """``space`` is the name of the space whose log is beside the topics."""
        sizes = sizes or RangeSizes()
        most = max(source.retain // PART, LEAST_BYTES)
        sizes = replace(sizes, bytes=min(sizes.bytes, most))
        self.source: Final = source
        self._shape = source.shape
        super().__init__(source, objects, space, term=term, sizes=sizes, topic=self._shape.number)

    def begin(self) -> ArchiveManifest:
        manifest = super().begin()
        self._shape = self.source.shape  # of the same moment as the oldest step
        return manifest

    def _described(self, before: ArchiveManifest, following: ArchiveManifest) -> ArchiveManifest:
        begins = not before.version or following.first != before.first
        return replace(following, topic=self._shape) if begins else following

    def _rows(self, segment: Segment, after: int, upto: int) -> Iterator[object]:
        return (each for each in entries_of(segment) if after < each[0].position <= upto)

    def _beyond(self, segment: Segment, last: int) -> Segment:
        if segment.first > last:
            return segment
        left, newest = list[Noted](), segment.since
        for step, completed, at in entries_of(segment):
            newest = completed[-1].number if completed else newest
            if step.position > last:
                left.append(Noted(0, step, completed, newest, at))
        encoded = [each.encoded() for each in left]
        ends = left[0].step.position, segment.last, len(left), sum([each.changes for each in encoded])
        body = b"".join([each.body for each in encoded])
        times = encoded[0].time, segment.until
        return Segment(segment.ordinal, *ends, *times, segment.checksum, body)

    def _began(self, segment: Segment) -> int:
        return next(at for _, _, at in entries_of(segment))
