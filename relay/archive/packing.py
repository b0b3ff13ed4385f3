"""Segments as an object: the log's own bytes in compressed groups, and an index of the groups at its end.

    "dsz1"  group …  index  checksum of the index (8 bytes)  its length (4 bytes, big endian)  "dsz1"

A group is one zstd frame with about a mebibyte of segments, each the nine columns of its row in msgpack.  The
index is msgpack: for each group its offset, bytes, number of segments, first and last epoch, the time of the
last, and the checksum of the segment before, so that a group can be read and checked alone.  Its own checksum
is BLAKE2b.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from operator import attrgetter
from typing import Any, Final

from dataspace.codec import pack, unpack_own
from dataspace.errors import ProtocolError, UsageError
from relay.log.chain import rows_of_segments
from relay.log.segments import Segment
from relay.store.errors import LogDamaged

MAGIC: Final = b"dsz1"
LEVEL: Final = 3

GROUP_BYTES: Final = 1 << 20
"""Bytes of segments after which a group is closed."""

INDEX_BYTES: Final = 16 << 10
"""Bytes at the end of an object that are read first; they nearly always hold the whole index."""


@dataclass(frozen=True, slots=True)
class PackedGroup:
    """Where a group is in its object, its epochs, its latest time, and the checksum of the segment before."""

    offset: int
    size: int
    segments: int
    first: int
    last: int
    until: int
    previous: bytes


_INDEXED: Final = attrgetter("size", "segments", "first", "last", "until", "previous")
"""What the index has of a group behind its offset."""


class SegmentPacker:
    """Makes an object of segments that follow each other."""

    def __init__(self, previous: bytes) -> None:
        """``previous`` is the checksum of the segment before the first."""
        self._compress = _zstd().ZstdCompressor(LEVEL).compress
        self._parts = [MAGIC]
        self._at = len(MAGIC)
        self._index: list[tuple[Any, ...]] = []
        self._group: list[Segment] = []
        self._size = 0
        self._previous = previous

    def add(self, segment: Segment) -> None:
        """Adds the next segment; O(its bytes)."""
        self._group.append(segment)
        self._size += len(segment.body)
        if self._size >= GROUP_BYTES:
            self._close()

    def object(self) -> bytes:
        """Returns the object so far; more may be added afterwards."""
        if self._group:
            self._close()
        return _finished(self._parts, self._index)

    def _close(self) -> None:
        group, self._group, self._size = self._group, [], 0
        frame = self._compress(pack(tuple(rows_of_segments(group))))
        ends = group[0].first, group[-1].last, group[-1].until
        self._index.append((self._at, len(frame), len(group), *ends, self._previous))
        self._parts.append(frame)
        self._at += len(frame)
        self._previous = group[-1].checksum


def _finished(parts: Sequence[bytes], groups: Sequence[tuple[Any, ...]]) -> bytes:
    index = pack(tuple(groups))
    return b"".join([*parts, index, _checksum(index), len(index).to_bytes(4), MAGIC])


def joined_object(contents: Sequence[bytes], place: str) -> bytes:
    """Returns one object with the groups of several, as they are; O(bytes), without unpacking any."""
    parts, index, at = [MAGIC], list[tuple[Any, ...]](), len(MAGIC)
    for content in contents:
        size = index_size(content, place)
        groups = groups_of(content, place)
        parts.append(content[len(MAGIC) : len(content) - size])
        index += [(each.offset - len(MAGIC) + at, *_INDEXED(each)) for each in groups]
        at += len(parts[-1])
    return _finished(parts, index)


def index_size(tail: bytes, place: str) -> int:
    """Returns how many bytes of an object's end are its index and what follows; ``tail`` ends the object."""
    if len(tail) < _AFTER or tail[-4:] != MAGIC:
        raise LogDamaged(f"{place} is no object of segments, or was altered")
    return int.from_bytes(tail[-8:-4]) + _AFTER


def groups_of(tail: bytes, place: str) -> list[PackedGroup]:
    """Returns the index that the last ``index_size`` bytes of an object have."""
    index, checksum = tail[-index_size(tail, place) : -_AFTER], tail[-_AFTER:-8]
    if _checksum(index) != checksum:
        raise LogDamaged(f"{place} was altered: its index is not what was written")
    rows: Any = unpack_own(index)
    return [PackedGroup(*each) for each in rows]


def _checksum(index: bytes) -> bytes:
    return blake2b(index, digest_size=8).digest()


_AFTER: Final = 16
"""Bytes after the index."""


def segments_of(group: PackedGroup, frame: bytes, place: str) -> Iterator[Segment]:
    """Yields the segments of a group, each checked against the one before it; ``LogDamaged`` if altered."""
    previous = group.previous
    for segment in _unpacked(frame, place):
        if not segment.sealed_by(previous):
            raise LogDamaged(f"{place}: segment {segment.ordinal}, epochs {segment.first} on, was altered")
        yield segment
        previous = segment.checksum


def segments_in(content: bytes, place: str) -> Iterator[Segment]:
    """Yields the segments of a whole object."""
    for group in groups_of(content, place):
        yield from segments_of(group, content[group.offset : group.offset + group.size], place)


def _unpacked(frame: bytes, place: str) -> Sequence[Segment]:
    zstd = _zstd()
    try:
        rows: Any = unpack_own(zstd.ZstdDecompressor().decompress(frame))
        return [Segment(*row) for row in rows]
    except (zstd.ZstdError, ProtocolError, ValueError, TypeError) as error:
        raise LogDamaged(f"{place} was altered: a group cannot be read ({error!r:.100})") from None


def _zstd() -> Any:
    try:
        import zstandard  # needed for archives only
    except ImportError:
        raise UsageError("an archive needs zstandard: pip install 'dataspace-server[archive]'") from None
    return zstandard
