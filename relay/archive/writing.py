"""Writing an archive: objects that are read back, and the next manifest, which one writer creates.

Archiving, merging and erasure differ in what the next manifest says; how it comes to be is the same.

Always: a manifest names only objects that were read back; of two writers of one version one is refused.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from hashlib import sha256
from typing import Final

from dataspace.errors import DataspaceError
from dataspace.faults import reach
from relay.archive.archive import Archive, manifest_name
from relay.archive.columns import ColumnObject
from relay.archive.manifest import (
    CHAPTER,
    COLUMNS,
    ArchivedFile,
    ArchiveManifest,
    Chapter,
    ChapterBody,
    manifest_of,
    packed,
)
from relay.objects.objects import PROBE, NoSuchObject, StoreFailed


class NotThisArchive(DataspaceError):
    """The archive has epochs that the log does not have, or another process writes it."""

    code: Final = "not-this-archive"


class ArchiveWriter:
    """What writes one archive.  For one thread at a time; all calls block."""

    def __init__(self, archive: Archive, term: int | None) -> None:
        """``term`` is the number of the leading daemon's term; None for the term that the archive has."""
        self.archive: Final = archive
        self.term: Final = term
        self._unnamed: list[str] = []

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Writes objects for one manifest; deletes them if the block ends before that was to be created.

        So an error that comes again with each attempt does not fill the store.  What a store that is away or
        a killed process leaves is deleted a day later, as is what a manifest names that was not confirmed.
        """
        self._unnamed = []
        try:
            yield
        except Exception:
            with suppress(StoreFailed):
                self.archive.objects.delete(self._unnamed)
            raise
        finally:
            self._unnamed = []

    def check_term(self, manifest: ArchiveManifest) -> None:
        """Raises ``NotThisArchive`` if a later leader writes the archive."""
        if self.term is not None and manifest.term > self.term:
            raise NotThisArchive(
                f"{self.archive.shown} is written by a later leader, of term {manifest.term}; "
                f"this is {self.term}"
            )

    def overtaken(self) -> NotThisArchive:
        """Returns the error of a writer whose version another one wrote."""
        known = self.archive.manifest.version
        return NotThisArchive(f"{self.archive.shown} got version {known + 1} from another writer")

    # -- objects --------------------------------------------------------------------------------------

    def put(self, file: ArchivedFile, content: bytes) -> None:
        """Writes an object and reads it back."""
        name = self.archive.name(file.path)
        self._unnamed.append(name)
        self.archive.objects.put(name, content)
        reach("archive-after-object")
        if sha256(self.archive.objects.get(name)).hexdigest() != file.sha256:
            raise StoreFailed(f"{self.archive.objects.shown}/{name} is not what was written there")

    def put_columns(self, new: Iterable[ColumnObject], name: str, form: str = COLUMNS) -> list[ArchivedFile]:
        """Writes objects of columns, each in the folder of its label."""
        files: list[ArchivedFile] = []
        for item in new:
            size, checksum = len(item.content), sha256(item.content).hexdigest()
            path = f"{form}/{item.folder}/{name}"
            own = item.label, item.arity, item.rows, item.others, item.order
            files.append(ArchivedFile(path, form, size, checksum, *own))
            self.put(files[-1], item.content)
        return files

    def put_chapter(self, body: ChapterBody) -> Chapter:
        """Writes a chapter."""
        content = packed(body)
        path = f"chapters/{uuid.uuid4().hex}.json"
        checksum = sha256(content).hexdigest()
        self.put(ArchivedFile(path, "chapter", len(content), checksum), content)
        ranges = body.ranges
        ends = ranges[0].first, ranges[-1].last, ranges[-1].until
        return Chapter(path, len(content), checksum, *ends, len(ranges))

    def with_chapter(self, manifest: ArchiveManifest) -> ArchiveManifest:
        """Returns a manifest whose oldest ranges are in a chapter if there are many; writes that."""
        if len(manifest.ranges) < 2 * CHAPTER:
            return manifest
        closed = manifest.ranges[:CHAPTER]
        starts = tuple(each for each in manifest.starts if each[0] <= closed[-1].last)
        states = tuple(each for each in manifest.states if each.epoch < closed[-1].last)
        chapter = self.put_chapter(ChapterBody(closed, starts, states))
        return replace(
            manifest,
            chapters=(*manifest.chapters, chapter),
            ranges=manifest.ranges[CHAPTER:],
            starts=manifest.starts[len(starts) :],
            states=manifest.states[len(states) :],
        )

    # -- manifests ------------------------------------------------------------------------------------

    def commit(self, manifest: ArchiveManifest) -> None:
        """Creates a manifest, and reads it; raises ``NotThisArchive`` if another writer was first.

        An answer that was lost is found out by reading: a manifest with our word is ours.
        """
        term = manifest.term if self.term is None else self.term
        identity = manifest.archive or uuid.uuid4().hex
        unnamed, self._unnamed = self._unnamed, []  # the manifest may be there from now on, and names them
        if not self._is_created(replace(manifest, term=term, writer=uuid.uuid4().hex, archive=identity)):
            self._unnamed = unnamed
            raise self.overtaken()

    def _is_created(self, manifest: ArchiveManifest) -> bool:
        name = self.archive.name(manifest_name(manifest.version))
        try:
            if self.archive.objects.create(name, packed(manifest)):
                return True
        except StoreFailed:
            if not self._is_there(name, manifest.writer):
                raise
            return True
        return self._is_there(name, manifest.writer)

    def _is_there(self, name: str, writer: str) -> bool:
        try:
            return manifest_of(self.archive.objects.get(name), name).writer == writer
        except NoSuchObject:
            return False


def store_time(archive: Archive) -> float:
    """Returns the time by the clock of the store, in seconds; writes and deletes an object."""
    name = f"{PROBE}-{uuid.uuid4().hex}"
    archive.objects.put(archive.name(name), b"written to find out the time; may be deleted\n")
    try:
        return archive.objects.listed(archive.place.folder)[name].written
    finally:
        archive.objects.delete([archive.name(name)])


def random_name(first: int, last: int, ending: str) -> str:
    """Returns the name of an object with epochs, which no other object has."""
    return f"{first:012}-{last:012}-{uuid.uuid4().hex[:12]}.{ending}"
