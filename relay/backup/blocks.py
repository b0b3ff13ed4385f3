"""A backup in a store of objects: its files in blocks that have the names of their checksums.

A store has no files that grow and no renames.  So each file of a backup is cut into blocks of one size, each
an object named by its SHA-256, and a manifest that is written last names them.  A block that is there already
is not written again: that makes a copy incremental, and an interrupted one continue.

Always: the newest manifest whose own checksum holds names a whole backup; blocks are deleted only when a
newer manifest is there, was read back, and does not name them; a fetched backup has every checksum that its
manifest names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Final

from dataspace.errors import UsageError
from dataspace.faults import reach
from relay.backup.copies import CopyPace
from relay.backup.logs import NotThisLog
from relay.backup.manifest import NAME, Manifest
from relay.objects.objects import PROBE, StoreFailed
from relay.objects.remote import RemoteObjects
from relay.store.errors import LogDamaged
from relay.store.private import DIRECTORY_MODE, make_private
from relay.store.sqlite.failures import translated
from relay.store.sqlite.storage import flush

BLOCK_BYTES: Final = 4 << 20
"""Bytes of a block, but for the last one of each file; a row that changed costs one of them."""

FORMAT: Final = 1
LOCK: Final = "lock"

_BLOCK: Final = re.compile(r"block-([0-9a-f]{64})")
_INDEX: Final = re.compile(r"manifest-(\d{8})-([0-9a-f]{64})\.json")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file: its path in the backup, its bytes, and the checksums of its blocks."""

    path: str
    size: int
    blocks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stored:
    """One backup in a store: its place among others, the log of ``main`` that it is of, its files."""

    number: int
    identity: str
    files: tuple[StoredFile, ...]

    def sizes(self) -> dict[str, int]:
        """Returns the bytes that each block has, by the names of their objects."""
        return {
            f"block-{block}": min(BLOCK_BYTES, file.size - place * BLOCK_BYTES)
            for file in self.files
            for place, block in enumerate(file.blocks)
        }


@dataclass(frozen=True, slots=True)
class Pushed:
    """Counts of a push to a store: blocks, their bytes, the bytes of the backup, and objects not deleted.

    ``kept`` says why objects that are not needed any more could not be deleted; empty if they could.
    """

    blocks: int
    bytes: int
    held: int
    kept: str


def newest(store: RemoteObjects) -> Stored | None:
    """Returns the newest backup in a store that was written whole; None if there is none."""
    for match in sorted(filter(None, map(_INDEX.fullmatch, store.sizes())), key=_order, reverse=True):
        body = store.get(match[0])
        if sha256(body).hexdigest() == match[2]:
            return _parsed(body, store)
    return None


def wanted(store: RemoteObjects) -> Stored:
    """Returns the newest backup in a store; ``UsageError`` where there is none."""
    found = newest(store)
    if found is None:
        raise UsageError(f"{store.shown} is no backup: there is no manifest in it")
    return found


def check_identity(before: Stored | None, identity: str, store: RemoteObjects) -> None:
    """Raises ``NotThisLog`` if a store has a backup of another log."""
    if before is not None and before.identity != identity:
        raise NotThisLog(
            f"{store.shown} holds a backup of the log {before.identity}, this one is {identity}; "
            "back up to another URL"
        )


def push(backup: Path, store: RemoteObjects, pace: CopyPace) -> Pushed:
    """Writes what a store lacks of the backup in a directory, which must not change meanwhile.

    Raises ``StoreFailed``; written blocks stay, and another call continues.
    """
    before, there = newest(store), store.sizes()
    identity = Manifest.read(backup).spaces[0].identity
    check_identity(before, identity, store)
    written: dict[str, int] = {}
    files = tuple([_push_file(backup, path, store, there, written, pace) for path in _files(backup)])
    stored = Stored(_highest(there) + 1, identity, files)  # above one that was not written whole, too
    reach("push-before-manifest")
    name = _put_index(stored, store)
    _check(stored, name, store)
    kept = _forget(store, {*there, PROBE} - {*stored.sizes(), name})
    return Pushed(len(written), sum(written.values()), sum([each.size for each in files]), kept)


def _push_file(
    backup: Path,
    path: str,
    store: RemoteObjects,
    there: dict[str, int],
    written: dict[str, int],
    pace: CopyPace,
) -> StoredFile:
    blocks: list[str] = []
    size = 0
    for content in _contents(backup / path):
        blocks.append(sha256(content).hexdigest())
        size += len(content)
        name = f"block-{blocks[-1]}"
        if len(content) not in (there.get(name), written.get(name)):  # an interrupted write leaves a part
            store.put(name, content)
            written[name] = len(content)
            pace.spent(f"write {path}", len(content))
            reach("push-block")
    return StoredFile(path, size, tuple(blocks))


def _put_index(made: Stored, store: RemoteObjects) -> str:
    body = json.dumps({"format": FORMAT, "block_bytes": BLOCK_BYTES, **asdict(made)}).encode()
    name = f"manifest-{made.number:08}-{sha256(body).hexdigest()}.json"
    store.put(name, body)
    return name


def _check(stored: Stored, name: str, store: RemoteObjects) -> None:
    """Raises ``StoreFailed`` unless the store has all blocks that the manifest names, and has the manifest as
    the newest."""
    there = store.sizes()
    lacking = [each for each, size in stored.sizes().items() if there.get(each) != size]
    others = [each for each in filter(None, map(_INDEX.fullmatch, there)) if _order(each)[0] >= stored.number]
    if lacking or [each[0] for each in others] != [name] or newest(store) != stored:
        raise StoreFailed(
            f"{store.shown} does not hold what was written to it ({len(lacking)} blocks are missing, "
            f"{len(others)} manifests are not older); let one backup at a time write there, and start again"
        )


def _forget(store: RemoteObjects, names: Iterable[str]) -> str:
    """Deletes objects of this program that no manifest names now; returns why that was refused."""
    ours = sorted(each for each in names if each == PROBE or _BLOCK.fullmatch(each) or _INDEX.fullmatch(each))
    ours.sort(key=lambda name: not _INDEX.fullmatch(name))  # a manifest goes before what it names
    try:
        store.delete(ours)
    except StoreFailed as error:
        return f"some of {len(ours)} objects that are not needed any more are still there: {error}"
    return ""


def fetch(found: Stored, store: RemoteObjects, directory: Path, pace: CopyPace) -> None:
    """Fetches a backup from a store into a directory; blocks that are there already are not fetched again.

    Raises ``StoreFailed`` for a missing block, ``LogDamaged`` for an altered block.
    """
    (directory / NAME).unlink(missing_ok=True)
    for path in set(_files(directory)) - {each.path for each in found.files}:
        (directory / path).unlink()
    for file in sorted(found.files, key=lambda listed: listed.path == NAME):  # which makes it a backup
        _fetch_file(file, store, directory, pace)


def _fetch_file(file: StoredFile, store: RemoteObjects, directory: Path, pace: CopyPace) -> None:
    path = directory / file.path
    with translated("write", path):
        path.parent.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
        make_private(path)
        with path.open("r+b") as into:
            for place, block in enumerate(file.blocks):
                into.seek(place * BLOCK_BYTES)
                if sha256(into.read(BLOCK_BYTES)).hexdigest() == block:
                    continue
                content = store.get(f"block-{block}")
                if sha256(content).hexdigest() != block:
                    raise LogDamaged(f"block {block} of {file.path} in {store.shown} was altered")
                into.seek(place * BLOCK_BYTES)
                into.write(content)
                into.flush()
                pace.spent(f"fetch {file.path}", len(content))
                reach("fetch-block")
            into.truncate(file.size)
        flush(path)


def _files(backup: Path) -> list[str]:
    """Returns the paths of the files of a backup, relative to it."""
    found = [each for each in backup.rglob("*") if each.is_file() and each.name != LOCK]
    return sorted(each.relative_to(backup).as_posix() for each in found)


def _contents(path: Path) -> Iterator[bytes]:
    with translated("read", path), path.open("rb") as file:
        while content := file.read(BLOCK_BYTES):
            yield content


def _highest(there: Iterable[str]) -> int:
    return max([_order(each)[0] for each in filter(None, map(_INDEX.fullmatch, there))], default=0)


def _order(match: re.Match[str]) -> tuple[int, str]:
    return int(match[1]), match[2]


def _parsed(body: bytes, store: RemoteObjects) -> Stored:
    """Returns what a manifest says; ``UsageError`` for one of another version."""
    found = json.loads(body)
    if (found["format"], found["block_bytes"]) != (FORMAT, BLOCK_BYTES):
        raise UsageError(
            f"{store.shown} has format {found['format']} with blocks of {found['block_bytes']} bytes, "
            f"this program reads format {FORMAT} with {BLOCK_BYTES}"
        )
    files = [
        StoredFile(_within(each["path"]), each["size"], tuple(each["blocks"])) for each in found["files"]
    ]
    return Stored(found["number"], found["identity"], tuple(files))


def _within(path: str) -> str:
    """Returns a path that does not lead out of its directory; ``UsageError`` for another."""
    parts = PurePosixPath(path).parts
    if not parts or parts[0] == "/" or ".." in parts:
        raise UsageError(f"a manifest names the file {path!r:.100}, which is not in its directory")
    return path
