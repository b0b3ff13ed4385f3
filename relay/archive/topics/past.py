"""An archived topic to read: its steps by position, its completed epochs by number.

Always: a read step or epoch equals the one in the journal, or ``LogDamaged`` is raised.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dataspace.topics.times import Maxima
from relay.archive.archive import Archive
from relay.archive.manifest import ArchivedShape
from relay.journal.rows import entries_of
from relay.store.errors import LogDamaged
from relay.topics.steps import LAST, Completed, Step


class TopicArchive:
    """The archive of one topic, as ``ArchivedTopic``.  Any number of threads may read; calls block."""

    def __init__(self, archive: Archive) -> None:
        self.archive: Final = archive

    @property
    def shape(self) -> ArchivedShape | None:
        """Returns the topic; None if nothing of it is archived."""
        return self.archive.manifest.topic

    @property
    def shown(self) -> str:
        return self.archive.shown

    @property
    def oldest(self) -> int:
        shape = self.shape
        return 1 if shape is None else shape.oldest

    @property
    def completed(self) -> int:
        return self.archive.manifest.until

    @property
    def position(self) -> int:
        return self.archive.upto

    @property
    def forgotten(self) -> Maxima:
        shape = self.shape
        return Maxima() if shape is None else Maxima(shape.forgotten)

    def renew(self) -> None:
        self.archive.renew()

    def epochs(self, first: int = 1, last: int = LAST) -> Iterator[tuple[Completed, int]]:
        for segment in self.archive.segments_until(first):
            for _, done, at in entries_of(segment) if segment.changes else ():
                for epoch in done:
                    if first <= epoch.number <= last:
                        yield epoch, at
            if segment.until >= last:
                return

    def steps(self, after: int, upto: int = LAST) -> Iterator[Step]:
        position = after
        for segment in self.archive.segments(after, upto):
            for step, _, _ in entries_of(segment):
                if after < step.position <= upto:
                    position += 1
                    if step.position != position:
                        raise LogDamaged(f"{self.shown}: step {position} is missing")
                    yield step
        if position < upto < LAST:
            raise LogDamaged(f"{self.shown}: step {position + 1} is missing")
