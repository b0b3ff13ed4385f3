"""Orphans: objects that no manifest names any more, or that writers that died have left, and old manifests.

An erasure commits a manifest without the erased values, which lists everything that it replaced as retired at
time 0.  That list is the record of the work left to do: whatever ends the eraser after its commit, the next
eraser, merger or archiving process deletes what is still there (``finish``).

Always: an object that the newest manifest names is never deleted, nor a young object, since its manifest may
be on its way, nor an object that was replaced lately, since it may be read still, unless by an erasure; a
manifest that is there has all its objects, or is to be deleted after an erasure.  Deletion needs the newest
manifest and listings alone, so no error in derived data (Delta tables) stops it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Set as AbstractSet
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from dataspace.faults import reach
from relay.archive.archive import MANIFESTS, Archive, manifest_name
from relay.archive.manifest import COLUMNS, SEGMENTS, STATES, Retired
from relay.archive.writing import store_time
from relay.objects.directory import UNNAMED

KEPT_VERSIONS: Final = 1_000
"""Manifests that are kept, if no object that they name was replaced."""

GRACE: Final = 86_400.0
"""Seconds for which an object that no manifest names is kept, by the clock of the store."""


DELTA_LOG: Final = "_delta_log"
"""The folder with the commits of a Delta table, in the folder of its label and number of fields."""

DELTA_ROWS: Final = "_rows"
"""The folder with rows of rare labels that were copied for a Delta table."""

_REST: Final = f"{COLUMNS}/rest"


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
        _delete_unfinished(archive, folder)
        count, size = count + len(found), size + sum([each.size for each in found.values()])
    return Collected(count, size, len(old))


def _delete_unfinished(archive: Archive, folder: str) -> None:
    """Deletes files of a Delta table that a killed process has begun to write; no commit names them."""
    for below in (DELTA_LOG, DELTA_ROWS) if folder.startswith(f"{COLUMNS}/label=") else ():
        name = archive.name(f"{folder}/{below}")
        left = [each for each in archive.objects.listed(name) if each.startswith(UNNAMED)]
        archive.objects.delete([f"{name}/{each}" for each in left])


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


# -- after an erasure ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Names in the store that erasures are still to delete: objects, manifests, and files of Delta tables.

    ``table_files`` are in the order in which they are to be deleted, so that a table is one in between.
    """

    objects: tuple[str, ...] = ()
    manifests: tuple[str, ...] = ()
    table_files: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.objects or self.manifests or self.table_files)

    @property
    def shown(self) -> str:
        """Returns the counts, for messages."""
        counts = (
            (len(self.objects), "objects"),
            (len(self.manifests), "manifests"),
            (len(self.table_files), "files of Delta tables"),
        )
        return ", ".join([f"{count} {what}" for count, what in counts if count])


def erased_objects(archive: Archive) -> list[Retired]:
    """Returns the objects that erasures replaced, as the manifest that was read last lists them."""
    return [each for each in archive.manifest.retired if not each.time]


def leftovers(archive: Archive) -> Leftovers:
    """Returns what erasures replaced and is still in the store.

    One listing for each folder concerned, and one read for each commit of the Delta tables concerned; nothing
    is read if the manifest lists no erased object.
    """
    erased = erased_objects(archive)
    if not erased:
        return Leftovers()
    by_folder = defaultdict[str, set[str]](set)
    for each in erased:
        folder, _, base = each.path.rpartition("/")
        by_folder[folder].add(base)
    objects = [
        archive.name(f"{folder}/{base}")
        for folder, bases in sorted(by_folder.items())
        for base in sorted(bases & archive.objects.listed(archive.name(folder)).keys())
    ]
    newest = max(each.version for each in erased)
    manifests = [archive.name(manifest_name(each)) for each in archive.versions() if each < newest]
    return Leftovers(tuple(objects), tuple(manifests), tuple(_table_files(archive, by_folder)))


def finish(archive: Archive) -> Leftovers:
    """Deletes what erasures replaced and is still in the store; returns what that was.

    May be called at any time and by several processes.  Raises ``StoreFailed`` if something could not be
    deleted; the next call deletes the rest.
    """
    found = leftovers(archive)
    for names in (found.table_files, found.objects, found.manifests):
        for name in names:
            reach("erase-before-delete")
            archive.objects.delete([name])
    return found


def _table_files(archive: Archive, erased: Mapping[str, set[str]]) -> Iterator[str]:
    """Yields the files of Delta tables that name erased objects, or that are copies of erased rows."""
    if _REST in erased:
        columns = archive.name(COLUMNS)
        labels = [each for each in archive.objects.folders(columns) if each != "rest"]
        folders = [
            f"{COLUMNS}/{label}/{arity}"
            for label in labels
            for arity in archive.objects.folders(f"{columns}/{label}")
        ]
    else:
        folders = sorted(each for each in erased if each.startswith(f"{COLUMNS}/"))
    copies = erased.get(_REST, set())
    for folder in folders:
        name = archive.name(folder)
        named = erased.get(folder, set()) | {f"{DELTA_ROWS}/{base}" for base in copies}
        copied = archive.objects.listed(f"{name}/{DELTA_ROWS}") if copies else {}
        yield from [f"{name}/{DELTA_ROWS}/{base}" for base in sorted(copies & copied.keys())]
        yield from _log_naming(archive, f"{name}/{DELTA_LOG}", named)


def _log_naming(archive: Archive, folder: str, named: AbstractSet[str]) -> Iterator[str]:
    """Yields all files of a table's log if one of its commits names some objects, else none.

    Checkpoints go first, then later commits before earlier ones: the commits that are left are numbered from
    0 in between.
    """
    there = sorted(archive.objects.listed(folder), reverse=True)
    commits = [each for each in there if each.endswith(".json")]
    if any(_names(archive.objects.get(f"{folder}/{each}"), named) for each in commits):
        yield from [f"{folder}/{each}" for each in there if each not in commits]
        yield from [f"{folder}/{each}" for each in commits]


def _names(commit: bytes, named: AbstractSet[str]) -> bool:
    """True if a commit adds or removes one of some files; true for a commit that cannot be read."""
    try:
        actions = [json.loads(line) for line in commit.splitlines()]
        paths = [
            unquote(action[verb]["path"])
            for action in actions
            for verb in ("add", "remove")
            if verb in action
        ]
    except (ValueError, KeyError, TypeError):
        return True
    return not named.isdisjoint(paths)
