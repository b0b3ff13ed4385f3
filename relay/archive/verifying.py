"""Verifying an archive: manifests, ranges, objects, and, where asked, every segment.

Always: an archive that verifies has every epoch from its first to its newest, unaltered, except
the epochs that it declares missing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain, pairwise, zip_longest
from operator import itemgetter
from typing import Any

from index.values.values import Value, key, same
from relay.archive.archive import Archive, manifest_name
from relay.archive.columns import ERASED_VALUE, KINDS, ExactChange, exact_changes, exact_intervals
from relay.archive.manifest import COLUMNS, ArchivedFile, ArchivedState, Range
from relay.archive.orphans import leftovers
from relay.objects.objects import StoreFailed
from relay.store.errors import LogDamaged


@dataclass(frozen=True, slots=True)
class ArchiveVerdict:
    """Counts of an archive, and its damages: it is sound if there are none.

    ``waiting`` is what an interrupted erasure is still to delete, an empty text for nothing.
    """

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
    waiting: str = ""


def verify_archive(archive: Archive, *, deep: bool = False) -> ArchiveVerdict:
    """Checks an archive: its manifests, the order of its ranges, each object's bytes and SHA-256.

    With ``deep`` each segment is checked against the one before as well, and columns against the segments:
    some 10 µs for each change.  Reads every object.
    """
    damages: list[str] = []
    waiting = ""
    try:
        archive.refresh()
        ranges, states = list(archive.ranges()), list(archive.states())
    except (LogDamaged, StoreFailed) as damage:
        ranges, states = [], []
        damages.append(str(damage))
    else:
        waiting = leftovers(archive).shown
        damages += [*_manifests(archive), *_order(archive, ranges), *_objects(archive, ranges)]
        if deep and not damages:
            damages += _chain(archive, ranges)
            damages += [] if archive.place.topic else _columns(archive, ranges)
    manifest = archive.manifest
    files = [file for each in ranges for file in each.files]
    files += [file for each in states for file in each.files]
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
        waiting,
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
    named = [(f"epochs {each.first} to {each.last}", each.files) for each in ranges]
    named += [(f"state after epoch {each.epoch}", each.files) for each in archive.states()]
    for words, files in named:
        for file in files:
            place = f"{archive.shown}/{file.path}"
            try:
                content = archive.objects.get(archive.name(file.path))
            except StoreFailed as failure:
                yield f"{words}: {failure}"
                continue
            if len(content) != file.size:
                yield f"{place} has {len(content)} bytes, {file.size} were written"
            elif sha256(content).hexdigest() != file.sha256:
                yield f"{place} was altered: its SHA-256 is not that of the manifest"


def _chain(archive: Archive, ranges: list[Range]) -> Iterator[str]:
    """Yields where segments do not follow each other, or are not as many as their range says."""
    for range_ in ranges:
        entries = changes = 0
        checksum = range_.anchor
        resealed = {erasure.sealed: erasure.checksum for erasure in range_.erasures if erasure.sealed}
        try:
            for segment in archive.segments_of(range_):
                entries, changes = entries + segment.entries, changes + segment.changes
                if not any(
                    segment.sealed_by(bytes.fromhex(seal))
                    for seal in (checksum, resealed.get(checksum, checksum))
                ):
                    yield f"{archive.shown}: segment {segment.ordinal} does not follow the one before it"
                checksum = segment.checksum.hex()
        except (LogDamaged, StoreFailed) as damage:
            yield str(damage)
            continue
        checksum = resealed.get(checksum, checksum)
        if (entries, changes, checksum) != (range_.entries, range_.changes, range_.checksum):
            yield f"{archive.shown}: epochs {range_.first} to {range_.last} are not what their range says"


def _columns(archive: Archive, ranges: list[Range]) -> Iterator[str]:
    """Yields where columns do not have the changes of their range exactly, and states not the facts."""
    states = {each.epoch: each for each in archive.states()}
    held = _Held()
    begin = archive.oldest - 1
    for range_ in ranges:
        if range_.last < archive.oldest:
            continue  # before a gap, where no state is known
        state = states.get(begin)
        if state is not None:
            parts = [list(_rows_of(archive, file)) for file in state.files]
            found = [fact for part in parts for fact in part]
            if any([each[2] for each in part] != [*range(len(part))] for part in parts):
                yield f"{archive.shown}: the rows of the state after epoch {begin} are not numbered"
            yield from held.compared(archive, state, found)
        files = [file for file in range_.files if file.form == COLUMNS]
        rows = [row for file in files for row in _rows_of(archive, file)]
        rows.sort(key=itemgetter(0, 2))
        expected = held.followed(_changes(archive, range_), begin)
        for one, other in zip_longest(rows if files else expected, expected):
            if one is None or other is None or not _is_same(one, other, range_.merged > 1):
                at = other or one
                yield f"{archive.shown}: the columns of epoch {at[0]} are not what its segment says"
                break
        if state is not None and range_.merged > 1:
            yield from held.ended(archive, state, range_.last, found)
        begin = range_.last


Row = tuple[int, int, int, str, Value, int | None, int | None]
"""A change as ``ExactChange`` has it, with the epochs since and until which its fact held."""


def _rows_of(archive: Archive, file: ArchivedFile) -> Iterator[Row]:
    content = archive.objects.get(archive.name(file.path))
    for change, interval in zip(exact_changes(content), exact_intervals(content), strict=True):
        yield (*change, *interval)


def _is_same(one: Row, other: Row, with_intervals: bool) -> bool:
    return one[:4] == other[:4] and same(one[4], other[4]) and (not with_intervals or one[5:] == other[5:])


class _Held:
    """The facts that hold by now, each with the epoch and the time of its insertion, as segments say."""

    def __init__(self) -> None:
        self._facts: dict[Hashable, int | None] = {}
        self._ends: dict[Hashable, int] = {}

    def followed(self, changes: Iterable[ExactChange], begin: int) -> list[Row]:
        """Returns changes with what intervals they have within their range, which these all are."""
        found: list[list[Any]] = []
        opened: dict[Hashable, int] = {}
        self._ends = {}
        for at, change in enumerate(changes):
            number, _, _, kind, value = change
            found.append([*change, None, None])
            if kind == "message" or same(value, ERASED_VALUE):
                continue
            name = key(value)
            if kind == "insert":
                opened[name] = at
                self._facts[name] = number
                continue
            self._ends.setdefault(name, number)
            self._facts.pop(name, None)
            if name in opened:
                begun = opened.pop(name)
                found[at][5], found[begun][6] = found[begun][0], number
        return [tuple(each) for each in found]

    def compared(self, archive: Archive, state: ArchivedState, found: Sequence[Row]) -> Iterator[str]:
        """Yields an error for each difference of a state; the first state is taken as true."""
        facts = {key(each[4]): each[5] for each in found}
        if not self._facts and state.epoch == archive.oldest - 1 and state.epoch:
            self._facts = dict(facts)
        if facts != self._facts or len(found) != len(facts) or len(found) != state.rows:
            yield f"{archive.shown}: the state after epoch {state.epoch} is not what segments say"
        if any(each[3] != "insert" or each[0] != state.epoch or each[1] != state.time for each in found):
            yield f"{archive.shown}: the state after epoch {state.epoch} has rows of other epochs"

    def ended(self, archive: Archive, state: ArchivedState, upto: int, found: Sequence[Row]) -> Iterator[str]:
        """Yields an error if ``_until`` of a state differs from the range after the state.

        A state may say this of the first epochs of the range alone.
        """
        ends = {name: end for name, end in self._ends.items() if end <= state.upto}
        if state.upto > upto or any(each[6] != ends.get(key(each[4])) for each in found):
            yield f"{archive.shown}: the state after epoch {state.epoch} does not say when its facts ended"


def _changes(archive: Archive, of: Range) -> Iterator[ExactChange]:
    for segment in archive.segments_of(of):
        for number, time, *changes in segment.changes_after(0, segment.last):
            kinds = [kind for kind, values in zip(KINDS, changes, strict=True) for _ in values]
            for at, (kind, value) in enumerate(zip(kinds, chain.from_iterable(changes), strict=True)):
                yield number, time, at, kind, value
