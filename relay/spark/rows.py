"""Rows: the changes of epochs as Arrow record batches that Spark takes as they are.

Spark checks only the first batch of a task, and reads the memory of the others as whatever the schema
says.  So every batch is built from the one schema that Spark derives from ours: order, types, nullability.
Apart from the source because it is the inner loop, and because it can be held against plain lists.

Always: one row for each change that an observer of the pattern would be told, in the same order; a
snapshot, which has no order of its own, comes sorted, so that it is the same again; ``_seq`` counts the
rows of an epoch from 0, also when the epoch comes in several parts; a value that does not fit its column
is an error that names the epoch and the column, never a conversion.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from dataspace.errors import DataspaceError
from relay.spark.schema import CHANGE_TYPE, EPOCH, EPOCH_TIMESTAMP, SEQ, Column, Columns

if TYPE_CHECKING:
    from dataspace.client.changes import EpochChanges
    from index.values import Value

INSERT, MESSAGE, DELETE = 0, 1, 2
CHANGE_TYPES: Final = pa.array(["insert", "message", "delete"], pa.string())


class Misfit(DataspaceError):
    """A fact holds a value that the column for it cannot hold."""


def batches(changes: Iterable[EpochChanges], columns: Columns, rows: int) -> Iterator[pa.RecordBatch]:
    """Record batches of at least ``rows`` rows each but the last, cut between parts of epochs.

    Raises ``Misfit`` for a value that does not fit.  Holds one batch at a time, so the memory is that of
    ``rows`` rows and of one part of an epoch.
    """
    table = _Table(columns)
    for part in changes:
        table.add(part)
        if len(table) >= rows:
            yield table.batch()
            table.clear()
    if len(table):
        yield table.batch()


def in_order(state: Sequence[pa.RecordBatch], columns: Columns, rows: int) -> Iterator[pa.RecordBatch]:
    """The rows of a snapshot sorted by all their captures, in batches of ``rows``; O(n log n).

    A snapshot has no order of its own, and the same one must be the same rows in the same order again.
    """
    if not state:
        return
    table = pa.Table.from_batches(state)
    captured = [column.name for column in columns.all if column.capture is not None]
    if captured:
        keys = pa.table({name: _sortable(table.column(name)) for name in captured})
        table = table.take(pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in captured]))
    if SEQ in columns.arrow.names:
        at = columns.arrow.get_field_index(SEQ)
        table = table.set_column(at, columns.arrow.field(at), pa.array(range(len(table)), pa.int64()))
    yield from table.to_batches(max_chunksize=rows)


def _sortable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column by which equal rows only are equal: 0.0 and -0.0 are two values, and NaN is one."""
    if not pa.types.is_floating(column.type):
        return column
    return pa.chunked_array([chunk.view(pa.int64()) for chunk in column.chunks], pa.int64())


def without(part: EpochChanges, rows: int) -> EpochChanges:
    """The rest of a part of an epoch after its first ``rows`` rows, which have been passed on before."""
    rest = type(part)(part.number, part.micros, part.first, part.names, snapshot=part.snapshot)
    for name in ("added", "messages", "removed"):
        of_kind = getattr(part, name)
        setattr(rest, name, of_kind[rows:])
        rows = max(0, rows - len(of_kind))
    return rest


class _Table:
    """Rows that wait to become one record batch."""

    __slots__ = ("_at", "_columns", "_epochs", "_kinds", "_rows", "_seqs", "_times")

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._at = (-1, False, 0)  # epoch, snapshot, rows of it so far
        self.clear()

    def clear(self) -> None:
        self._rows: list[Sequence[tuple[Value, ...]]] = []
        self._kinds = bytearray()
        self._epochs, self._times, self._seqs = array("q"), array("q"), array("q")

    def __len__(self) -> int:
        return len(self._kinds)

    def add(self, part: EpochChanges) -> None:
        for kind, rows in ((INSERT, part.added), (MESSAGE, part.messages), (DELETE, part.removed)):
            if rows:
                self._rows.append(rows)
                self._kinds += bytes((kind,)) * len(rows)
        count = len(part)
        first = self._first(part)
        self._epochs.extend(array("q", (part.number,)) * count)
        self._times.extend(array("q", (part.micros,)) * count)
        self._seqs.extend(range(first, first + count))
        self._at = (part.number, part.snapshot, first + count)

    def _first(self, part: EpochChanges) -> int:
        """The ``_seq`` of a part's first row: it goes on counting where the epoch does."""
        number, snapshot, count = self._at
        return count if (part.number, part.snapshot) == (number, snapshot) else 0

    def batch(self) -> pa.RecordBatch:
        count = len(self)
        own = {
            CHANGE_TYPE: pa.DictionaryArray.from_arrays(_plain(pa.int8(), self._kinds, count), CHANGE_TYPES),
            EPOCH: _plain(pa.int64(), self._epochs, count),
            EPOCH_TIMESTAMP: _plain(pa.timestamp("us", tz="UTC"), self._times, count),
            SEQ: _plain(pa.int64(), self._seqs, count),
        }
        own[CHANGE_TYPE] = own[CHANGE_TYPE].dictionary_decode()
        captured = list(zip(*chain.from_iterable(self._rows), strict=True))
        return pa.RecordBatch.from_arrays(
            [
                own[column.name] if column.capture is None else self._array(column, captured[column.capture])
                for column in self._columns.all
            ],
            schema=self._columns.arrow,
        )

    def _array(self, column: Column, values: Sequence[Value]) -> pa.Array:
        if column.misfits(values):
            raise self._misfit(column, values)
        try:
            return pa.array(column.encoded(values), column.arrow)
        except (pa.ArrowInvalid, OverflowError):
            raise self._misfit(column, values) from None

    def _misfit(self, column: Column, values: Sequence[Value]) -> Misfit:
        """Which value it was; looked for only now, one by one."""
        at = next(at for at, value in enumerate(values) if not column.holds(value))
        return Misfit(
            f"epoch {self._epochs[at]} has {_brief(values[at])} for column {column.name}, "
            f"which is {column.spark}: {column.remedy}"
        )


def _plain(kind: pa.DataType, values: bytearray | array[int], count: int) -> pa.Array:
    """An array without nulls over a copy of some memory."""
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(bytes(values))])


def _brief(value: Value) -> str:
    said = repr(value)
    return f"{type(value).__name__} {said if len(said) <= 60 else said[:57] + '…'}"
