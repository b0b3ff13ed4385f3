"""Plans: how the archived epochs of a batch are divided into tasks, and what each of them reads.

Epochs are read from columns where those alone answer the pattern (``forms``), in tasks of about half a
million rows each.  Else they are replayed from segments, in one task where something must be counted from the
beginning.  A range that is larger than a task is divided where a group of its segments ends.

Always: every archived epoch of the batch is in one task, whole; a task needs nothing but its plan and the
archive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from index.patterns.skeletons import skeleton
from index.values.values import Value
from relay.archive.archive import Archive
from relay.archive.columns import MOST_ARITY
from relay.archive.manifest import COLUMNS, ArchivedFile, Range
from relay.archive.packing import PackedGroup
from relay.archive.states import nearest_state
from relay.spark.cold.columns import ColdFile, widest_of
from relay.spark.cold.forms import ColumnForm, column_form

T = TypeVar("T")
U = TypeVar("U")

TASK_ROWS: Final = 1 << 19
"""Rows of columns, or replayed changes, at which a task is closed."""

ORDERED_SHARE: Final = 4
"""How many times as many rows a task has where they are ordered by fields, since it reads all row groups."""

MOST_FIELDS: Final = 1 << 15
"""More fields than any fact has."""

READERS: Final = 8
"""Objects that are looked into at the same time while a plan is made."""


@dataclass(frozen=True, slots=True)
class ColdPlan:
    """The part of an archive for one task: the epochs in (after, upto], or the state at ``after``.

    From columns where ``files`` are given, else from segments.  ``share`` is a part of the state.
    """

    identity: str
    after: int
    upto: int
    state: bool = False
    files: tuple[ColdFile, ...] | None = None
    share: tuple[int, int] | None = None


def planned(archive: Archive, pattern: Value, after: int, upto: int, count: int) -> list[ColdPlan]:
    """Returns the tasks for the epochs in (after, upto], in order: at least ``count`` where there is enough.

    O(ranges); looks into the objects of rare labels where there are some.
    """
    form = column_form(pattern)
    files = None if form is None or not form.faithful else column_files(archive, form, after, upto)
    ranges = list(archive.ranges(after, upto))
    identity = archive.place.identity
    if files is None and not _is_apart(pattern):
        return [ColdPlan(identity, after, upto)]
    plans: list[ColdPlan] = []
    for end, some in _divided(archive, _weights(ranges, files), after, upto, count):
        begin = plans[-1].upto if plans else after
        of_task = (
            None if files is None else tuple([files[each.first] for each in some if each.first in files])
        )
        if of_task != ():
            plans.append(ColdPlan(identity, begin, end, files=of_task))
    return plans


def _weights(ranges: Sequence[Range], files: Mapping[int, ColdFile] | None) -> list[tuple[Range, float]]:
    """Returns ranges with the rows that are read of each."""
    if files is None:
        return [(each, each.changes) for each in ranges]
    found = [(each, files.get(each.first)) for each in ranges]
    return [
        (of, 0 if file is None else file.rows / (ORDERED_SHARE if file.order else 1)) for of, file in found
    ]


def _divided(
    archive: Archive, weights: Sequence[tuple[Range, float]], after: int, upto: int, count: int
) -> list[tuple[int, list[Range]]]:
    """Returns the last epoch and the ranges of each task.

    A request for each range that is larger than a task, or that is read in part.
    """
    size = min(TASK_ROWS, max(1, sum([weight for _, weight in weights]) / max(1, count)))
    cut = [
        each
        for each, weight in weights
        if weight > size or (weight and not after < each.first <= each.last <= upto)
    ]
    groups = dict(zip([each.first for each in cut], _together(archive.groups, cut), strict=True))
    pieces = [
        piece for of, weight in weights for piece in _pieces(of, weight, groups.get(of.first), after, upto)
    ]
    size = min(TASK_ROWS, max(1, sum([weight for *_, weight in pieces]) / max(1, count)))
    parts: list[tuple[int, list[Range]]] = []
    seen = float(size)
    for of, end, weight in pieces:
        known = parts.pop()[1] if seen < size else []
        seen = weight + (seen if seen < size else 0)
        parts.append((end, known if known and known[-1] is of else [*known, of]))
    return parts


def _pieces(
    of: Range, weight: float, groups: Sequence[PackedGroup] | None, after: int, upto: int
) -> Iterator[tuple[Range, int, float]]:
    """Yields the parts of a range by their last epoch, with their share of its rows."""
    if groups is None:
        yield of, min(of.last, upto), weight
        return
    size = sum([each.size for each in groups])
    for each in groups:
        if each.last > after and each.first <= upto:
            end = of.last if each is groups[-1] else each.last
            yield of, min(end, upto), weight * each.size / size


def _is_apart(pattern: Value) -> bool:
    """True if captures tell facts apart whatever facts there are, so that nothing is counted."""
    form = column_form(pattern)
    return () in skeleton(pattern).captures or (form is not None and form.faithful and form.exact)


def column_files(archive: Archive, form: ColumnForm, after: int, upto: int) -> dict[int, ColdFile] | None:
    """Returns the columns to be read, by the first epoch of their range; None if they do not suffice.

    They do not where a range has segments alone, and where there may be facts with more fields.
    """
    wider = any(
        label == form.label and int(fields) > form.fields
        for label, _, fields in [name.rpartition("/") for name in archive.manifest.types]
    )
    if wider and not form.exact:
        return None
    files = _columns_between(archive, after if form.exact else 0, upto)
    if files is None:
        return None
    found: dict[int, ColdFile] = {}
    rare: list[tuple[Range, ArchivedFile]] = []
    for of, file in files:
        if file.label is None:
            rare.append((of, file))
        elif file.label == form.label and file.arity == form.fields and of.last > after:
            found[of.first] = _cold(archive, of, file)
    look = partial(widest_of, archive.objects, form.label)
    for (of, file), widest in zip(
        rare, _together(look, [_cold(archive, *each) for each in rare]), strict=True
    ):
        if not form.exact and (widest > form.fields or widest == MOST_ARITY):  # or may be wider
            return None
        if widest >= 0 and of.last > after:  # facts with another number of fields, if these have an object
            found.setdefault(of.first, _cold(archive, of, file))
    return found


@dataclass(frozen=True, slots=True)
class SummedFiles:
    """The columns to count facts by: the state at ``begin``, if any, and all changes after that.

    ``by_fields`` has them by their number of fields, a state first; ``classes`` are those of the fields.
    """

    begin: int
    by_fields: Mapping[int, Sequence[ColdFile]]
    classes: tuple[str, ...]


def summed_files(archive: Archive, form: ColumnForm, after: int, upto: int) -> SummedFiles | None:
    """Returns the columns from which the facts after an epoch, and the changes up to another, are counted.

    None where a range has segments alone, where facts of the label are among the rare ones, and where the
    archive begins later without a state; also if another thread has read a newer manifest meanwhile.
    """
    manifest = archive.manifest
    near = nearest_state(archive, after)
    if near is None and archive.oldest > 1:
        return None
    begin = 0 if near is None else near.epoch
    changes = _columns_between(archive, begin, upto)
    if changes is None:
        return None
    found: dict[int, list[ColdFile]] = {}
    rare: list[ColdFile] = []
    for of, file in [*[(None, each) for each in (near.files if near else ())], *changes]:
        cold = _cold(archive, of, file)
        if file.label is None:
            rare.append(cold)
        elif file.label == form.label and form.fields <= file.arity <= (
            form.fields if form.exact else MOST_FIELDS
        ):
            found.setdefault(file.arity, []).append(cold)
    if any(widest >= 0 for widest in _together(partial(widest_of, archive.objects, form.label), rare)):
        return None
    if archive.manifest is not manifest:
        return None  # a merge may have settled classes anew, and files must agree on them
    classes = [manifest.types[f"{form.label}/{fields}"] for fields in sorted(found)]
    return SummedFiles(begin, found, tuple(classes))


def _columns_between(archive: Archive, after: int, upto: int) -> list[tuple[Range, ArchivedFile]] | None:
    """Returns the columns of all ranges with epochs in (after, upto]; None if one has segments alone."""
    found: list[tuple[Range, ArchivedFile]] = []
    for of in archive.ranges(after, upto):
        columns = [(of, file) for file in of.files if file.form == COLUMNS]
        if not columns and of.changes:
            return None
        found += columns
    return found


def _cold(archive: Archive, of: Range | None, file: ArchivedFile) -> ColdFile:
    """``of`` is the range of changes, None for facts of a state."""
    ends = (1, 0) if of is None else (max(of.first, 1), of.last)
    own = file.label is not None
    name = archive.name(file.path)
    return ColdFile(name, file.size, *ends, own, file.others, file.order, file.rows, is_state=of is None)


def _together(look: Callable[[T], U], of: Sequence[T]) -> list[U]:
    """Looks into some objects at the same time."""
    if not of:
        return []
    with ThreadPoolExecutor(READERS) as readers:
        return list(readers.map(look, of))
