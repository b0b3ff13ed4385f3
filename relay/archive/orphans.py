"""Orphans: objects that no manifest names, which writers that died have left, and old manifests.

Always: an object that a manifest names is never deleted, nor a young object, since its manifest may be on
its way.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from relay.archive.archive import MANIFESTS, Archive, manifest_name
from relay.archive.manifest import COLUMNS, SEGMENTS
from relay.objects.objects import PROBE

KEPT_VERSIONS: Final = 1_000
"""Manifests that are kept."""

GRACE: Final = 86_400.0
"""Seconds for which an object that no manifest names is kept, by the clock of the store."""


@dataclass(frozen=True, slots=True)
class Collected:
    """Counts of a collection: deleted objects without a manifest, their bytes, and deleted manifests."""

    objects: int
    bytes: int
    manifests: int


def collect(archive: Archive, *, versions: int = KEPT_VERSIONS, grace: float = GRACE) -> Collected:
    """Deletes old manifests, and old objects that no manifest names; one listing for each folder."""
    newest = archive.refresh()
    before = _now(archive) - grace
    listed = archive.objects.listed(archive.name(MANIFESTS))
    old = [
        each
        for each in archive.versions()
        if each <= newest.version - versions and listed[_base(each)].written < before
    ]
    archive.objects.delete([archive.name(manifest_name(each)) for each in old])
    named = {*_named(archive)}  # of all versions, since ranges are only added
    count = size = 0
    for folder in _folders(archive):
        found = {
            f"{folder}/{name}": each
            for name, each in archive.objects.listed(archive.name(folder)).items()
            if f"{folder}/{name}" not in named and each.written < before
        }
        archive.objects.delete(map(archive.name, found))
        count, size = count + len(found), size + sum([each.size for each in found.values()])
    return Collected(count, size, len(old))


def _folders(archive: Archive) -> Iterator[str]:
    """Yields the folders that objects are in: of segments, chapters, and columns by label and fields."""
    yield from (SEGMENTS, "chapters")
    for label in archive.objects.folders(archive.name(COLUMNS)):
        yield f"{COLUMNS}/{label}"
        for arity in archive.objects.folders(archive.name(f"{COLUMNS}/{label}")):
            yield f"{COLUMNS}/{label}/{arity}"


def _named(archive: Archive) -> Iterator[str]:
    for chapter in archive.manifest.chapters:
        yield chapter.path
    for each in archive.ranges():
        yield from [file.path for file in each.files]


def _now(archive: Archive) -> float:
    """Returns the time by the clock of the store."""
    name = f"{PROBE}-{uuid.uuid4().hex}"
    archive.objects.put(archive.name(name), b"written to find out the time; may be deleted\n")
    try:
        return archive.objects.listed(archive.place.folder)[name].written
    finally:
        archive.objects.delete([archive.name(name)])


def _base(version: int) -> str:
    return manifest_name(version).rpartition("/")[2]
