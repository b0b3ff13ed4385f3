"""Verifying an archive: manifests, ranges, objects, and, where asked, every segment.

Always: an archive that verifies has every epoch from its first to its newest, unaltered, except
the epochs that it declares missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain, pairwise, zip_longest
from operator import itemgetter

from index.values.values import same
from relay.archive.archive import Archive, manifest_name
from relay.archive.columns import KINDS, ExactChange, exact_changes
from relay.archive.manifest import COLUMNS, Range
from relay.objects.objects import StoreFailed
from relay.store.errors import LogDamaged


@dataclass(frozen=True, slots=True)
class ArchiveVerdict:
    """Counts of an archive, and its damages: it is sound if there are none."""

    space: str
    identity: str
    version: int
    first: int
    upto: int
    ranges: int
    changes: int
    bytes: int
    missing: tuple[tuple[int, int], ...]
    damages: tuple[str, ...]


def verify_archive(archive: Archive, *, deep: bool = False) -> ArchiveVerdict:
    """Checks an archive: its manifests, the order of its ranges, each object's bytes and SHA-256.

    With ``deep`` each segment is checked against the one before as well, and columns against the segments:
    some 10 µs for each change.  Reads every object.
    """
    damages: list[str] = []
    try:
        archive.refresh()
        ranges = list(archive.ranges())
    except (LogDamaged, StoreFailed) as damage:
        ranges = []
        damages.append(str(damage))
    else:
        damages += [*_manifests(archive), *_order(archive, ranges), *_objects(archive, ranges)]
        if deep and not damages:
            damages += [*_chain(archive, ranges), *_columns(archive, ranges)]
    manifest = archive.manifest
    files = [file for each in ranges for file in each.files]
    return ArchiveVerdict(
        manifest.space,
        manifest.identity,
        manifest.version,
        manifest.first,
        manifest.upto,
        len(ranges),
        sum([each.changes for each in ranges]),
        sum([each.size for each in files]),
        manifest.missing,
        tuple(damages),
    )


def _manifests(archive: Archive) -> Iterator[str]:
    """Yields what is wrong in the versions: one is gone, or does not name the one before it."""
    before = None
    for version in archive.versions():
        try:
            found = archive.version(version)
        except (LogDamaged, StoreFailed) as damage:
            yield str(damage)
            before = None
            continue
        if before is not None and found.version != before.version + 1:
            yield f"{archive.shown}/{manifest_name(before.version + 1)} is gone"
        elif before is not None and found.previous != before.digest:
            yield f"{archive.shown}/{manifest_name(before.version)} is not what version {version} follows"
        before = found


def _order(archive: Archive, ranges: list[Range]) -> Iterator[str]:
    manifest = archive.manifest
    gaps = [(before + 1, first - 1) for first, before in archive.starts()] + list(manifest.missing)
    for one, other in pairwise(ranges):
        missed = one.last + 1, other.first - 1
        if missed[0] <= missed[1] and not any(low <= missed[0] and missed[1] <= high for low, high in gaps):
            yield f"{archive.shown}: epochs {missed[0]} to {missed[1]} are in no range, and nothing says why"
        if other.first < one.last or other.segments[0] <= one.segments[1]:
            yield f"{archive.shown}: the range of epoch {other.first} begins before the one before it ends"
    if ranges and ranges[-1].last != manifest.upto:
        yield f"{archive.shown}: the newest range ends with epoch {ranges[-1].last}, not {manifest.upto}"


def _objects(archive: Archive, ranges: list[Range]) -> Iterator[str]:
    for each in ranges:
        for file in each.files:
            place = f"{archive.shown}/{file.path}"
            try:
                content = archive.objects.get(archive.name(file.path))
            except StoreFailed as failure:
                yield f"epochs {each.first} to {each.last}: {failure}"
                continue
            if len(content) != file.size:
                yield f"{place} has {len(content)} bytes, {file.size} were written"
            elif sha256(content).hexdigest() != file.sha256:
                yield f"{place} was altered: its SHA-256 is not that of the manifest"


def _chain(archive: Archive, ranges: list[Range]) -> Iterator[str]:
    """Yields where segments do not follow each other, or are not as many as their range says."""
    for each in ranges:
        entries = changes = 0
        checksum = each.anchor
        try:
            for segment in archive.segments_of(each):
                entries, changes = entries + segment.entries, changes + segment.changes
                if not segment.sealed_by(bytes.fromhex(checksum)):
                    yield f"{archive.shown}: segment {segment.ordinal} does not follow the one before it"
                checksum = segment.checksum.hex()
        except (LogDamaged, StoreFailed) as damage:
            yield str(damage)
            continue
        if (entries, changes, checksum) != (each.entries, each.changes, each.checksum):
            yield f"{archive.shown}: epochs {each.first} to {each.last} are not what their range says"


def _columns(archive: Archive, ranges: list[Range]) -> Iterator[str]:
    """Yields where the columns of a range do not have its changes exactly."""
    for each in ranges:
        files = [file for file in each.files if file.form == COLUMNS]
        if not files:
            continue
        contents = (archive.objects.get(archive.name(file.path)) for file in files)
        found = [change for content in contents for change in exact_changes(content)]
        found.sort(key=itemgetter(0, 2))
        for one, other in zip_longest(found, _changes(archive, each)):
            if one is None or other is None or one[:4] != other[:4] or not same(one[4], other[4]):
                at = other or one
                yield f"{archive.shown}: the columns of epoch {at[0]} are not what its segment says"
                break


def _changes(archive: Archive, of: Range) -> Iterator[ExactChange]:
    for segment in archive.segments_of(of):
        for number, time, *changes in segment.changes_after(0, segment.last):
            kinds = [kind for kind, values in zip(KINDS, changes, strict=True) for _ in values]
            for at, (kind, value) in enumerate(zip(kinds, chain.from_iterable(changes), strict=True)):
                yield number, time, at, kind, value
