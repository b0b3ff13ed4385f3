"""Ports of the store: what a log, durable topics and staging need of a database, as named operations.

``Log``, ``Chain``, ``SnapshotWriter``, ``Readers``, ``Journal`` and ``Staging`` have the rules and no SQL; a
*home* has the tables (``relay/store/sqlite``; tests have one in memory with faults).  A write takes
everything that belongs together, so that a home can make it one transaction, or one statement.

A segment is a row of nine columns: ordinal, first, last, entries, changes, since, until, checksum, body.
Each chain of segments has a key, 0 for the log of a space and a topic's slot for a topic; its ordinals follow
``key << KEY_BITS``.  Rows come back as they lie there, so that a reader finds out what was altered.

Always: a write is on disk, whole, when it returns; if it raises ``LogFailed`` nothing of it is there; any
number of threads read while one writes; an answer is of one moment.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

KEY_BITS: Final = 40
"""Segments of a chain are numbered on from ``key << KEY_BITS``."""

Row: TypeAlias = tuple[Any, ...]

Names: TypeAlias = Mapping[str, object]
"""Names of the header to write, their seal among them (``relay/store/header``)."""

Start: TypeAlias = tuple[int, int]
"""The first epoch of an opening of a log, and the newest on disk before it."""


@dataclass(frozen=True, slots=True)
class AcknowledgedMark:
    """The newest acknowledged epoch, its segment and that one's checksum, the highest number reserved."""

    epoch: int = 0
    segment: int = 0
    reserved: int = 0
    checksum: bytes = bytes(16)


class ChainEnds(NamedTuple):
    """Ordinals of the oldest and the newest segment of a chain; last epoch and checksum of the newest."""

    oldest: int
    newest: int
    last: int
    checksum: bytes


class ChainHead(NamedTuple):
    """The newest epoch of a segment, its time in microseconds, and the segment's checksum."""

    last: int
    until: int
    checksum: bytes


class LogMoment(NamedTuple):
    """The header of a log, its starts by ``first``, and the ends of its chain, all as of one moment."""

    names: dict[str, Any]
    starts: list[Start]
    ends: ChainEnds | None


class TopicsMoment(NamedTuple):
    """The header of a journal, and the newest checksum of each topic by slot, all as of one moment."""

    names: dict[str, Any]
    ends: list[tuple[Any, Any]]
    """A checksum is None if the topic has no segment."""


class TopicHeads(NamedTuple):
    """The header of a journal, and of each topic how its row and its chain end, all as of one moment."""

    names: dict[str, Any]
    heads: list[tuple[int, bytes, int | None, int | None]]
    """Slot and seal of the row; ordinal of the newest segment and its last step, None if there is none."""


class SnapshotMoment(NamedTuple):
    """The newest complete snapshot, and which one the header names, as of one moment."""

    named: Any
    """What the header has; None in a log of an earlier version."""
    row: Row | None
    """Number, segment, epoch, time and chunks."""
    chunks: Generator[tuple[Any, Any]]
    """Checksums and bodies, in order."""


class ChainTables(Protocol):
    """Chains of segments, and the acknowledged mark."""

    place: str
    """Where the tables are, for messages."""

    may_wait: bool
    """True if an answer may take long, so that the loop's own thread asks and writes nothing."""

    @property
    def mark(self) -> AcknowledgedMark:
        """Returns what the tables hold at least; an empty mark where a home needs none."""

    def write_mark(self, mark: AcknowledgedMark, *, sync: bool = False) -> None:
        """Keeps a new mark, after the write that it is about; on disk if ``sync``, or within a second."""

    def ends(self, key: int) -> ChainEnds | None:
        """Returns where a chain begins and ends; None for one without segments."""

    def fetch(self, ordinal: int, upto: int | None, most: int, size: int) -> Sequence[Row]:
        """Returns segments of one chain from an ordinal on, in order.

        The last one is the first segment that begins after ``upto``, the segment with which they have
        ``size`` bytes, or number ``most``.
        """

    def first_by_last(self, low: int, high: int, least: int) -> int:
        """Returns the first ordinal from ``low`` on with a ``last`` of at least so much; ``high`` if none.

        The column ascends with the ordinal.  O(log segments).
        """

    def first_by_until(self, low: int, high: int, least: int) -> int:
        """Returns the same by the column ``until``."""

    def checksum_of(self, ordinal: int) -> bytes | None:
        """Returns the checksum of a segment, None if it is not there."""

    def head_of(self, ordinal: int) -> ChainHead:
        """Returns how a segment, which is there, ends."""

    def bytes_between(self, first: int, beyond: int) -> int:
        """Returns the bytes of the segments from one ordinal up to before another; O(those)."""

    def changes_between(self, first: int, beyond: int) -> int:
        """Returns the changes in the segments from one ordinal up to before another; O(those)."""

    def portion(self, first: int, beyond: int, limit: int) -> tuple[int, int]:
        """Returns where the segments of about ``limit`` bytes from an ordinal on end, and their bytes."""

    def counts(self, key: int) -> tuple[int, int]:
        """Returns how many segments and changes a chain has; O(segments)."""

    def size(self) -> int:
        """Returns the bytes that all of it takes."""

    def used(self) -> int:
        """Returns the bytes in use: the rest is used again before more is taken; O(1)."""

    def close(self) -> None:
        """Ends the use of the tables."""

    def abandon(self) -> None:
        """Ends their use as a crash does, after a failed write: nothing more is written."""


class LogTables(ChainTables, Protocol):
    """The tables of one log."""

    def moment(self) -> LogMoment:
        """Returns the header and the ends of the chain; O(starts)."""

    def starts(self) -> list[Start]:
        """Returns the starts by ``first``."""

    def append(self, segments: Sequence[Row], names: Names) -> None:
        """Writes segments that follow the newest one, and names of the header."""

    def begin_start(self, first: int, before: int, names: Names) -> None:
        """Writes a start and names of the header."""

    def put_header(self, names: Names) -> None:
        """Writes names of the header."""

    def drop_before(self, ordinal: int, oldest: int, names: Names) -> None:
        """Deletes the segments before an ordinal and the starts before an epoch; writes names."""

    def newest_snapshot(self) -> AbstractContextManager[SnapshotMoment]:
        """Lends the newest complete snapshot; a newer one does not take it away before the block ends."""

    def begin_snapshot(self, segment: int, epoch: int, time: int) -> int:
        """Begins a snapshot, which is not complete, and returns its number."""

    def put_chunk(self, snapshot: int, chunk: int, checksum: bytes, body: bytes) -> None:
        """Writes a chunk of a snapshot."""

    def complete_snapshot(self, snapshot: int, chunks: int, names: Names) -> None:
        """Declares a snapshot complete, deletes all earlier ones, and writes names of the header."""

    def drop_incomplete_snapshots(self) -> None:
        """Deletes the snapshots that are not complete."""

    def readers(self) -> list[Row]:
        """Returns the named readers: name, epoch, and when it acknowledged last."""

    def put_reader(self, name: str, epoch: int, seen: int) -> None:
        """Writes a named reader, in the place of an earlier row."""

    def delete_reader(self, name: str) -> None:
        """Deletes a named reader."""


class TopicTables(ChainTables, Protocol):
    """The tables of a journal, beside its chains: a row for each topic, and its named readers."""

    def moment(self) -> TopicsMoment:
        """Returns the header and the end of each chain."""

    def version(self) -> int:
        """Returns a number that differs once another process has written; O(1)."""

    def heads(self) -> TopicHeads:
        """Returns the header and how each topic ends; O(topics)."""

    def topic_moment(self, slot: int) -> tuple[Row | None, ChainEnds | None]:
        """Returns the row of a topic, and where its chain begins and ends, as of one moment."""

    def totals(self) -> tuple[int, int]:
        """Returns how many entries and changes the segments of all chains have; O(segments)."""

    def topic(self, slot: int) -> Row | None:
        """Returns slot, seal and body of a topic."""

    def topics(self) -> list[Row]:
        """Returns the same of all topics."""

    def write(
        self,
        segments: Sequence[Row],
        drops: Sequence[int],
        topics: Sequence[Row],
        ended: Sequence[int],
        names: Names,
    ) -> None:
        """Writes segments, which follow the newest of their chains, rows of topics and names of the header.

        Deletes the segments of a chain before each ordinal of ``drops``, and everything of topics in the
        slots that have ``ended``.
        """

    def write_topics(self, topics: Sequence[Row], names: Names) -> None:
        """Writes rows of topics and names of the header; deletes segments of no topic."""

    def readers(self, slot: int) -> list[Row]:
        """Returns the named readers of a topic: name, number, and when it acknowledged last."""

    def put_reader(self, slot: int, name: str, number: int, seen: int) -> None:
        """Writes a named reader; its number never goes back."""


class StagedTables(Protocol):
    """The table of staged batches: parts under keys, numbered on."""

    def append(self, key: bytes, since: float, body: bytes) -> None:
        """Writes a part after the earlier parts of its key."""

    def parts(self, key: bytes, low: bytes, high: bytes) -> list[tuple[bytes, bytes]]:
        """Returns key and body of each part of ``key`` and of keys in [low, high), by key and part."""

    def keys(self, low: bytes, high: bytes) -> list[bytes]:
        """Returns the keys in [low, high)."""

    def rows(self) -> Iterator[tuple[bytes, float, bytes]]:
        """Yields key, time and body of each part, by key and part."""

    def delete(self, keys: Sequence[bytes]) -> tuple[int, int]:
        """Deletes all parts of keys; returns how many those were, and their bytes with their keys."""

    def purge(self, before: float) -> tuple[int, int]:
        """Deletes the parts that are older than a time; returns what is left, counted alike."""

    def counts(self) -> tuple[int, int]:
        """Returns how many keys and parts there are; O(parts)."""

    def close(self) -> None:
        """Ends the use of the table."""
