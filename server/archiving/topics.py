"""Archiving the durable topics of a home: one archiver for each topic.

Always: an error of one topic holds back no other; together they hold no more than ``OPEN_BYTES`` of segments.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from dataspace.errors import Refused
from relay.archive.archive import Archive
from relay.archive.archiver import RangeSizes, archive_all
from relay.archive.manifest import Range
from relay.archive.merging import Merger
from relay.archive.orphans import collect
from relay.archive.topics.archiving import TopicArchiver, TopicSource
from relay.archive.writing import NotThisArchive
from relay.journal.followed import FollowedJournal
from relay.objects.objects import Objects, StoreFailed
from relay.store.errors import LogFailed
from relay.store.ports import TopicTables

OPEN_BYTES: Final = 256 << 20
"""Bytes of segments in the open ranges of all topics, beyond which the largest is closed."""

PAUSE_SECONDS: Final = 60.0
"""Seconds until a topic is tried again after an error of its own."""

COLLECT_SECONDS: Final = 3600.0
"""How often objects that no manifest names are looked for, where something was archived since."""


@dataclass(slots=True)
class _Topic:
    """A topic as far as it was read: the seal of its row and the ordinal of its newest segment."""

    archiver: TopicArchiver
    seal: bytes = b""
    newest: int = 0
    collected: float = -math.inf
    merged: int = 0
    """The version of the archive in which nothing is to be merged."""


class TopicsArchiver:
    """The archivers of the topics beside the log of a space.  For one thread; all calls block."""

    def __init__(
        self,
        tables: TopicTables,
        objects: Objects,
        space: str,
        identity: str,
        *,
        term: int,
        sizes: RangeSizes | None = None,
    ) -> None:
        """``identity`` belongs to the log, ``term`` is the number of the leader's term."""
        self._tables = tables
        self._journal = FollowedJournal(tables)
        self._objects = objects
        self._identity = identity
        self._space = space
        self._term = term
        self._sizes = sizes or RangeSizes()
        self._version: int | None = None
        self._topics: dict[int, _Topic] = {}
        self._failed: dict[int, float] = {}
        """When the topics in some slots may be tried again."""

    def all(self, report: Callable[[Range], None]) -> Iterator[Archive]:
        """Archives everything that all topics have now; yields the archive of each."""
        for slot in self._journal.slots():
            archiver = self._archiver(slot)
            archiver.begin()
            archive_all(archiver, report)
            yield archiver.archive

    def _archiver(self, slot: int) -> TopicArchiver:
        source = TopicSource(self._tables, slot, self._identity)
        return TopicArchiver(source, self._objects, self._space, term=self._term, sizes=self._sizes)

    def archive_due(
        self, archived: Callable[[TopicArchiver], None], failed: Callable[[Exception], None]
    ) -> None:
        """Reads on, and archives what is due; calls ``archived`` after each range and at each beginning.

        An error of one topic goes to ``failed``.  Raises ``StoreFailed``, and errors of the tables.
        """
        now = time.monotonic()
        retried = [slot for slot, at in self._failed.items() if at <= now]
        if (version := self._journal.version()) != self._version or retried:
            _, heads = self._journal.heads()
            slots = {each.slot for each in heads}
            for slot in {*self._topics, *self._failed} - slots:
                self._topics.pop(slot, None)
                self._failed.pop(slot, None)
            for head in heads:
                topic = self._topics.get(head.slot)
                if self._failed.get(head.slot, 0.0) > now:
                    continue
                if topic is None or (topic.seal, topic.newest) != (head.seal, head.newest):
                    self._try(head.slot, archived, failed)
                    if (topic := self._topics.get(head.slot)) is not None:
                        topic.seal, topic.newest = head.seal, head.newest
            self._version = version
        wall = time.time_ns() // 1000
        for slot, topic in [*self._topics.items()]:
            if topic.archiver.is_due(wall):
                self._try(slot, archived, failed)

    def _try(
        self, slot: int, archived: Callable[[TopicArchiver], None], failed: Callable[[Exception], None]
    ) -> None:
        try:
            self._read(slot, archived)
            self._failed.pop(slot, None)
        except (StoreFailed, LogFailed):
            self._topics.pop(slot, None)
            self._version = None
            raise
        except Exception as error:  # noqa: BLE001  whatever the error of one topic is, the others go on
            self._topics.pop(slot, None)
            gone = isinstance(error, Refused) and error.code in ("epoch-gone", "no-topic")
            self._failed[slot] = time.monotonic() + (0.0 if gone else PAUSE_SECONDS)
            if not gone:
                failed(error)

    def _read(self, slot: int, archived: Callable[[TopicArchiver], None]) -> None:
        """Reads a topic on, and archives what is due of it."""
        topic = self._topics.get(slot)
        if topic is None:
            archiver = self._archiver(slot)
            archiver.begin()
            topic = self._topics[slot] = _Topic(archiver)
            archived(archiver)
        archiver, closed = topic.archiver, False
        archiver.source.refresh()
        while archiver.read() or archiver.is_due(time.time_ns() // 1000):
            if archiver.is_due(time.time_ns() // 1000):
                if archiver.close() is None:
                    break
                closed = True
                archived(archiver)
        self._merge(topic)
        self._bound(archived)
        if closed and time.monotonic() > topic.collected + COLLECT_SECONDS:
            topic.collected = time.monotonic()
            collect(archiver.archive)

    def _merge(self, topic: _Topic) -> None:
        """Merges ranges until none are to be merged; another writer may be first."""
        archive = topic.archiver.archive
        while archive.manifest.version != topic.merged:
            version = archive.manifest.version
            try:
                if Merger(archive, term=self._term).merge_due() is None:
                    topic.merged = version
            except NotThisArchive:
                return

    def _bound(self, archived: Callable[[TopicArchiver], None]) -> None:
        """Closes the largest open ranges while all hold too much."""
        while sum([each.archiver.waiting for each in self._topics.values()]) > OPEN_BYTES:
            largest = max(self._topics.values(), key=lambda topic: topic.archiver.waiting).archiver
            if largest.close() is None:
                return
            archived(largest)
