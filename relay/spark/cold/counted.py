"""Counted changes: rows of the first and the last fact with the same captures, out of columns.

A pattern that leaves fields out has several facts for one row.  An observer is told when the first comes and
when the last goes, so a task counts them: up to its first epoch by sums in Arrow (``states``), and then row
by row.

Always: the rows equal the rows of a replay; a task that ends leaves its counts for the next task of its
process, which may begin there.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Final, TypeAlias

import pyarrow as pa

from index.values.values import Value, key
from relay.spark.cold.columns import ColdFile, ColumnTask, FieldColumns, RowBatch, read_rows, shown_rows
from relay.spark.cold.plans import SummedFiles
from relay.spark.cold.states import state_rows
from relay.spark.common.schema import CHANGE_TYPE

Counts: TypeAlias = dict[Hashable, int]
"""How many facts there are with each captures; no entry for none."""

KEPT_ROWS: Final = 1 << 20
"""Captures whose counts a process keeps for its next task."""

_kept: dict[tuple[Hashable, ...], Counts] = {}
"""The counts of the task that ended last, by archive, pattern, classes of fields, and epoch."""


def counted_batches(task: ColumnTask, files: SummedFiles, identity: str) -> Iterator[pa.RecordBatch] | None:
    """Returns the changes of captures in (task.after, task.upto], in order.

    None where there are facts of several numbers of fields.  About 0.5 µs a change, and 0.2 µs for each fact
    and change from the nearest state to ``task.after``.
    """
    if len(files.by_fields) > 1:
        return None
    of = identity, key(task.columns.pattern), files.classes
    return _batches(task, [each for some in files.by_fields.values() for each in some], files.begin, of)


def _batches(
    task: ColumnTask, files: Sequence[ColdFile], begin: int, of: tuple[Hashable, ...]
) -> Iterator[pa.RecordBatch]:
    counts = _kept.pop((*of, task.after), None)
    if counts is None:
        counts = _counts_before(task, files, begin)
    captured = sorted({*task.form.captures})
    for file in files:
        if file.last > task.after and not file.is_state:
            for batch in read_rows(task, file, captured):
                seen = _seen(batch, captured, counts)
                if any(seen):
                    yield shown_rows(task, batch if all(seen) else batch.filter(pa.array(seen)))
    _kept.clear()
    if len(counts) <= KEPT_ROWS:
        _kept[*of, task.upto] = counts


def _counts_before(task: ColumnTask, files: Sequence[ColdFile], begin: int) -> Counts:
    counts: Counts = {}
    for fields, numbers in state_rows(task, files, begin, task.after):
        counts.update(zip(_keys(fields, len(numbers)), numbers, strict=True))
    return counts


def _seen(batch: RowBatch, captured: Sequence[int], counts: Counts) -> list[bool]:
    """Returns which changes an observer would get, and counts them."""
    kinds = batch.own[CHANGE_TYPE].to_pylist()
    seen = []
    for of, kind in zip(_keys([batch.fields[at] for at in captured], batch.rows), kinds, strict=True):
        if kind == "insert":
            count = counts.get(of, 0)
            counts[of] = count + 1
            seen.append(count == 0)
        elif kind == "delete":
            count = counts[of] - 1
            if count:
                counts[of] = count
            else:
                del counts[of]
            seen.append(count == 0)
        else:
            seen.append(True)
    return seen


def _keys(fields: Sequence[FieldColumns], rows: int) -> Iterator[Hashable]:
    """Yields what stands for the captures of each row; a value of another class is its bytes in a tuple."""
    columns = [_key_column(each) for each in fields]
    return iter(zip(*columns, strict=True)) if columns else iter([()] * rows)


def _key_column(field: FieldColumns) -> Sequence[Hashable]:
    typed: list[Value] = field.typed.to_pylist()
    if field.other is None or field.other.null_count == len(field.other):
        return typed
    others = field.other.to_pylist()
    return [value if other is None else (other,) for value, other in zip(typed, others, strict=True)]
