"""Merging: neighbouring ranges of an archive become one, so that old history is in few large objects.

The segments of the ranges are joined as they are; their columns are written anew, with the epochs between
which facts held (``intervals``), and with the state before them where that pays (``states``).  Ranges are
merged by tiers: some of about one size make one of the next size, four times as large, up to 4 million
changes.  So a change is written again as often as there are tiers above its range: twice for a full range.

Always: an epoch is in one range, in order.  Ranges are merged only if they follow each other in the log's
chain, without missing epochs between.  Of a merger and an archiver that write one version, one begins again.
Replaced objects stay for a day.  All objects of a label have the same class for each field: a merge that
settles one anew writes all of them anew, or leaves the class as it is.  Memory is bounded: ranges whose rows
of one label would take more are merged no further, and a state that is too large stays as it is.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from importlib.util import find_spec
from itertools import pairwise
from typing import Final

from dataspace.errors import UsageError
from dataspace.faults import reach
from relay.archive.archive import Archive
from relay.archive.columns import ColumnObject, Types, columns_of, kinds_of_rest
from relay.archive.intervals import Clusters, ColumnPart, GatheredRows, Kind, facts_after, merged, recast
from relay.archive.manifest import (
    COLUMNS,
    SEGMENTS,
    STATES,
    ArchivedFile,
    ArchivedState,
    ArchiveManifest,
    Range,
    Retired,
)
from relay.archive.orphans import GRACE, finish
from relay.archive.packing import joined_object
from relay.archive.states import nearest_state
from relay.archive.writing import ArchiveWriter, NotThisArchive, random_name, store_time

MERGED_CHANGES: Final = 1 << 22
"""Changes at which a range is merged no more."""

MERGED_BYTES: Final = 128 << 20
"""The same in bytes of its objects."""

MERGED_BODIES: Final = 1 << 30
"""The same in bytes of its segments before compression."""

MERGED_MEMORY: Final = 512 << 20
"""Bytes of memory that a merge may take, by ``ROW_MEMORY`` and ``BODY_MEMORY``."""

ROW_MEMORY: Final = 320
"""Bytes of memory for each row of the label that is merged."""

BODY_MEMORY: Final = 4
"""The same for each byte of the row in the log."""

ANEW: Final = 8
"""How many times as many rows as are merged may be written anew, elsewhere, for other classes of fields.

So what that costs is in proportion to what is archived, even if a field changes with each range.
"""

TIER: Final = 4
"""A tier is so many times as large as the tier below."""


@dataclass(frozen=True, slots=True)
class MergeRules:
    """When a range is merged no more, and by which fields the rows of labels are ordered in merged ranges."""

    changes: int = MERGED_CHANGES
    bytes: int = MERGED_BYTES
    bodies: int = MERGED_BODIES
    memory: int = MERGED_MEMORY
    clusters: Clusters = field(default_factory=dict)


class Merger:
    """What merges the ranges of one archive.  For one thread at a time; all calls block.

    It holds the segments of the ranges compressed, and the rows of one label, both bounded by ``rules``.
    """

    def __init__(self, archive: Archive, *, term: int | None = None, rules: MergeRules | None = None) -> None:
        """``term`` is the number of the leading daemon's term, None for the term that the archive has."""
        self.archive: Final = archive
        self.writer: Final = ArchiveWriter(archive, term)
        self.rules: Final = rules or MergeRules()

    def merge_due(self) -> Range | None:
        """Merges the first ranges that make one of a higher tier; None if there are none.

        Looks at the ranges that are in no chapter; O(those).  Raises ``NotThisArchive`` if another writer was
        first, or a later leader writes the archive.
        """
        manifest = self.archive.refresh()
        return self._merge(manifest, self._run(manifest, by_tiers=True))

    def merge_all(self, report: Callable[[Range], None]) -> int:
        """Merges all ranges that can be, whatever their size, and returns how many that made."""
        count, lost = 0, 0
        while True:
            manifest = self.archive.refresh()
            try:
                new_range = self._merge(manifest, self._run(manifest, by_tiers=False))
            except NotThisArchive:
                lost += 1
                if lost > ATTEMPTS:
                    raise
                continue
            if new_range is None:
                return count
            report(new_range)
            count, lost = count + 1, 0

    # -- which ----------------------------------------------------------------------------------------

    def _run(self, manifest: ArchiveManifest, *, by_tiers: bool) -> tuple[int, int]:
        return next(_runs(manifest, self.rules, by_tiers=by_tiers), (0, 0))

    # -- one range of several -------------------------------------------------------------------------

    def _merge(self, manifest: ArchiveManifest, places: tuple[int, int]) -> Range | None:
        first, beyond = places
        if first == beyond:
            return None
        self.writer.check_term(manifest)
        if find_spec("pyarrow") is None and not self.archive.place.topic:
            raise UsageError("ranges are merged with pyarrow: pip install 'dataspace-server[archive]'")
        finish(self.archive)  # what erasures have left, since the next version lists it no more
        with self.writer.attempt():
            return self._merged(manifest, manifest.ranges[first:beyond], first)

    def _merged(self, manifest: ArchiveManifest, run: Sequence[Range], first: int) -> Range:
        """Writes one range of several, and the manifest that names it instead of them."""
        finished = manifest.version
        work = _Work(self.archive, manifest, self.rules)
        new_range, state = work.merged(self.writer, run, self._begin(manifest, first))
        time = store_time(self.archive)
        reach("merge-before-manifest")
        while True:
            following = _following(manifest, run, new_range, state, work)
            retired = retired_after(manifest, _replaced(manifest, following), time, finished)
            following = replace(following, retired=retired)
            try:
                self.writer.commit(self.writer.with_chapter(following))
                break
            except NotThisArchive:
                newer = self.archive.refresh()
                if not _only_added(manifest, newer) or not _agree(newer.types, work.types):
                    raise
                self.writer.check_term(newer)
                manifest = newer
        reach("merge-after-manifest")
        self.archive.refresh()
        return new_range

    @staticmethod
    def _begin(manifest: ArchiveManifest, first: int) -> int:
        """Returns the epoch whose state holds where a range begins."""
        if first:
            return max(manifest.first - 1, manifest.ranges[first - 1].last)
        return max([manifest.first - 1, *[each.last for each in manifest.chapters[-1:]]])


def ranges_due(manifest: ArchiveManifest, rules: MergeRules | None = None) -> int:
    """Returns how many ranges would be merged now; O(ranges that are in no chapter)."""
    return sum([beyond - first for first, beyond in _runs(manifest, rules or MergeRules(), by_tiers=True)])


def _runs(manifest: ArchiveManifest, rules: MergeRules, *, by_tiers: bool) -> Iterator[tuple[int, int]]:
    """Yields the places of the first range of each run to be merged, and that after its last."""
    ranges = manifest.ranges
    follows = [False, *[_follows(manifest, *pair) for pair in pairwise(ranges)]]
    weights = [_weight(each, rules) for each in ranges]
    costs = [_Cost() if manifest.topic else _Cost.of(each) for each in ranges]  # steps have no rows
    first = 0
    while first < len(ranges):
        beyond = _run_at(first, weights, follows, costs, rules, by_tiers=by_tiers)
        if beyond > first:
            yield first, beyond
        first = max(first + 1, beyond)


def _run_at(
    first: int,
    weights: Sequence[int],
    follows: Sequence[bool],
    costs: Sequence[_Cost],
    rules: MergeRules,
    *,
    by_tiers: bool,
) -> int:
    """Returns the place after the run that begins at a place, or that place if no run begins there."""
    total = tier = 0
    cost = _Cost()
    for at in range(first, len(weights)):
        cost += costs[at]
        if weights[at] >= rules.changes or (at > first and (not follows[at] or cost.memory() > rules.memory)):
            break
        total, tier = total + weights[at], max(tier, _tier(weights[at]))
        if at > first and (total >= rules.changes or (by_tiers and _tier(total) > tier)):
            return at + 1
    else:
        at = len(weights)
    return at if not by_tiers and at > first + 1 else first


def _weight(of: Range, rules: MergeRules) -> int:
    """Returns the size of a range in changes, or in what its bytes count for where those are many."""
    return max(
        1,
        of.changes,
        of.stored * rules.changes // rules.bytes,
        of.bytes * rules.changes // rules.bodies,
    )


@dataclass(frozen=True, slots=True)
class _Cost:
    """The rows of each label, and the bytes in the log, from which the memory of a merge follows.

    One label is merged at a time.  All bytes may be of one label: objects do not say how much they were
    compressed.
    """

    rows: Counter[Kind] = field(default_factory=Counter)
    bytes: int = 0

    @classmethod
    def of(cls, of: Range) -> _Cost:
        columns = [file for file in of.files if file.form == COLUMNS]
        rows = {(file.label, file.arity): file.rows for file in columns} or {(None, -1): of.changes}
        return cls(Counter(rows), of.bytes)

    def __add__(self, other: _Cost) -> _Cost:
        return _Cost(self.rows + other.rows, self.bytes + other.bytes)

    def memory(self, state_rows: int = 0) -> int:
        """Returns the bytes of memory at most, beside a state of so many rows before it."""
        most, row = max(self.rows.values(), default=0), self.bytes // max(1, self.rows.total())
        return ROW_MEMORY * most + BODY_MEMORY * self.bytes + state_rows * (ROW_MEMORY + BODY_MEMORY * row)


def _cost(run: Sequence[Range]) -> _Cost:
    return sum([_Cost.of(each) for each in run], _Cost())


def _follows(manifest: ArchiveManifest, one: Range, other: Range) -> bool:
    """True if a range follows another in the chain of the log, with no missing epoch between them."""
    gaps = any(one.last < last and first < other.first for first, last in manifest.missing)
    return one.checksum == other.anchor and not gaps


ATTEMPTS: Final = 10
"""How often a merge begins again in a row because other writers were first."""


class _Work:
    """The reading and writing for one merge; ``types`` are the classes that it settled.

    ``renewed`` are objects of other ranges and states, by the paths of those that they replace: where a field
    got another class, all objects of its label did.
    """

    def __init__(self, archive: Archive, manifest: ArchiveManifest, rules: MergeRules) -> None:
        self._archive = archive
        self._known = manifest.types
        self._clusters = rules.clusters
        self._memory = rules.memory
        self._manifest = manifest
        self.types: Final[dict[str, str]] = {}
        self.renewed: Final[dict[str, ArchivedFile]] = {}
        self._anew: dict[Kind, str] = {}
        self._elsewhere: list[ArchivedFile] = []
        self._rest: dict[str, frozenset[tuple[str, int]]] = {}
        self._rows_left = 0

    def merged(
        self, writer: ArchiveWriter, run: Sequence[Range], begin: int
    ) -> tuple[Range, ArchivedState | None]:
        """Writes the objects of several ranges as one; returns it, and the state before it if it has one."""
        first, last = run[0], run[-1]
        path = f"{SEGMENTS}/{random_name(first.first, last.last, 'dsz')}"
        content = joined_object(
            [self._archive.content(each.file(SEGMENTS)) for each in run], self._archive.shown
        )
        files = [ArchivedFile(path, SEGMENTS, len(content), sha256(content).hexdigest())]
        writer.put(files[0], content)
        known, stated, net = None, list[ArchivedFile](), 0
        if not self._archive.place.topic:  # whose steps have no columns
            known, before = self._state(begin, run)
            dropped = {each.last for each in run[:-1]} | ({begin} if known else set())
            ranges = [each for each in self._manifest.ranges if each not in run]
            states = [each for each in self._manifest.states if each.epoch not in dropped]
            self._elsewhere = _columns_of(ranges, states)
            self._rows_left = ANEW * sum([each.changes for each in run])
            gathered = GatheredRows(
                [before, *[self._parts(each) for each in run]], self._all_types(), self._may_change
            )
            name = random_name(first.first, last.last, "parquet")
            held = f"{begin:012}-{name.rpartition('-')[2]}"
            for changes, facts in merged(gathered, self._clusters, begin):
                files += writer.put_columns(_present(changes), name)
                net += changes.net if changes else 0
                stated += writer.put_columns(_present(facts), held, STATES)
            self.types.update(gathered.settled)
            self._renew(writer)
        new_range = Range(
            first.first,
            last.last,
            first.since,
            last.until,
            sum([each.entries for each in run]),
            sum([each.changes for each in run]),
            sum([each.bytes for each in run]),
            (first.segments[0], last.segments[1]),
            first.anchor,
            last.checksum,
            tuple(files),
            net,
            sum([each.merged for each in run]),
            tuple([erasure for each in run for erasure in each.erasures]),
        )
        if known is None:
            return new_range, None
        return new_range, replace(
            known, upto=last.last, rows=sum([each.rows for each in stated]), files=tuple(stated)
        )

    def _gathered(self, parts: Sequence[Sequence[ColumnPart]]) -> GatheredRows:
        made = GatheredRows(parts, self._all_types())
        self.types.update(made.settled)
        return made

    def _may_change(self, kind: Kind, classes: str) -> bool:
        """Returns whether all other objects with rows of a kind can be written anew; if so, they will be.

        They must be few enough, and none in a chapter, which only an erasure changes.
        """
        files, chapters = self._elsewhere, map(self._archive.body, self._manifest.chapters)
        chaptered = [file for each in chapters for file in _columns_of(each.ranges, each.states)]
        rows = sum([each.rows for each in (*files, *chaptered) if (each.label, each.arity) in (kind, _REST)])
        if rows > self._rows_left or any(self._has_rows(each, kind) for each in chaptered):
            return False
        self._rows_left -= rows
        self._anew[kind] = classes
        return True

    def _has_rows(self, file: ArchivedFile, kind: Kind) -> bool:
        """True if an object has rows of a kind that a table has, which may be copied from all other rows."""
        if file.label is not None or file.form == STATES:
            return (file.label, file.arity) == kind
        if file.path not in self._rest:
            self._rest[file.path] = kinds_of_rest(self._archive.content(file))
        return kind in self._rest[file.path]

    def _renew(self, writer: ArchiveWriter) -> None:
        """Writes the other objects of labels with other classes anew.

        All other rows are packed and stay as they are, but under another name: what a table has copied of
        them has the classes of before.
        """
        for file in self._elsewhere:
            kind = next((each for each in self._anew if self._has_rows(file, each)), None)
            if kind is None:
                continue
            content, is_state = self._archive.content(file), file.form == STATES
            made = ColumnObject(None, -1, file.rows, content)
            if file.label is not None:
                made = recast(content, kind, self._anew[kind], file.order, is_state=is_state)
            base = file.path.rpartition("/")[2].rpartition("-")[0]
            name = f"{base}-{uuid.uuid4().hex[:12]}.parquet"
            [self.renewed[file.path]] = writer.put_columns([made], name, file.form)

    def _all_types(self) -> dict[str, str]:
        return {**self._known, **self.types}

    def _parts(self, of: Range) -> list[ColumnPart]:
        """Returns the columns of a range, made now if it was archived without."""
        files = [each for each in of.files if each.form == COLUMNS]
        if files or not of.changes:
            return list(map(self._part, files))
        made, settled = columns_of(self._archive.segments_of(of), self._all_types())
        self.types.update(settled)
        return list(map(_made, made))

    def _part(self, file: ArchivedFile) -> ColumnPart:
        return ColumnPart(
            file.label, file.arity, partial(self._archive.content, file), is_state=file.form == STATES
        )

    def _state(self, begin: int, run: Sequence[Range]) -> tuple[ArchivedState | None, list[ColumnPart]]:
        """Returns the state before a merged range, which it has already or is to have, and its objects.

        None for a state that would take too much memory.  A state that is there stays then, and says of
        fewer epochs when facts ended.
        """
        archive = self._archive
        near = nearest_state(archive, begin)
        if near is not None and near.epoch == begin:
            is_small = _cost(run).memory(near.rows) <= self._memory
            return (near, list(map(self._part, near.files))) if is_small else (None, [])
        if near is None and self._manifest.first > 1:
            return None, []
        since = 0 if near is None else near.epoch
        between = [each for each in archive.ranges(since, begin) if each.last <= begin]
        rows = (0 if near is None else near.rows) + sum([each.net for each in between])
        if not between or sum([each.changes for each in between]) < rows:
            return None, []
        if _cost([*between, *run]).memory(rows) > self._memory:
            return None, []
        held = [] if near is None else list(map(self._part, near.files))
        gathered = self._gathered([held, *[self._parts(each) for each in between]])
        time = between[-1].until
        made = list(facts_after(gathered, begin, time))
        state = ArchivedState(begin, time, 0, run[-1].last, ())
        return state, [replace(_made(each), is_state=True) for each in made]


_REST: Final[Kind] = (None, -1)


def _columns_of(*parts: Iterable[Range | ArchivedState]) -> list[ArchivedFile]:
    """Returns the objects in Parquet of some ranges and states."""
    files = [file for part in parts for of in part for file in of.files]
    return [file for file in files if file.form in (COLUMNS, STATES)]


def _made(of: ColumnObject) -> ColumnPart:
    return ColumnPart(of.label, of.arity, lambda: of.content)


def _present(of: ColumnObject | None) -> Iterator[ColumnObject]:
    if of is not None:
        yield of


def _tier(weight: int) -> int:
    """Returns how often a weight can be divided by the width of a tier.

    >>> [_tier(weight) for weight in (1, 3, 4, 15, 16)]
    [0, 0, 1, 1, 2]
    """
    return (weight.bit_length() - 1) // (TIER.bit_length() - 1)


def _following(
    manifest: ArchiveManifest,
    run: Sequence[Range],
    new_range: Range,
    state: ArchivedState | None,
    work: _Work,
) -> ArchiveManifest:
    """Returns the next version, with a range instead of several, and the state before it."""

    def renewed(files: Iterable[ArchivedFile]) -> tuple[ArchivedFile, ...]:
        return tuple([work.renewed.get(each.path, each) for each in files])

    ranges = list(manifest.ranges)
    at = ranges.index(run[0])
    ranges[at : at + len(run)] = [new_range]
    added = [] if state is None else [state]
    replaced = {*[each.last for each in run[:-1]], *[each.epoch for each in added]}
    gone = [each for each in manifest.states if each.epoch in replaced]
    states = [each for each in manifest.states if each not in gone] + added
    states.sort(key=lambda archived: archived.epoch)
    return replace(
        manifest.next(),
        ranges=tuple([replace(each, files=renewed(each.files)) for each in ranges]),
        states=tuple([replace(each, files=renewed(each.files)) for each in states]),
        types={**manifest.types, **work.types},
    )


def _replaced(manifest: ArchiveManifest, following: ArchiveManifest) -> Iterator[ArchivedFile]:
    """Yields the objects of ranges and states that the next version has no more."""
    named = {file.path for file in _files(following)}
    for file in _files(manifest):
        if file.path not in named:
            yield file


def _files(manifest: ArchiveManifest) -> Iterator[ArchivedFile]:
    """Yields the objects of the ranges and states after the chapters."""
    for of in manifest.ranges:
        yield from of.files
    for state in manifest.states:
        yield from state.files


def retired_after(
    manifest: ArchiveManifest, files: Iterable[ArchivedFile], time: float, finished: int
) -> tuple[Retired, ...]:
    """Returns what the next version lists as replaced, the replaced objects of the last day included.

    So is what erasures replaced since the version ``finished``, as it may not be deleted yet.
    """
    kept = [
        each
        for each in manifest.retired
        if each.time > time - GRACE or (not each.time and each.version > finished)
    ]
    return (*kept, *[Retired(manifest.version + 1, time, each.path) for each in files])


def _only_added(before: ArchiveManifest, now: ArchiveManifest) -> bool:
    """True if a later version has the same ranges and states, and only further ranges behind them."""
    return (
        now.version > before.version
        and now.ranges[: len(before.ranges)] == before.ranges
        and (now.chapters, now.states, now.first) == (before.chapters, before.states, before.first)
    )


def _agree(settled: Types, newly: Types) -> bool:
    """True if another writer settled no class otherwise."""
    return all(settled.get(name, classes) == classes for name, classes in newly.items())
