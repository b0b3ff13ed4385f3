"""Orphans: objects that no manifest names any more, or that writers that died have left, and old manifests.

Always: an object that the newest manifest names is never deleted, nor a young object, since its manifest may
be on its way, nor an object that was replaced lately, since it may be read still; a manifest that is there
has all its objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from relay.archive.archive import MANIFESTS, Archive, manifest_name
from relay.archive.manifest import COLUMNS, SEGMENTS, STATES
from relay.archive.writing import store_time

KEPT_VERSIONS: Final = 1_000
"""Manifests that are kept, if no object that they name was replaced."""

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
    before = store_time(archive) - grace
    due = {each.path: each.version for each in newest.retired if each.time < before}
    replaced = max(due.values(), default=0)  # an earlier manifest names an object that goes now
    listed = archive.objects.listed(archive.name(MANIFESTS))
    old = [
        each
        for each in archive.versions()
        if each < replaced or (each <= newest.version - versions and listed[_base(each)].written < before)
    ]
    archive.objects.delete([archive.name(manifest_name(each)) for each in old])
    held = {*_named(archive), *[each.path for each in newest.retired if each.path not in due]}
    count = size = 0
    for folder in _folders(archive):
        found = {
            name: each
            for base, each in archive.objects.listed(archive.name(folder)).items()
            if (name := f"{folder}/{base}") not in held and (name in due or each.written < before)
        }
        archive.objects.delete(map(archive.name, found))
        count, size = count + len(found), size + sum([each.size for each in found.values()])
    return Collected(count, size, len(old))


def _folders(archive: Archive) -> Iterator[str]:
    """Yields the folders that objects are in: of segments, chapters, and columns by label and fields."""
    yield from (SEGMENTS, "chapters")
    for form in (COLUMNS, STATES):
        for label in archive.objects.folders(archive.name(form)):
            yield f"{form}/{label}"
            for arity in archive.objects.folders(archive.name(f"{form}/{label}")):
                yield f"{form}/{label}/{arity}"


def _named(archive: Archive) -> Iterator[str]:
    """Yields the objects of the newest version.

    Earlier versions name only replaced objects beside them, since ranges are only added.
    """
    for chapter in archive.manifest.chapters:
        yield chapter.path
    for each in archive.ranges():
        yield from [file.path for file in each.files]
    for state in archive.states():
        yield from [file.path for file in state.files]


def _base(version: int) -> str:
    return manifest_name(version).rpartition("/")[2]
