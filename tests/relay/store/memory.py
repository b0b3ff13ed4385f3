"""A home of tables in memory, which fails as a test wants: the third implementation of the ports.

What was committed is a value that nothing changes any more, so a reader has one moment for nothing, and a
crash that loses the last commits is the return to an earlier value.  ``in_memory`` has logs, journals and
staging areas of this process opened here, each under its path, in place of SQLite's files.

Always: a write that raises has done nothing, but for ``Fault.UNKNOWN``, which has done all of it; after a
failure that is no want of room nothing is written any more.
"""

from __future__ import annotations

import shutil
import threading
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, fields
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, Self
from unittest.mock import patch

import pytest

from relay.journal import journal as journals, reader as journal_readers
from relay.log import log as logs, reader as log_readers
from relay.log.segments import Segment
from relay.store.errors import LogFailed
from relay.store.ports import (
    KEY_BITS,
    AcknowledgedMark,
    ChainEnds,
    ChainHead,
    LogMoment,
    Names,
    Row,
    SnapshotMoment,
    Start,
    TopicHeads,
    TopicsMoment,
)

MOST_LOST: Final = 16
"""Commits that a crash can take back."""

ROW_BYTES: Final = 100
"""What a row takes beside its body, about."""


class Fault(Enum):
    """What happens to the next write."""

    FULL = "there is no room for it"
    FAILED = "the disk refuses it"
    UNKNOWN = "it is done, but whether it is, is not known"


@dataclass
class Content:
    """The rows of all tables after a commit."""

    names: dict[str, Any] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)
    segments: dict[int, Row] = field(default_factory=dict)
    snapshots: dict[int, Row] = field(default_factory=dict)
    chunks: dict[tuple[int, int], tuple[bytes, bytes]] = field(default_factory=dict)
    readers: dict[str, Row] = field(default_factory=dict)
    topics: dict[int, Row] = field(default_factory=dict)
    topic_readers: dict[tuple[int, str], tuple[int, int]] = field(default_factory=dict)
    staged: dict[tuple[bytes, int], tuple[float, bytes]] = field(default_factory=dict)

    def copied(self) -> Content:
        return Content(*[copy(getattr(self, each.name)) for each in fields(self)])


class Memory:
    """What a disk would hold of some tables, and the faults to come."""

    def __init__(self, ask: Callable[[], Fault | None] = lambda: None) -> None:
        """``ask`` returns what happens to the next write, if no fault of ``faults`` does."""
        self.content = Content()
        self.mark = AcknowledgedMark()
        self.faults: list[Fault] = []
        """The first outcome is the outcome of the next write."""
        self._ask = ask
        self._earlier: list[Content] = []
        self._failure = ""
        self._writing = threading.Lock()
        self.commits = 0
        """How often it was written; also raised by a crash."""

    @contextmanager
    def writing(self) -> Iterator[Content]:
        """Commits what the block does to the content."""
        with self._writing:
            if self._failure:
                raise LogFailed(self._failure)
            fault = self.faults.pop(0) if self.faults else self._ask()
            if fault is Fault.FULL:
                raise LogFailed(fault.value, full=True)
            if fault is Fault.FAILED:
                self._fail(fault)
            new = self.content.copied()
            yield new
            self._earlier = [*self._earlier[1 - MOST_LOST :], self.content]
            self.content = new
            self.commits += 1
            if fault is Fault.UNKNOWN:
                self._fail(fault)

    def _fail(self, fault: Fault) -> None:
        self._failure = fault.value
        raise LogFailed(self._failure)

    def crash(self, lost: int = 0) -> None:
        """Ends the process that writes, and takes back its last commits; the mark stays as it was."""
        for _ in range(min(lost, len(self._earlier))):
            self.content = self._earlier.pop()
        self._failure = ""
        self.commits += 1
        self.faults.clear()


class MemoryChains:
    """The chains of a memory."""

    may_wait = False

    memories: ClassVar[dict[Path, Memory]] = {}
    """By path, as long as ``in_memory`` lasts."""

    ask: ClassVar[Callable[[Path], Fault | None]] = lambda _: None
    """Returns what happens to the next write of the tables under a path."""

    def __init__(self, memory: Memory, place: str = "memory") -> None:
        self.memory = memory
        self.place = place

    @classmethod
    def open(cls, path: Path, _mark: Path, _schema: object) -> Self:
        """Returns the tables under a path, new ones if there are none."""
        memory = cls.memories.setdefault(path, Memory(partial(MemoryChains.ask, path)))
        return cls(memory, str(path))

    @classmethod
    def read(cls, path: Path, _mark: Path) -> Self:
        """Returns the tables under a path; ``LogFailed`` if there are none."""
        if path not in cls.memories:
            raise LogFailed(f"cannot open {path}: there is nothing")
        return cls(cls.memories[path], str(path))

    @property
    def mark(self) -> AcknowledgedMark:
        return self.memory.mark

    def write_mark(self, mark: AcknowledgedMark, *, sync: bool = False) -> None:
        self.memory.mark = mark

    def _chain(self, content: Content, key: int) -> list[Row]:
        return [row for ordinal, row in sorted(content.segments.items()) if ordinal >> KEY_BITS == key]

    def ends(self, key: int) -> ChainEnds | None:
        return self._ends(self.memory.content, key)

    def _ends(self, content: Content, key: int) -> ChainEnds | None:
        rows = self._chain(content, key)
        if not rows:
            return None
        newest = Segment(*rows[-1])
        return ChainEnds(rows[0][0], newest.ordinal, newest.last, newest.checksum)

    def fetch(self, ordinal: int, upto: int | None, most: int, size: int) -> Sequence[Row]:
        fetched: list[Row] = []
        for row in self._chain(self.memory.content, ordinal >> KEY_BITS):
            segment = Segment(*row)
            if segment.ordinal >= ordinal:
                fetched.append(row)
                size -= len(segment.body)
                if size <= 0 or len(fetched) >= most or (upto is not None and segment.first > upto):
                    break
        return fetched

    def first_by_last(self, low: int, high: int, least: int) -> int:
        return self._first(low, high, least, lambda segment: segment.last)

    def first_by_until(self, low: int, high: int, least: int) -> int:
        return self._first(low, high, least, lambda segment: segment.until)

    def _first(self, low: int, high: int, least: int, number: Callable[[Segment], int]) -> int:
        rows = [Segment(*row) for at, row in sorted(self.memory.content.segments.items()) if low <= at < high]
        at = bisect_left(rows, least, key=number)
        return rows[at].ordinal if at < len(rows) else high

    def checksum_of(self, ordinal: int) -> bytes | None:
        row = self.memory.content.segments.get(ordinal)
        return None if row is None else Segment(*row).checksum

    def head_of(self, ordinal: int) -> ChainHead:
        segment = Segment(*self.memory.content.segments[ordinal])
        return ChainHead(segment.last, segment.until, segment.checksum)

    def _sizes(self, first: int, beyond: int) -> Iterator[tuple[int, int]]:
        for ordinal, row in sorted(self.memory.content.segments.items()):
            if first <= ordinal < beyond:
                yield ordinal, len(Segment(*row).body)

    def bytes_between(self, first: int, beyond: int) -> int:
        return sum([size for _, size in self._sizes(first, beyond)])

    def changes_between(self, first: int, beyond: int) -> int:
        content = self.memory.content.segments
        return sum([Segment(*row).changes for at, row in content.items() if first <= at < beyond])

    def portion(self, first: int, beyond: int, limit: int) -> tuple[int, int]:
        size = 0
        for ordinal, each in self._sizes(first, beyond):
            if size and size + each > limit:
                return ordinal, size
            size += each
        return max(first, beyond), size

    def counts(self, key: int) -> tuple[int, int]:
        rows = [Segment(*row) for row in self._chain(self.memory.content, key)]
        return len(rows), sum([row.changes for row in rows])

    def size(self) -> int:
        return self.used()

    def used(self) -> int:
        content = self.memory.content
        bodies = [Segment(*row).body for row in content.segments.values()]
        bodies += [body for _, body in content.chunks.values()]
        return sum([len(body) + ROW_BYTES for body in bodies])

    def close(self) -> None:
        pass

    def abandon(self) -> None:
        pass


def _add_segments(content: Content, segments: Sequence[Row]) -> None:
    for row in segments:
        assert row[0] not in content.segments, "each ordinal is written once"
        content.segments[row[0]] = row


def _drop_segments(content: Content, ordinal: int) -> None:
    key = (ordinal - 1) >> KEY_BITS
    for at in [at for at in content.segments if at >> KEY_BITS == key and at < ordinal]:
        del content.segments[at]


class MemoryLog(MemoryChains):
    """The tables of a log in a memory."""

    def moment(self) -> LogMoment:
        content = self.memory.content
        return LogMoment(dict(content.names), sorted(content.starts.items()), self._ends(content, 0))

    def starts(self) -> list[Start]:
        return sorted(self.memory.content.starts.items())

    def append(self, segments: Sequence[Row], names: Names) -> None:
        with self.memory.writing() as content:
            _add_segments(content, segments)
            content.names |= names

    def begin_start(self, first: int, before: int, names: Names) -> None:
        with self.memory.writing() as content:
            content.starts[first] = before
            content.names |= names

    def put_header(self, names: Names) -> None:
        with self.memory.writing() as content:
            content.names |= names

    def drop_before(self, ordinal: int, oldest: int, names: Names) -> None:
        with self.memory.writing() as content:
            _drop_segments(content, ordinal)
            content.starts = {first: each for first, each in content.starts.items() if first >= oldest}
            content.names |= names

    @contextmanager
    def newest_snapshot(self) -> Iterator[SnapshotMoment]:
        content = self.memory.content
        complete = [row for row in content.snapshots.values() if row[4] is not None]
        row = max(complete, default=None)
        number = row[0] if row else 0

        def chunks() -> Generator[tuple[Any, Any]]:
            yield from [chunk for at, chunk in sorted(content.chunks.items()) if at[0] == number]

        yield SnapshotMoment(content.names.get("snapshot"), row, chunks())

    def begin_snapshot(self, segment: int, epoch: int, time: int) -> int:
        with self.memory.writing() as content:
            number = max(content.snapshots, default=0) + 1
            content.snapshots[number] = (number, segment, epoch, time, None)
        return number

    def put_chunk(self, snapshot: int, chunk: int, checksum: bytes, body: bytes) -> None:
        with self.memory.writing() as content:
            content.chunks[snapshot, chunk] = checksum, body

    def complete_snapshot(self, snapshot: int, chunks: int, names: Names) -> None:
        with self.memory.writing() as content:
            content.snapshots = {snapshot: (*content.snapshots[snapshot][:4], chunks)}
            content.chunks = {at: each for at, each in content.chunks.items() if at[0] == snapshot}
            content.names |= names

    def drop_incomplete_snapshots(self) -> None:
        with self.memory.writing() as content:
            content.snapshots = {at: row for at, row in content.snapshots.items() if row[4] is not None}
            content.chunks = {at: each for at, each in content.chunks.items() if at[0] in content.snapshots}

    def readers(self) -> list[Row]:
        return list(self.memory.content.readers.values())

    def put_reader(self, name: str, epoch: int, seen: int) -> None:
        with self.memory.writing() as content:
            content.readers[name] = (name, epoch, seen)

    def delete_reader(self, name: str) -> None:
        with self.memory.writing() as content:
            content.readers.pop(name, None)


class MemoryTopics(MemoryChains):
    """The tables of a journal in a memory."""

    def moment(self) -> TopicsMoment:
        content = self.memory.content
        ends = [(slot, self._ends(content, slot)) for slot in sorted(content.topics)]
        return TopicsMoment(dict(content.names), [(slot, each and each.checksum) for slot, each in ends])

    def version(self) -> int:
        return self.memory.commits

    def heads(self) -> TopicHeads:
        content = self.memory.content
        heads: list[tuple[int, bytes, int | None, int | None]] = []
        for slot, row in sorted(content.topics.items()):
            ends = self._ends(content, slot)
            heads.append((slot, row[1], ends and ends.newest, ends and ends.last))
        return TopicHeads(dict(content.names), heads)

    def topic_moment(self, slot: int) -> tuple[Row | None, ChainEnds | None]:
        content = self.memory.content
        return content.topics.get(slot), self._ends(content, slot)

    def totals(self) -> tuple[int, int]:
        rows = [Segment(*row) for row in self.memory.content.segments.values()]
        return sum([row.entries for row in rows]), sum([row.changes for row in rows])

    def topic(self, slot: int) -> Row | None:
        return self.memory.content.topics.get(slot)

    def topics(self) -> list[Row]:
        return list(self.memory.content.topics.values())

    def write(
        self,
        segments: Sequence[Row],
        drops: Sequence[int],
        topics: Sequence[Row],
        ended: Sequence[int],
        names: Names,
    ) -> None:
        with self.memory.writing() as content:
            _add_segments(content, segments)
            for ordinal in drops:
                _drop_segments(content, ordinal)
            content.topics |= {row[0]: row for row in topics}
            for slot in ended:
                _drop_segments(content, (slot + 1) << KEY_BITS)
                content.topics.pop(slot, None)
                for reader in [each for each in content.topic_readers if each[0] == slot]:
                    del content.topic_readers[reader]
            content.names |= names

    def write_topics(self, topics: Sequence[Row], names: Names) -> None:
        with self.memory.writing() as content:
            content.topics |= {row[0]: row for row in topics}
            for ordinal in [each for each in content.segments if each >> KEY_BITS not in content.topics]:
                del content.segments[ordinal]
            content.names |= names

    def readers(self, slot: int) -> list[Row]:
        found = self.memory.content.topic_readers.items()
        return [(name, *each) for (at, name), each in found if at == slot]

    def put_reader(self, slot: int, name: str, number: int, seen: int) -> None:
        with self.memory.writing() as content:
            before, _ = content.topic_readers.get((slot, name), (0, 0))
            content.topic_readers[slot, name] = max(before, number), seen


class MemoryStaged:
    """The table of staged batches in a memory."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Returns the table of a directory, a new one if there is none."""
        return cls(MemoryChains.memories.setdefault(directory / "staged", Memory()))

    def append(self, key: bytes, since: float, body: bytes) -> None:
        with self.memory.writing() as content:
            part = max([part for at, part in content.staged if at == key], default=0) + 1
            content.staged[key, part] = since, body

    def parts(self, key: bytes, low: bytes, high: bytes) -> list[tuple[bytes, bytes]]:
        found = sorted(self.memory.content.staged.items())
        return [(at, body) for (at, _), (_, body) in found if at == key or low <= at < high]

    def keys(self, low: bytes, high: bytes) -> list[bytes]:
        return sorted({at for at, _ in self.memory.content.staged if low <= at < high})

    def rows(self) -> Iterator[tuple[bytes, float, bytes]]:
        for (key, _), (since, body) in sorted(self.memory.content.staged.items()):
            yield key, since, body

    def delete(self, keys: Sequence[bytes]) -> tuple[int, int]:
        with self.memory.writing() as content:
            going = {at: each for at, each in content.staged.items() if at[0] in keys}
            content.staged = {at: each for at, each in content.staged.items() if at not in going}
        return _total(going)

    def purge(self, before: float) -> tuple[int, int]:
        with self.memory.writing() as content:
            content.staged = {at: each for at, each in content.staged.items() if each[0] >= before}
        return _total(content.staged)

    def counts(self) -> tuple[int, int]:
        staged = self.memory.content.staged
        return len({key for key, _ in staged}), len(staged)

    def close(self) -> None:
        pass


def _total(staged: dict[tuple[bytes, int], tuple[float, bytes]]) -> tuple[int, int]:
    return len(staged), sum([len(key) + len(body) for (key, _), (_, body) in staged.items()])


FILES: Final = pytest.mark.parametrize("home", ["sqlite"], indirect=True)
"""Marks a test of SQLite's files; all other tests of its module have all homes."""


COPIES: Final[list[Callable[[Path, Path], None]]] = []
"""How other homes copy the tables of a directory, while a test has its tables there."""


def crashed(directory: Path, copy: Path) -> Path:
    """Leaves in a new directory what a process killed at this instant would leave in another, still open."""
    if directory.exists():
        shutil.copytree(directory, copy)
    move_memories(directory, copy)
    for also in COPIES:
        also(directory, copy)
    return copy


def move_memories(directory: Path, to: Path) -> None:
    """Has the tables of a directory, and of those in it, in another one too, as they are now."""
    for path, memory in list(MemoryChains.memories.items()):
        if path.is_relative_to(directory):
            at = to / path.relative_to(directory)
            left = MemoryChains.memories[at] = Memory(partial(MemoryChains.ask, at))
            left.content, left.mark = memory.content, memory.mark


@contextmanager
def in_memory(ask: Callable[[Path], Fault | None] = lambda _: None) -> Iterator[None]:
    """Has logs and journals opened in memory; ``ask`` returns what happens to a write under a path."""
    with (
        patch.object(logs, "SqliteLog", MemoryLog),
        patch.object(log_readers, "SqliteLog", MemoryLog),
        patch.object(journals, "SqliteTopics", MemoryTopics),
        patch.object(journal_readers, "SqliteTopics", MemoryTopics),
        patch.object(MemoryChains, "memories", {}),
        patch.object(MemoryChains, "ask", staticmethod(ask)),
    ):
        yield
