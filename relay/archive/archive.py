"""An archive to read: the newest manifest, the ranges that it names, and their segments.

Always: segments are handed out as the log wrote them, each checked against the one before it; memory is one
group of about a mebibyte for each reader, and the indexes of the objects that were read lately.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from operator import attrgetter
from threading import Lock
from typing import Any, Final, Generic, NamedTuple, TypeVar
from urllib.parse import quote, unquote

from dataspace.errors import Refused, UsageError
from index.patterns.skeletons import skeleton
from index.values.values import Value
from relay.archive.manifest import (
    COLUMNS,
    SEGMENTS,
    ArchivedFile,
    ArchivedState,
    ArchiveManifest,
    Chapter,
    ChapterBody,
    Range,
    chapter_of,
    manifest_of,
)
from relay.archive.packing import INDEX_BYTES, PackedGroup, groups_of, index_size, segments_of
from relay.log.segments import Segment
from relay.log.selections import Flat, flat_selection
from relay.objects.objects import NoSuchObject, Objects, StoreFailed
from relay.store.errors import LogDamaged
from relay.store.ports import Start

T = TypeVar("T")

MANIFESTS: Final = "manifest"

TOPICS: Final = "topics"
"""The folder of the archives of durable topics, below the folder of the log in the same home."""

REMEMBERED: Final = 64
"""Indexes of objects, and chapters, that are kept in memory."""


class ArchivePlace(NamedTuple):
    """Which log an archive is of: the name of its space, and its identity.

    The archive of a durable topic lies below the archive of ``main``; ``topic`` is the number of the topic.
    """

    space: str
    identity: str
    topic: int = 0

    @property
    def folder(self) -> str:
        """Returns the folder of the archive below its prefix."""
        log = f"{quote(self.space, safe='')}/{self.identity}"
        return f"{log}/{TOPICS}/{self.topic}" if self.topic else log


def manifest_name(version: int) -> str:
    """Returns the name of a manifest below the folder of its archive."""
    return f"{MANIFESTS}/{version:012}.json"


class Archive:
    """The archive of one log.  Any number of threads may read; all calls block."""

    def __init__(self, objects: Objects, place: ArchivePlace) -> None:
        self.objects: Final = objects
        self.place: Final = place
        self.shown: Final = f"{objects.shown.rstrip('/')}/{place.folder}"
        self._indexes: Final = _Remembered[list[PackedGroup]](self._read_index)
        self._chapters: Final = _Remembered[ChapterBody](self._read_chapter)
        self._manifest = ArchiveManifest(place.space, place.identity)

    def name(self, path: str) -> str:
        """Returns the name in the store of an object of this archive."""
        return f"{self.place.folder}/{path}"

    # -- manifests ------------------------------------------------------------------------------------

    @property
    def manifest(self) -> ArchiveManifest:
        """Returns the manifest that was read last; of version 0 if there was none."""
        return self._manifest

    def renew(self) -> None:
        with _reached():
            self.refresh()
            self._all_starts()

    def refresh(self) -> ArchiveManifest:
        """Reads the newest manifest; one listing, and one object if there is a newer one.

        Raises ``StoreFailed`` if there was one before, and now there is none.
        """
        versions = self.versions()
        if self._manifest.version and not versions:
            raise StoreFailed(
                f"{self.shown} has no manifest any more, the newest had the number "
                f"{self._manifest.version}: is another store mounted there?"
            )
        if versions and versions[-1] != self._manifest.version:
            self._manifest = self.version(versions[-1])
        return self._manifest

    def choose(self, version: int) -> None:
        """Reads from an earlier version from now on, until ``refresh``."""
        self._manifest = self.version(version)

    def versions(self) -> list[int]:
        """Returns the versions that there are, in order; one listing."""
        found = map(_NAMED.fullmatch, self.objects.listed(self.name(MANIFESTS)))
        return sorted(int(each[1]) for each in found if each)

    def version(self, version: int) -> ArchiveManifest:
        """Returns a version; ``UsageError`` if there is none, ``LogDamaged`` if it is of another log."""
        name = self.name(manifest_name(version))
        try:
            content = self.objects.get(name)
        except NoSuchObject:
            known = self.versions()
            there = f"; there are {known[0]} to {known[-1]}" if known else ""
            raise UsageError(f"{self.shown} has no version {version}{there}") from None
        found = manifest_of(content, f"{self.objects.shown}/{name}")
        if (found.identity, found.version) != (self.place.identity, version):
            raise LogDamaged(
                f"{self.objects.shown}/{name} is version {found.version} of the log {found.identity}"
            )
        return found

    # -- where it is ----------------------------------------------------------------------------------

    @property
    def oldest(self) -> int:
        """Returns the oldest epoch from which on all are here."""
        return self._manifest.first

    @property
    def upto(self) -> int:
        """Returns the newest archived epoch, 0 if there is none."""
        return self._manifest.upto

    @property
    def erased(self) -> int:
        """Returns the newest epoch that an erasure reached, 0 if there was none."""
        return self._manifest.erased

    def starts(self) -> list[Start]:
        """Returns the starts of the log within the archive, by ``first``; reads chapters not read yet."""
        with _reached():
            return self._all_starts()

    def _all_starts(self) -> list[Start]:
        manifest = self._manifest
        found = [start for chapter in manifest.chapters for start in self._chapter(chapter).starts]
        return [*found, *manifest.starts]

    def ranges(self, after: int = 0, upto: int | None = None) -> Iterator[Range]:
        """Yields the ranges with epochs in (after, upto], in order."""
        manifest = self._manifest
        for chapter in manifest.chapters:
            if chapter.last > after and (upto is None or chapter.first <= upto):
                yield from _within(self._chapter(chapter).ranges, after, upto)
        yield from _within(manifest.ranges, after, upto)

    def files(self, pattern: Value = None) -> Iterator[tuple[Range, ArchivedFile]]:
        """Yields all objects of this version, or those in columns that may have facts of a pattern.

        A fact with more fields matches as well.  Raises ``UsageError`` for a pattern without a label.
        """
        flat = None if pattern is None else labelled(pattern)
        for each in self.ranges():
            for file in each.files:
                if flat is None or (file.form == COLUMNS and may_have(file, flat)):
                    yield each, file

    def states(self) -> Iterator[ArchivedState]:
        """Yields the states, in order of their epochs; reads chapters not read yet."""
        for chapter in self._manifest.chapters:
            yield from self._chapter(chapter).states
        yield from self._manifest.states

    def body(self, chapter: Chapter) -> ChapterBody:
        """Returns what a chapter has."""
        return self._chapter(chapter)

    def content(self, file: ArchivedFile) -> bytes:
        """Returns an object, whole; ``LogDamaged`` if it is not what was written."""
        content = self.objects.get(self.name(file.path))
        if sha256(content).hexdigest() != file.sha256:
            raise LogDamaged(f"{self.shown}/{file.path} was altered: its SHA-256 is not that of the manifest")
        return content

    def erased_at(self, after: int = 0, upto: int | None = None) -> int:
        """Returns when rows of the ranges with epochs in (after, upto] were erased last, 0 for never.

        In microseconds since 1970.  O(ranges) where something was erased.
        """
        if not self._manifest.erased:
            return 0
        with _reached():
            return max([each.at for of in self.ranges(after, upto) for each in of.erasures], default=0)

    def segments_after(self, epoch: int) -> int:
        """Returns how many segments the ranges with later epochs have."""
        with _reached():
            return self._segments_after(epoch)

    def _segments_after(self, epoch: int) -> int:
        return sum([each.segments[1] - each.segments[0] + 1 for each in self.ranges(epoch)])

    def time_of(self, epoch: int) -> int:
        """Returns the time of an epoch, or of the newest before it; 0 before all."""
        with _reached():
            return self._time_of(epoch)

    def _time_of(self, epoch: int) -> int:
        time, groups = 0, self._groups_from(lambda part: part.last >= epoch)
        for place, group in groups:
            if group.first > epoch:
                return time
            for segment in self._group(place, group):
                for number, at in _numbers(segment):
                    if number > epoch:
                        return time
                    time = at
        return time

    def epoch_at(self, time: int) -> int:
        """Returns the newest epoch that was made at a time in microseconds, or before it."""
        with _reached():
            return self._epoch_at(time)

    def _epoch_at(self, time: int) -> int:
        found = self.oldest - 1
        for place, group in self._groups_from(lambda part: part.until > time):
            for segment in self._group(place, group):
                for number, at in _numbers(segment):
                    if at > time:
                        return found
                    found = number
        return found

    def _groups_from(
        self, wanted: Callable[[Chapter | Range | PackedGroup], bool]
    ) -> Iterator[tuple[Range, PackedGroup]]:
        """Yields the groups from the one before the first for which ``wanted`` is true on, in order."""
        manifest = self._manifest
        chapter = next((each for each in manifest.chapters if wanted(each)), None)
        ranges = manifest.ranges if chapter is None else self._chapter(chapter).ranges
        place = next((at for at, each in enumerate(ranges) if wanted(each)), len(ranges))
        for of in ranges[max(0, place - 1) :]:
            groups = self.groups(of)
            first = next((at for at, each in enumerate(groups) if wanted(each)), len(groups))
            for group in groups[max(0, first - 1) :]:
                yield of, group

    def _chapter(self, chapter: Chapter) -> ChapterBody:
        return self._chapters.get(chapter)

    def _read_chapter(self, chapter: Chapter) -> ChapterBody:
        name = self.name(chapter.path)
        return chapter_of(self.objects.get(name), chapter, f"{self.objects.shown}/{name}")

    # -- segments -------------------------------------------------------------------------------------

    def segments(self, after: int, upto: int) -> Iterator[Segment]:
        """Yields the segments with epochs in (after, upto], in order; ``LogDamaged`` at an altered one.

        One request for about a mebibyte of segments, and one for the index of an object.
        """
        with _reached():
            yield from self._segments(after, upto)

    def _segments(self, after: int, upto: int) -> Iterator[Segment]:
        """Yields them; goes on in the newest version where an erasure has deleted an object meanwhile."""
        seen = 0
        while True:
            version = self._manifest.version
            try:
                for segment in self._segments_now(after, upto):
                    if segment.ordinal > seen:
                        seen = segment.ordinal
                        yield segment
                return
            except NoSuchObject:
                if self.refresh().version == version:
                    raise

    def _segments_now(self, after: int, upto: int) -> Iterator[Segment]:
        for range_ in self.ranges(after, upto):
            for group in self.groups(range_):
                if group.last > after and group.first <= upto:
                    for segment in self._group(range_, group):
                        if segment.last > after:
                            if segment.first > upto:
                                break
                            yield segment

    def segments_until(self, until: int) -> Iterator[Segment]:
        """Yields the segments from the first whose ``until`` is at least so much, and some before."""
        with _reached():
            manifest = self._manifest
            later = [each for each in manifest.chapters if each.until >= until]
            for chapter in later:
                yield from self._until(until, self._chapter(chapter).ranges)
            yield from self._until(until, manifest.ranges)

    def _until(self, until: int, ranges: Iterable[Range]) -> Iterator[Segment]:
        for of in ranges:
            for group in self.groups(of) if of.until >= until else ():
                if group.until >= until:
                    yield from self._group(of, group)

    def segments_of(self, of: Range) -> Iterator[Segment]:
        """Yields the segments of a range, each group checked within itself."""
        for group in self.groups(of):
            yield from self._group(of, group)

    def _group(self, of: Range, group: PackedGroup) -> Iterator[Segment]:
        name = self.name(of.file(SEGMENTS).path)
        frame = self.objects.get_part(name, group.offset, group.offset + group.size)
        return segments_of(group, frame, f"{self.objects.shown}/{name}")

    def groups(self, of: Range) -> list[PackedGroup]:
        """Returns the index of a range's segments; one request or two, unless it was read lately."""
        return self._indexes.get(of.file(SEGMENTS))

    def _read_index(self, file: ArchivedFile) -> list[PackedGroup]:
        name = self.name(file.path)
        place = f"{self.objects.shown}/{name}"
        tail = self.objects.get_part(name, max(0, file.size - INDEX_BYTES), file.size)
        size = index_size(tail, place)
        if size > len(tail):
            tail = self.objects.get_part(name, max(0, file.size - size), file.size)
        return groups_of(tail, place)


@contextmanager
def _reached() -> Iterator[None]:
    """Turns failures of the store into refusals of the request that needed it."""
    try:
        yield
    except StoreFailed as failure:
        raise Refused("archive-away", f"the archive could not be read: {failure}") from failure


class _Remembered(Generic[T]):
    """The content of objects by their paths; the objects that were used last are in memory."""

    def __init__(self, read: Callable[[Any], T]) -> None:
        self._read = read
        self._lock: Final = Lock()
        self._known: OrderedDict[str, T] = OrderedDict()

    def get(self, of: ArchivedFile | Chapter) -> T:
        """Returns what an object holds; reads it if it is not in memory."""
        with self._lock:
            if of.path in self._known:
                self._known.move_to_end(of.path)
                return self._known[of.path]
        found = self._read(of)
        with self._lock:
            self._known[of.path] = found
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return found


_IDENTITY: Final = re.compile(r"[0-9a-f]{32}")

_NAMED: Final = re.compile(r"(\d{12})\.json")


def labelled(pattern: Value) -> Flat:
    """Returns what selects from plain rows; ``UsageError`` for a pattern without a label."""
    flat = flat_selection(skeleton(pattern))
    if flat is None or not isinstance(flat.label, str):
        raise UsageError(
            "files are listed by label: give a pattern such as flight($id, _), with a label, "
            "whose fields are captures, constants or _"
        )
    return flat


def may_have(file: ArchivedFile, flat: Flat) -> bool:
    """True if an object in columns may have facts of a pattern."""
    return file.label is None or (file.label == flat.label and file.arity >= flat.parts - 1)


def _numbers(segment: Segment) -> Iterator[tuple[int, int]]:
    """Yields number and time of each epoch of a segment."""
    for number, time, *_ in segment.rows_after(0, segment.last):
        yield number, time


def _within(ranges: Sequence[Range], after: int, upto: int | None) -> Iterator[Range]:
    for each in ranges[bisect_right(ranges, after, key=attrgetter("last")) :]:
        if upto is not None and each.first > upto:
            return
        yield each


def archives_in(objects: Objects, space: str | None = None) -> list[ArchivePlace]:
    """Returns the archives below a prefix, of one space or of all."""
    names = objects.folders() if space is None else [quote(space, safe="")]
    return sorted(
        ArchivePlace(unquote(name), identity)
        for name in names
        for identity in objects.folders(name)
        if _IDENTITY.fullmatch(identity)
    )


def topics_in(archive: Archive) -> list[Archive]:
    """Returns the archives of the durable topics beside a log, by the numbers of the topics; not read yet."""
    names = archive.objects.folders(archive.name(TOPICS))
    numbers = sorted([int(each) for each in names if each.isdecimal()])
    return [Archive(archive.objects, archive.place._replace(topic=each)) for each in numbers]


def only_archive(objects: Objects, space: str, identity: str = "") -> Archive:
    """Opens the archive of a space's log; ``UsageError`` where there is none, or several to choose from."""
    found = [each for each in archives_in(objects, space) if identity in ("", each.identity)]
    if len(found) > 1:
        newest = [f"{each.identity} up to epoch {Archive(objects, each).refresh().upto}" for each in found]
        raise UsageError(
            f"{objects.shown} has archives of {len(found)} logs of the space {space}: {', '.join(newest)}; "
            "choose one by its identity"
        )
    if not found:
        if others := archives_in(objects, space):
            there = ", ".join([each.identity for each in others])
            raise UsageError(
                f"{objects.shown} has no archive of the log {identity} of space {space}; there are {there}"
            )
        there = ", ".join(sorted({each.space for each in archives_in(objects)}))
        raise UsageError(
            f"{objects.shown} has no archive of the space {space}" + (f"; there are {there}" if there else "")
        )
    archive = Archive(objects, found[0])
    archive.refresh()
    return archive
