"""Columns: the archived changes of one label out of Parquet, as the record batches that Spark is given.

Most columns go to Spark as Arrow has read them.  A column is taken apart only where it holds values of
another class (``fK_other``), or where Spark is given texts of values.

Always: the same rows in the same order as from the daemon, with the same errors for values that do not fit;
memory is one batch for each task, or its rows of an object whose
rows are in another order.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from dataspace.codec import pack, unpack_own
from index.values.values import Value, same
from relay.archive.columns import FITS, MOST_ARITY
from relay.objects.objects import Objects
from relay.spark.cold.forms import CLASSES, ColumnForm
from relay.spark.common.fitting import fitted
from relay.spark.common.schema import (
    CHANGE_TYPE,
    DAEMON,
    EPOCH,
    EPOCH_TIMESTAMP,
    SEQ,
    SPACE,
    Column,
    Columns,
)
from relay.spark.common.where import Compared, conjuncts

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile
BATCH_ROWS: Final = 65_536

_MARK: Final = b"dataspace"
"""The metadata of an object of columns: its label and classes as JSON."""


@dataclass(frozen=True, slots=True)
class ColdFile:
    """Columns to be read: the object's name in the store, its bytes, and its first and last epoch."""

    name: str
    size: int
    first: int
    last: int
    own: bool
    """False for the object of the labels that have none of their own."""

    others: tuple[int, ...] | None = None
    """The fields with values of other classes, None where that is not known."""

    order: tuple[int, ...] = ()
    """The fields that rows are ordered by, before the order of the log."""

    rows: int = 0
    """Rows of the object."""

    is_state: bool = False
    """True for facts that held after an epoch: all of them count, whatever epochs are read."""


@dataclass(frozen=True, slots=True)
class ColumnTask:
    """The epochs to be read from some columns, and the form of the rows."""

    objects: Objects
    form: ColumnForm
    columns: Columns
    after: int
    upto: int
    daemon: str
    space: str


def column_batches(task: ColumnTask, files: Sequence[ColdFile]) -> Iterator[pa.RecordBatch]:
    """Yields the changes of a task, in order, in batches of up to 65 536 rows.

    Raises ``Misfit`` for a value that its column cannot hold.  About 0.5 µs a row of five columns.
    """
    for file in files:
        for batch in read_rows(task, file, _fields_wanted(task)):
            made = shown_rows(task, batch)
            if made.num_rows:
                yield made


# -- reading ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FieldColumns:
    """One field of a batch of rows: values of its class, the letter of that, and the packed other values."""

    letter: str
    typed: pa.Array
    other: pa.Array | None

    def exact(self) -> list[Value]:
        """Returns the values themselves."""
        values: list[Any] = self.typed.to_pylist()
        if self.letter == "t":
            values = [None if each is None else each.replace(tzinfo=UTC) for each in values]
        if self.other is None:
            return values
        packed = self.other.to_pylist()
        return [
            value if each is None else unpack_own(each) for value, each in zip(values, packed, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Rows as they were read: the columns that all objects have, and the fields of the label."""

    own: Mapping[str, pa.Array]
    fields: Mapping[int, FieldColumns]
    rows: int

    def filter(self, mask: pa.Array) -> RowBatch:
        own = {name: each.filter(mask) for name, each in self.own.items()}
        fields = {
            at: FieldColumns(
                each.letter, each.typed.filter(mask), None if each.other is None else each.other.filter(mask)
            )
            for at, each in self.fields.items()
        }
        return RowBatch(own, fields, len(own[EPOCH]))


def read_rows(task: ColumnTask, file: ColdFile, fields: Sequence[int]) -> Iterator[RowBatch]:
    """Yields the rows of an object that match, in order, with some fields at least."""
    wanted = sorted({*fields, *task.form.constants, *task.form.classes})
    for batch in _typed(task, file, wanted) if file.own else _rare(task, file, wanted):
        selection = batch
        if _is_cut(task, file):
            selection = selection.filter(_in_span(task, selection.own[EPOCH]))
        for at, value in task.form.constants.items():
            if selection.rows:
                selection = selection.filter(_equal(selection.fields[at], value))
        for at, kind in task.form.classes.items():
            if selection.rows and (mask := _of_class(selection.fields[at], kind)) is not None:
                selection = selection.filter(mask)
        if selection.rows:
            yield selection


def _is_cut(task: ColumnTask, file: ColdFile) -> bool:
    """True if an object has epochs that are not of the task."""
    return not file.is_state and (file.first <= task.after or file.last > task.upto)


def _in_span(task: ColumnTask, epochs: pa.Array) -> pa.Array:
    compute = _compute()
    return compute.and_(compute.greater(epochs, task.after), compute.less_equal(epochs, task.upto))


def _fields_wanted(task: ColumnTask) -> list[int]:
    """Returns the fields that are shown."""
    return [task.form.captures[each.capture] for each in task.columns.all if each.capture is not None]


def _typed(task: ColumnTask, file: ColdFile, wanted: Sequence[int]) -> Iterator[RowBatch]:
    """Yields the rows of a label's own object, of the row groups that may have some that match."""
    with _opened(task.objects, file) as parquet:
        schema = parquet.schema_arrow
        letters: str = json.loads(schema.metadata[_MARK])["classes"]
        there = {*schema.names}
        own = [
            name
            for name in (EPOCH, EPOCH_TIMESTAMP, SEQ, CHANGE_TYPE)
            if _is_shown(task, name) or (name == SEQ and file.order)
        ]
        names = [name for at in wanted for name in (f"f{at}", f"f{at}_other") if name in there]
        groups = [at for at in range(parquet.num_row_groups) if _may_match(parquet, at, task, letters, file)]
        if file.order:
            read = parquet.iter_batches(BATCH_ROWS, row_groups=groups, columns=[*own, *names])
            if _is_cut(task, file):
                read = (each.filter(_in_span(task, each.column(EPOCH))) for each in read)
            table = pa.Table.from_batches(
                read, schema=pa.schema([each for each in schema if each.name in (*own, *names)])
            )
            batches = table.sort_by([(EPOCH, "ascending"), (SEQ, "ascending")]).to_batches(BATCH_ROWS)
        else:
            batches = parquet.iter_batches(BATCH_ROWS, row_groups=groups, columns=[*own, *names])
        for batch in batches:
            fields = {
                at: FieldColumns(
                    letters[at],
                    batch.column(f"f{at}"),
                    batch.column(f"f{at}_other") if f"f{at}_other" in there else None,
                )
                for at in wanted
            }
            yield RowBatch({name: batch.column(name) for name in own}, fields, batch.num_rows)


def _is_shown(task: ColumnTask, name: str) -> bool:
    return name == EPOCH or any(each.name == name for each in task.columns.all)


def _may_match(parquet: ParquetFile, at: int, task: ColumnTask, letters: str, file: ColdFile) -> bool:
    """False if the statistics of a row group say that no row of it can be wanted."""
    group = parquet.metadata.row_group(at)
    by_name = {
        group.column(number).path_in_schema: group.column(number) for number in range(group.num_columns)
    }
    epochs = None if file.is_state else by_name[EPOCH].statistics
    if epochs is not None and epochs.has_min_max and (epochs.max <= task.after or epochs.min > task.upto):
        return False
    for field, sign, value in _compared(task):
        stats = by_name[f"f{field}"].statistics
        comparable = value.__class__ is CLASSES[letters[field]] and isinstance(value, str | int | float)
        known = comparable and stats is not None and stats.has_min_max and f"f{field}_other" not in by_name
        if known and _excludes(stats.min, stats.max, sign, value):
            return False
    return True


def _compared(task: ColumnTask) -> Iterator[tuple[int, str, Any]]:
    """Yields the fields that must compare so with a value: by the pattern's constants, and by ``where``."""
    for field, value in task.form.constants.items():
        yield field, "==", value
    captures = {each.name: each.capture for each in task.columns.all if each.fits and not each.convert}
    for part in () if task.columns.where is None else conjuncts(task.columns.where):
        if isinstance(part, Compared) and (capture := captures.get(part.column)) is not None:
            yield task.form.captures[capture], part.sign, part.literal


def _excludes(least: Any, most: Any, sign: str, value: Any) -> bool:
    """True if no value between two compares so with another."""
    match sign:
        case "==":
            return not least <= value <= most
        case "<":
            return bool(least >= value)
        case "<=":
            return bool(least > value)
        case ">":
            return bool(most <= value)
        case ">=":
            return bool(most < value)
    return False


def _rare(task: ColumnTask, file: ColdFile, wanted: Sequence[int]) -> Iterator[RowBatch]:
    """Yields the rows of a label out of the object of all rare labels; they are few."""
    form = task.form
    with _opened(task.objects, file) as parquet:
        table = parquet.read()
    compute = _compute()
    mask = compute.and_(
        compute.fill_null(compute.equal(table.column("label"), form.label), fill_value=False),
        compute.equal(table.column("arity"), min(form.fields, MOST_ARITY)),
    )
    for batch in table.filter(mask).to_batches(BATCH_ROWS):
        facts = [unpack_own(each) for each in batch.column("value").to_pylist()]
        if form.fields >= MOST_ARITY:
            is_mine = [len(fact.fields) == form.fields for fact in facts]  # type: ignore[union-attr]  # records, by their label
            batch = batch.filter(pa.array(is_mine))
            facts = [fact for fact, mine in zip(facts, is_mine, strict=True) if mine]
        columns = [[fact.fields[at] for fact in facts] for at in wanted]  # type: ignore[union-attr]  # records, by their label
        fields = {at: _packed(values) for at, values in zip(wanted, columns, strict=True)}
        own = {name: batch.column(name) for name in (EPOCH, EPOCH_TIMESTAMP, SEQ, CHANGE_TYPE)}
        yield RowBatch(own, fields, batch.num_rows)


def _packed(values: Sequence[Value]) -> FieldColumns:
    """Returns a field of the class text, whose other values are packed."""
    texts = [each if each.__class__ is str else None for each in values]
    others = [None if each is None or each.__class__ is str else pack(each) for each in values]
    return FieldColumns("s", pa.array(texts, pa.string()), pa.array(others, pa.binary()))


def widest_of(objects: Objects, label: str, file: ColdFile) -> int:
    """Returns the most fields that a fact of a label has in an object of rare labels, -1 if there is none."""
    with _opened(objects, file) as parquet:
        table = parquet.read(["label", "arity"])
    compute = _compute()
    found = table.filter(compute.fill_null(compute.equal(table.column("label"), label), fill_value=False))
    return int(compute.max(found.column("arity")).as_py()) if found.num_rows else -1


def _opened(objects: Objects, file: ColdFile) -> ParquetFile:
    from pyarrow.parquet import ParquetFile

    source = _ObjectFile(objects, file.name, file.size)
    return ParquetFile(pa.PythonFile(source, mode="r"), pre_buffer=True)


class _ObjectFile(io.RawIOBase):
    """An object as a file to be read from any place of it."""

    def __init__(self, objects: Objects, name: str, size: int) -> None:
        self._objects = objects
        self._name = name
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._at + size, self._size)
        found = self._objects.get_part(self._name, self._at, end) if end > self._at else b""
        self._at += len(found)
        return found


# -- matching --------------------------------------------------------------------------------------


def _equal(field: FieldColumns, value: Value) -> pa.Array:
    """Returns which values equal a constant of a pattern: of the same class, and the same value."""
    compute = _compute()
    if value is None:
        none = compute.is_null(field.typed)
        return none if field.other is None else compute.and_(none, compute.is_null(field.other))
    if FITS[field.letter](value):
        return compute.fill_null(
            compute.equal(field.typed, pa.scalar(value, field.typed.type)), fill_value=False
        )
    if field.other is None:
        return pa.array([False] * len(field.typed))
    packed = field.other.to_pylist()
    return pa.array([each is not None and same(unpack_own(each), value) for each in packed])


def _of_class(field: FieldColumns, kind: type) -> pa.Array | None:
    """Returns which values are of a class; None for all of them."""
    typed = kind is CLASSES[field.letter]
    if field.other is None or field.other.null_count == len(field.other):
        if typed:
            return None if field.typed.null_count == 0 else field.typed.is_valid()
        return pa.array([False] * len(field.typed))
    others = pa.array(
        [each is not None and unpack_own(each).__class__ is kind for each in field.other.to_pylist()]
    )
    return _compute().or_(others, field.typed.is_valid()) if typed else others


# -- showing ---------------------------------------------------------------------------------------


def shown_rows(task: ColumnTask, batch: RowBatch) -> pa.RecordBatch:
    """Returns rows as the columns that Spark asks for."""
    bad: set[int] = set()
    columns = task.columns
    record_batch = pa.RecordBatch.from_arrays(
        [
            _own(task, each, batch) if each.capture is None else _captured(task, each, batch, bad)
            for each in columns.all
        ],
        schema=columns.arrow,
    )
    if bad and columns.malformed == "drop":
        return record_batch.filter(pa.array([at not in bad for at in range(batch.rows)]))
    return record_batch


def _own(task: ColumnTask, column: Column, batch: RowBatch) -> pa.Array:
    if column.name in (DAEMON, SPACE):
        return pa.repeat(task.daemon if column.name == DAEMON else task.space, batch.rows)
    found = batch.own[column.name]
    return found if found.type == column.arrow else found.cast(column.arrow)


def _captured(task: ColumnTask, column: Column, batch: RowBatch, bad: set[int]) -> pa.Array:
    assert column.capture is not None  # as the caller has seen
    field = batch.fields[task.form.captures[column.capture]]
    if field.other is None or field.other.null_count == len(field.other):
        direct = _texts(column, field) if column.fits is None else _direct(column, field)
        if direct is not None:
            return direct
    epochs = batch.own[EPOCH]
    return fitted(column, field.exact(), task.columns.malformed, bad, lambda row: int(epochs[row].as_py()))


def _direct(column: Column, field: FieldColumns) -> pa.Array | None:
    """Returns a field as Arrow has it, None where a value may not fit."""
    assert column.fits is not None  # as the caller has seen
    if CLASSES[field.letter] not in column.fits or (field.typed.null_count and type(None) not in column.fits):
        return None
    if column.convert is not None and column.convert is not str:
        return None
    try:
        return field.typed if field.typed.type == column.arrow else field.typed.cast(column.arrow)
    except pa.ArrowInvalid:
        return None  # an integer is too large for it


def _texts(column: Column, field: FieldColumns) -> pa.Array:
    """Returns a field as texts, each made once for all values that are the same."""
    encoded = field.typed.dictionary_encode()
    values = FieldColumns(field.letter, encoded.dictionary, None).exact()
    texts = pa.array(column.encoded(values), column.arrow).take(encoded.indices)
    if field.typed.null_count:
        (none,) = column.encoded([None])
        texts = _compute().fill_null(texts, none)
    return texts


def _compute() -> Any:
    """Arrow's functions, which take 50 ms to load: most of Spark's processes plan, and read nothing."""
    import pyarrow.compute

    return pyarrow.compute
