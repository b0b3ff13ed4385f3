"""Plans: how the archived epochs of a batch are divided into tasks, and what each of them reads.

Epochs are read from columns where those alone answer the pattern (``forms``), in tasks of whole ranges, about
a million changes each.  Else they are replayed from segments, in one task where something must be counted
from the beginning.

Always: every archived epoch of the batch is in one task; a task needs nothing but its plan and the archive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

from index.patterns.skeletons import skeleton
from index.values.values import Value
from relay.archive.archive import Archive
from relay.archive.manifest import COLUMNS, ArchivedFile, Range
from relay.archive.states import nearest_state
from relay.spark.cold.columns import ColdFile, widest_of
from relay.spark.cold.forms import ColumnForm, column_form

TASK_CHANGES: Final = 1 << 20
"""Changes of a task at which it is closed."""

MOST_FIELDS: Final = 1 << 15
"""More fields than any fact has."""

READERS: Final = 8
"""Objects that are looked into at the same time while a plan is made."""


@dataclass(frozen=True, slots=True)
class ColdPlan:
    """The part of an archive for one task: the epochs in (after, upto], or the state at ``after``.

    From columns where ``files`` are given, else from segments.
    """

    identity: str
    after: int
    upto: int
    state: bool = False
    files: tuple[ColdFile, ...] | None = None


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
    for some in _divided(ranges, count):
        begin = after if not plans else plans[-1].upto
        end = upto if some[-1] is ranges[-1] else some[-1].last
        of_task = (
            None if files is None else tuple([files[each.first] for each in some if each.first in files])
        )
        if of_task != ():
            plans.append(ColdPlan(identity, begin, end, files=of_task))
    return plans


def _divided(ranges: Sequence[Range], count: int) -> list[list[Range]]:
    """Returns ranges in tasks of about as many changes each."""
    total = sum([each.changes for each in ranges])
    size = max(1, min(TASK_CHANGES, -(-total // max(1, count))))
    parts: list[list[Range]] = []
    seen = size
    for each in ranges:
        if seen >= size:
            parts.append([])
            seen = 0
        parts[-1].append(each)
        seen += each.changes
    return parts


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
        if widest > form.fields and not form.exact:
            return None
        if widest >= 0 and of.last > after:
            found[of.first] = _cold(archive, of, file)
    return found


@dataclass(frozen=True, slots=True)
class SummedFiles:
    """The columns to count facts by: the state at ``begin``, if any, and all changes after that.

    ``by_fields`` has them by their number of fields, a state first.
    """

    begin: int
    by_fields: Mapping[int, Sequence[ColdFile]]


def summed_files(archive: Archive, form: ColumnForm, after: int, upto: int) -> SummedFiles | None:
    """Returns the columns from which the facts after an epoch, and the changes up to another, are counted.

    None where a range has segments alone, where facts of the label are among the rare ones, and where the
    archive begins later without a state.
    """
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
    return SummedFiles(begin, found)


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
    return ColdFile(name, file.size, *ends, own, file.others, file.order, is_state=of is None)


def _together(look: Callable[[ColdFile], int], files: Iterable[ColdFile]) -> list[int]:
    with ThreadPoolExecutor(READERS) as readers:
        return list(readers.map(look, files))
