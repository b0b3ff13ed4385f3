"""Columns: the facts and messages of a range as Parquet, an object for each label and number of fields.

They are derived from the segments, for readers that want columns: Spark, DuckDB, Polars, pandas.  A row is
one change of a fact, or a message.  A field has the class of most of its values in the first range; a value
of another class, and what Parquet's readers take for another value (``-0.0``, NaN), is in ``fK_other`` as
msgpack.  ARCHIVE.md specifies the columns.

Always: the rows of all objects of a range, by epoch and position, are its changes, exactly.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, Final
from urllib.parse import quote

from dataspace.codec import pack, unpack_own
from index.errors import UsageError
from index.values.values import Record, Value
from relay.log.segments import Segment

MOST_LABELS: Final = 64
"""Labels of a range that have an object of their own, whatever their rows; the most frequent ones."""

MANY_ROWS: Final = 4_096
"""Rows with which each further label has one as well."""

LABEL_BYTES: Final = 128
"""Bytes of a label that can name a folder."""

GROUP_ROWS: Final = 131_072
"""Rows of a row group of Parquet."""

LEVEL: Final = 3

KINDS: Final = ("insert", "message", "delete")
"""The values of ``_change_type``, in the order in which an epoch has its changes."""

_CLASSES: Final[Mapping[type, str]] = {bool: "b", int: "i", float: "f", str: "s", bytes: "y", datetime: "t"}

Types = Mapping[str, str]
"""The class of each field by ``label/arity``: a letter of ``_CLASSES`` for each."""


@dataclass(frozen=True, slots=True)
class ColumnObject:
    """One object in Parquet: its label and number of fields, None and -1 for the object of all other rows.

    ``others`` are the fields that have values of other classes.
    """

    label: str | None
    arity: int
    rows: int
    content: bytes
    others: tuple[int, ...] | None = None

    @property
    def folder(self) -> str:
        """Returns the folder for it."""
        if self.label is None:
            return "columns/rest"
        return f"columns/label={quote(self.label, safe='')}/arity={self.arity}"


@dataclass(slots=True)
class _Rows:
    """Changes of one kind of record: their numbers and times, positions, kinds, and rows of the log."""

    epochs: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    rows: list[Any] = field(default_factory=list)


def columns_of(segments: Iterable[Segment], types: Types) -> tuple[list[ColumnObject], dict[str, str]]:
    """Returns the objects of some segments, and the classes of fields that were not settled before.

    O(changes), some 4 µs each; holds all rows at once.
    """
    found, others = _gathered(segments)
    own = _own_labels(found, types)
    settled: dict[str, str] = {}
    made: list[ColumnObject] = []
    for (label, arity), rows in sorted(found.items(), key=itemgetter(0)):
        if label not in own:
            _add_all(others, label, rows)
            continue
        name = f"{label}/{arity}"
        columns = list(zip(*rows.rows, strict=True))[1:]
        classes = types.get(name) or settled.setdefault(name, "".join(map(_class_of, columns)))
        content, fields = _written(label, arity, rows, columns, classes)
        made.append(ColumnObject(label, arity, len(rows.rows), content, fields))
    if others.rows:
        made.append(ColumnObject(None, -1, len(others.rows), _rest(others)))
    return made, settled


def _gathered(segments: Iterable[Segment]) -> tuple[dict[tuple[str, int], _Rows], _Rows]:
    """Returns changes by label and number of fields, and the changes of all other values."""
    found: dict[tuple[str, int], _Rows] = {}
    others = _Rows()
    for segment in segments:
        for number, time, counts, rows, plain in segment.rows_after(0, segment.last):
            bare, kinds = set(plain), [0] * counts[0] + [1] * counts[1] + [2] * counts[2]
            for at, kind in enumerate(kinds):
                row = rows[at]
                if at in bare:
                    into, row = others, (None, -1, row)
                elif row[0].__class__ is str:
                    key = row[0], len(row) - 1
                    known = found.get(key)
                    into = found.setdefault(key, _Rows()) if known is None else known
                else:
                    into, row = others, (None, len(row) - 1, Record.of(row[0], row[1:]))
                into.epochs.append(number)
                into.times.append(time)
                into.places.append(at)
                into.kinds.append(kind)
                into.rows.append(row)
    return found, others


def _own_labels(found: Mapping[tuple[str, int], _Rows], types: Types) -> set[str]:
    """Returns the labels that have folders of their own; one of several that differ in case only."""
    counts: dict[str, int] = {}
    for (label, _), rows in found.items():
        counts[label] = counts.get(label, 0) + len(rows.rows)
    spelled = {name.rpartition("/")[0].lower(): name.rpartition("/")[0] for name in types}
    for label in sorted(counts, key=lambda each: (-counts[each], each)):
        spelled.setdefault(label.lower(), label)
    fit = [each for each in counts if _is_folder(each) and spelled[each.lower()] == each]
    frequent = sorted(fit, key=lambda each: (-counts[each], each))[:MOST_LABELS]
    return {*frequent, *[each for each in fit if counts[each] >= MANY_ROWS]}


def _is_folder(label: str) -> bool:
    return 0 < len(label.encode()) <= LABEL_BYTES


def _add_all(others: _Rows, label: str, rows: _Rows) -> None:
    others.epochs += rows.epochs
    others.times += rows.times
    others.places += rows.places
    others.kinds += rows.kinds
    others.rows += [(label, len(row) - 1, Record.of(row[0], row[1:])) for row in rows.rows]


def _class_of(column: Sequence[Value]) -> str:
    """Returns the class of most values of a field that can be a column; text if there is none."""
    counts: dict[str, int] = {}
    for value in column:
        letter = _CLASSES.get(value.__class__)
        if letter is not None:
            counts[letter] = counts.get(letter, 0) + 1
    return max(sorted(counts), key=counts.__getitem__, default="s")


# -- writing ---------------------------------------------------------------------------------------


def _written(
    label: str, arity: int, rows: _Rows, columns: Sequence[Sequence[Value]], classes: str
) -> tuple[bytes, tuple[int, ...]]:
    """Returns an object, and the fields that have values of other classes."""
    arrow, others = _arrow(), list[int]()
    names, arrays = _common(rows)
    for at, (column, letter) in enumerate(zip(columns, classes, strict=True)):
        typed, other = _typed(column, letter)
        names.append(f"f{at}")
        arrays.append(typed)
        if other is not None:
            names.append(f"f{at}_other")
            arrays.append(other)
            others.append(at)
    told = {"label": label, "arity": arity, "classes": classes}
    return _parquet(arrow.table(arrays, names=names), told), tuple(others)


def _rest(others: _Rows) -> bytes:
    arrow = _arrow()
    order = sorted(range(len(others.rows)), key=lambda at: (others.epochs[at], others.places[at]))
    sorted_rows = _Rows(
        [others.epochs[at] for at in order],
        [others.times[at] for at in order],
        [others.places[at] for at in order],
        [others.kinds[at] for at in order],
        [others.rows[at] for at in order],
    )
    names, arrays = _common(sorted_rows)
    labels, arities, values = zip(*sorted_rows.rows, strict=True)
    names += ["label", "arity", "value"]
    arrays += [
        arrow.array(labels, arrow.string()),
        arrow.array(arities, arrow.int16()),
        arrow.array(list(map(pack, values)), arrow.binary()),
    ]
    return _parquet(arrow.table(arrays, names=names), {})


def _common(rows: _Rows) -> tuple[list[str], list[Any]]:
    arrow = _arrow()
    return ["_epoch", "_epoch_timestamp", "_seq", "_change_type"], [
        arrow.array(rows.epochs, arrow.int64()),
        arrow.array(rows.times, arrow.int64()).cast(arrow.timestamp("us", tz="UTC")),
        arrow.array(rows.places, arrow.int32()),
        arrow.array([KINDS[kind] for kind in rows.kinds], arrow.string()),
    ]


def _typed(column: Sequence[Value], letter: str) -> tuple[Any, Any]:
    """Returns a field as an array of its class, and an array of other values, None if there are none."""
    arrow, wanted, fits = _arrow(), _type(letter), _FITS[letter]
    if all(map(fits, column)):
        return arrow.array(column, wanted), None
    inside = [value if fits(value) else None for value in column]
    outside = [
        None if value is None or kept is not None else pack(value)
        for value, kept in zip(column, inside, strict=True)
    ]
    other = arrow.array(outside, arrow.binary()) if any(each is not None for each in outside) else None
    return arrow.array(inside, wanted), other


def field_arrays(rows: Sequence[Sequence[Value]], classes: str) -> Iterator[tuple[str, Any]]:
    """Yields the columns of the fields of some facts, with their names."""
    for at, (column, letter) in enumerate(zip(zip(*rows, strict=True), classes, strict=True)):
        typed, other = _typed(column, letter)
        yield f"f{at}", typed
        if other is not None:
            yield f"f{at}_other", other


def _is_plain_float(value: Any) -> bool:
    return (
        value.__class__ is float and not math.isnan(value) and (value != 0.0 or math.copysign(1, value) > 0)
    )


_FITS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "b": lambda value: value.__class__ is bool,
    "i": lambda value: value.__class__ is int and -(1 << 63) <= value < 1 << 63,
    "f": _is_plain_float,
    "s": lambda value: value.__class__ is str,
    "y": lambda value: value.__class__ is bytes,
    "t": lambda value: value.__class__ is datetime,
}


def _type(letter: str) -> Any:
    arrow = _arrow()
    return {
        "b": arrow.bool_(),
        "i": arrow.int64(),
        "f": arrow.float64(),
        "s": arrow.string(),
        "y": arrow.binary(),
        "t": arrow.timestamp("us", tz="UTC"),
    }[letter]


def _parquet(table: Any, told: Mapping[str, object]) -> bytes:
    from pyarrow import BufferOutputStream, parquet

    sink = BufferOutputStream()
    table = table.replace_schema_metadata({"dataspace": json.dumps(told)})
    parquet.write_table(
        table,
        sink,
        compression="zstd",
        compression_level=LEVEL,
        row_group_size=GROUP_ROWS,
        write_page_index=True,
    )
    return bytes(sink.getvalue())


# -- reading ---------------------------------------------------------------------------------------


ExactChange = tuple[int, int, int, str, Value]
"""Epoch, time in microseconds, position in the epoch, kind, and value of a change."""


def exact_changes(content: bytes) -> Iterator[ExactChange]:
    """Yields the rows of an object with their exact values, in order; some 10 µs each.  To verify."""
    from pyarrow import BufferReader, parquet

    table = parquet.read_table(BufferReader(content))
    told = json.loads(table.schema.metadata[b"dataspace"])
    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    times = table.column("_epoch_timestamp").cast(_arrow().int64()).to_pylist()
    common = columns["_epoch"], times, columns["_seq"], columns["_change_type"]
    if "label" not in told:
        yield from zip(*common, map(unpack_own, columns["value"]), strict=True)
        return
    fields = []
    for at, letter in enumerate(told["classes"]):
        values, others = columns[f"f{at}"], columns.get(f"f{at}_other")
        if letter == "t":
            values = [None if each is None else each.replace(tzinfo=UTC) for each in values]
        fields.append(values if others is None else list(map(_exact, values, others)))
    rows: Iterable[tuple[Value, ...]] = zip(*fields, strict=True) if fields else [()] * table.num_rows
    yield from zip(*common, (Record.of(told["label"], row) for row in rows), strict=True)


def _exact(value: Value, other: bytes | None) -> Value:
    return value if other is None else unpack_own(other)


def _arrow() -> Any:
    try:
        import pyarrow  # needed for columns only
    except ImportError:
        raise UsageError("columns need pyarrow: pip install 'dataspace-server[archive]'") from None
    return pyarrow
