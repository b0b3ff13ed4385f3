"""Archiving: the next range of a log's segments becomes an object, and then a manifest names it.

An object is written under a name that no other has, read back and compared, and only then named by a new
manifest, which is created if there is none of its number.  A process that dies in between leaves objects that
no manifest names; ``orphans`` deletes them later.

Always: each epoch is in one range, in order, or in a stretch that the manifest says is missing; an archive
has no epoch that its log does not have, or had.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from importlib.util import find_spec
from itertools import zip_longest
from typing import Any, Final, Protocol

from dataspace.errors import Refused
from dataspace.faults import reach
from relay.archive.archive import Archive, ArchivePlace
from relay.archive.columns import Types, columns_of, state_of
from relay.archive.manifest import SEGMENTS, STATES, ArchivedFile, ArchivedState, ArchiveManifest, Range
from relay.archive.packing import SegmentPacker, segments_in
from relay.archive.writing import ArchiveWriter, NotThisArchive, random_name
from relay.log.chain import READ_BYTES
from relay.log.reader import LogReader
from relay.log.replay import state_at
from relay.log.segments import Segment
from relay.objects.objects import Objects
from relay.objects.opening import check_creation
from relay.store.errors import LogDamaged
from relay.store.ports import Start

RANGE_CHANGES: Final = 262_144
RANGE_BYTES: Final = 64 << 20
"""Changes, and bytes of segments, after which a range is closed; one segment is never divided."""

RANGE_SECONDS: Final = 3600.0
"""How long an epoch waits at most for its range to be closed."""


@dataclass(frozen=True, slots=True)
class RangeSizes:
    """When a range is closed: changes, bytes of its segments, seconds since its first epoch."""

    changes: int = RANGE_CHANGES
    bytes: int = RANGE_BYTES
    seconds: float = RANGE_SECONDS


class Source(Protocol):
    """The segments of one chain to be archived, numbered by epochs (of a topic: by positions of steps).

    ``LogReader`` has the same names.
    """

    @property
    def identity(self) -> str:
        """Returns the identity of the log, or of the log beside a topic."""

    @property
    def held_from(self) -> int:
        """Returns the oldest number that is held."""

    @property
    def last(self) -> int:
        """Returns the newest number."""

    @property
    def archived(self) -> int:
        """Returns the newest number that an archive is known to have, 0 if none."""

    @property
    def archived_segment(self) -> int:
        """Returns the ordinal of the segment of that."""

    @property
    def archived_in(self) -> str:
        """Returns the identity of that archive."""

    @property
    def first_segment(self) -> int:
        """Returns the ordinal of the oldest segment."""

    def refresh(self) -> bool:
        """Reads where it begins and ends now."""

    def starts(self) -> list[Start]:
        """Returns the starts of a log."""

    def tail(self, ordinal: int, size: int = READ_BYTES) -> list[Segment]:
        """Returns about so many bytes of the segments after an ordinal."""

    def segments(self, after: int, upto: int) -> Iterator[Segment]:
        """Returns the segments with numbers in (after, upto]."""

    def ordinal_after(self, epoch: int) -> int:
        """Returns the ordinal of the first segment with a number later than this."""

    def checksum_of(self, ordinal: int) -> bytes:
        """Returns the checksum of a segment, or of the one before the oldest."""

    def close(self) -> None:
        """Ends the reading."""


class Archiver:
    """The one writer of an archive, for one log.  For one thread at a time; all calls block.

    It reads each segment once, as ``LogReader.tail`` hands it out, and holds the range that is open,
    compressed: a fourth of ``RangeSizes.bytes`` or so.
    """

    def __init__(
        self,
        log: Source,
        objects: Objects,
        space: str,
        *,
        term: int = 0,
        sizes: RangeSizes | None = None,
        topic: int = 0,
    ) -> None:
        """``term`` is the number of the leading daemon's term.  ``log`` is for this archiver alone."""
        self.log: Final = log
        self.archive: Final = Archive(objects, ArchivePlace(space, log.identity, topic))
        self.writer: Final = ArchiveWriter(self.archive, term)
        self.sizes: Final = sizes or RangeSizes()
        self._makes_columns = not topic and find_spec("pyarrow") is not None
        self._open: _OpenRange | None = None
        self._oldest = 1
        self._ordinal = 0

    def begin(self) -> ArchiveManifest:
        """Begins after what is archived, or begins again after an error.

        Raises ``StoreFailed`` where objects can be created twice, and ``NotThisArchive`` if the archive is
        not of this log.  It reads again what the archive has beyond the log's own note of it, at most.
        """
        check_creation(self.archive.objects)
        self.log.refresh()
        manifest = self.archive.refresh()
        self.writer.check_term(manifest)
        known = self.log.archived if self.log.archived_in == manifest.archive else 0
        for each in self.archive.ranges(known):
            self._check_same(each)
        self._open, self._oldest = None, self.log.held_from
        self._ordinal = archived_segment(self.log, self.archive)
        return manifest

    def _check_same(self, of: Range) -> None:
        """Raises ``NotThisArchive`` unless the log has the epochs of a range, or had them and let them go."""
        log = self.log
        if log.checksum_of(of.segments[1]) == bytes.fromhex(of.checksum) or of.last < log.held_from:
            return
        if of.last > log.last or any(one != other for one, other in self._side_by_side(of)):
            raise NotThisArchive(
                f"{self.archive.shown} has epochs {of.first} to {of.last}, which are not those of the log: "
                "another daemon writes this archive from a copy of the directory, or the log went back"
            )

    def _side_by_side(self, of: Range) -> Iterator[tuple[object, object]]:
        """Yields the epochs of a range in the archive and in the log, where segments may be others by now."""
        ends = max(of.first, self.log.held_from) - 1, of.last
        sources = self.archive.segments(*ends), self.log.segments(*ends)
        archived, logged = [(row for each in source for row in self._rows(each, *ends)) for source in sources]
        if of.erasures:
            return zip_longest(map(_counted, archived), map(_counted, logged))
        return zip_longest(archived, logged)

    # -- what differs where another thing than a log is archived --------------------------------------

    def _rows(self, segment: Segment, after: int, upto: int) -> Iterator[object]:
        """Yields the entries of a segment in (after, upto]."""
        return segment.rows_after(after, upto)

    def _beyond(self, segment: Segment, last: int) -> Segment:
        """Returns what of a segment is later than ``last``, under the old seal; itself if all is."""
        return segment.beyond(last)

    def _began(self, segment: Segment) -> int:
        """Returns the time of the first entry of a segment, in microseconds."""
        return segment.since

    def _described(self, before: ArchiveManifest, following: ArchiveManifest) -> ArchiveManifest:
        """Returns a manifest, described further."""
        return following

    # -- a range --------------------------------------------------------------------------------------

    def read(self) -> bool:
        """Takes some of the segments that wait into the open range; False if none wait, or it is full.

        Raises ``Refused("epoch-gone")`` if the log let them go: then ``begin`` again.
        """
        if self._is_full():
            return False
        found = self.log.tail(self._ordinal, READ_BYTES)
        for segment in found:
            self._ordinal = segment.ordinal
            if self._open is None:
                self._open = self._open_with(segment)
            else:
                self._open.add(segment)
            if self._is_full():
                break
        return bool(found)

    def _open_with(self, segment: Segment) -> _OpenRange:
        """Opens a range with a segment.

        The log may have been compacted before it knew what is archived.  Then a segment may have archived
        epochs as well: its new part is sealed anew, and is a range by itself.
        """
        previous = self._checksum_before(segment)
        new = self._beyond(segment, self.archive.upto)
        is_cut = new is not segment
        segment = new.resealed(previous) if is_cut else segment
        made = _OpenRange(segment, previous, self._began(segment), is_cut=is_cut)
        made.add(segment)
        return made

    def _checksum_before(self, segment: Segment) -> bytes:
        """Returns the checksum that a segment is sealed to.

        The segment before is archived already, so the log may have let it go since the last look.
        """
        for _ in range(2):
            previous = self.log.checksum_of(segment.ordinal - 1)
            if segment.sealed_by(previous):
                return previous
            self.log.refresh()
        raise Refused("epoch-gone", f"segment {segment.ordinal} of {self.archive.shown} was let go meanwhile")

    def _is_full(self) -> bool:
        of, sizes = self._open, self.sizes
        return of is not None and (of.is_cut or of.changes >= sizes.changes or of.bytes >= sizes.bytes)

    @property
    def waiting(self) -> int:
        """Returns the bytes of segments in the open range."""
        return 0 if self._open is None else self._open.bytes

    def is_due(self, now: int) -> bool:
        """True if the open range is full, or has waited long enough; ``now`` is in microseconds."""
        of = self._open
        return self._is_full() or (of is not None and now - of.began >= self.sizes.seconds * 1e6)

    def close(self) -> Range | None:
        """Archives the open range; None if it has no epoch.

        Raises ``StoreFailed`` or ``NotThisArchive``; then ``begin`` again.
        """
        if self._open is None or self._open.last <= self.archive.upto:
            return None  # entries without an epoch of their own go with the next epoch
        self.log.refresh()
        known = self.archive.manifest
        manifest = self.archive.refresh()
        self.writer.check_term(manifest)
        if manifest.upto != known.upto:  # it has a part of the open range by now
            raise NotThisArchive(f"{self.archive.shown} got version {known.version + 1} from another writer")
        with self.writer.attempt():
            return self._closed(manifest, *self._open.finish())

    def _closed(self, manifest: ArchiveManifest, added: Range, content: bytes) -> Range:
        """Writes the objects of the open range and the manifest that names them."""
        self.writer.put(added.file(SEGMENTS), content)
        types: dict[str, str] = {}
        state = None
        if self._makes_columns:
            state, types = self._state(manifest)
            added, settled = self._with_columns(added, content, {**manifest.types, **types})
            types |= settled
        reach("archive-before-manifest")
        starts = [each for each in self.log.starts() if manifest.upto < each[0] <= added.last]
        following = manifest.followed_by(added, starts, self._oldest, types)
        if state is not None:
            following = replace(following, states=(*following.states, state))
        following = self._described(manifest, following)
        self.writer.commit(self.writer.with_chapter(following))
        reach("archive-after-manifest")
        self.archive.refresh()
        self._open, self._oldest = None, 1
        return added

    def _with_columns(self, added: Range, content: bytes, types: Types) -> tuple[Range, dict[str, str]]:
        """Writes the columns of a range; returns the range with them, and newly settled classes."""
        made, settled = columns_of(segments_in(content, self.archive.shown), types)
        files = self.writer.put_columns(made, random_name(added.first, added.last, "parquet"))
        net = sum([each.net for each in made])
        return replace(added, files=(*added.files, *files), net=net), settled

    def _state(self, manifest: ArchiveManifest) -> tuple[ArchivedState | None, dict[str, str]]:
        """Writes the state before the first epoch of an archive, or after missing ones, as the log has it.

        None after the last archived epoch, and where nothing held.
        """
        epoch = self._oldest - 1
        if epoch <= manifest.upto or not isinstance(self.log, LogReader):
            return None, {}
        try:
            facts = state_at(self.log, epoch)
        except LogDamaged:
            return None, {}  # segments are archived all the same
        time = self.log.time_of(epoch)
        made, settled = state_of(facts, epoch, time, manifest.types)
        name = f"{epoch:012}-{uuid.uuid4().hex[:12]}.parquet"
        files = self.writer.put_columns(made, name, STATES)
        return ArchivedState(epoch, time, len(facts), epoch, tuple(files)), settled


def _counted(row: Any) -> object:
    """Returns what an erasure leaves of an entry: its number, time and counts."""
    return row[:3]


class _OpenRange:
    """The range that is being made: its segments, compressed, and their sums."""

    def __init__(self, first: Segment, previous: bytes, began: int, *, is_cut: bool) -> None:
        self.is_cut: Final = is_cut
        self._first = self._last = first
        self.last = 0
        self._previous = previous
        self._packer = SegmentPacker(previous)
        self.changes = self.bytes = self._entries = 0
        self.began: Final = began

    def add(self, segment: Segment) -> None:
        """Takes the next segment in; O(its bytes)."""
        self._packer.add(segment)
        self._last, self.last = segment, segment.last
        self._entries += segment.entries
        self.changes += segment.changes
        self.bytes += len(segment.body)

    def finish(self) -> tuple[Range, bytes]:
        """Returns the range, and its object of segments, which has a name of its own in each attempt."""
        first, last = self._first, self._last
        content = self._packer.object()
        name = f"{SEGMENTS}/{random_name(first.first, last.last, 'dsz')}"
        new_range = Range(
            first.first,
            last.last,
            first.since,
            last.until,
            self._entries,
            self.changes,
            self.bytes,
            (first.ordinal, last.ordinal),
            self._previous.hex(),
            last.checksum.hex(),
            (ArchivedFile(name, SEGMENTS, len(content), sha256(content).hexdigest()),),
        )
        return new_range, content


def archived_segment(log: Source, archive: Archive) -> int:
    """Returns the ordinal of the newest segment of a log that its archive has, or that the log let go.

    Entries that have no epoch of their own may follow the newest archived epoch, so that does not say it.
    """
    upto = archive.upto
    if log.held_from > upto + 1:
        return log.ordinal_after(log.held_from - 1) - 1
    if upto and (upto, archive.manifest.archive) == (log.archived, log.archived_in):
        return log.archived_segment
    for newest in list(archive.ranges(upto - 1))[-1:]:
        ordinal = newest.segments[1]
        if ordinal >= log.first_segment and log.checksum_of(ordinal) == bytes.fromhex(newest.checksum):
            return ordinal
    return log.ordinal_after(upto) - 1


def archive_all(archiver: Archiver, report: Callable[[Range], None]) -> int:
    """Archives everything that a log has now, and returns how many ranges that made."""
    count = 0
    while True:
        while archiver.read():
            pass
        added = archiver.close()
        if added is None:
            return count
        report(added)
        count += 1
