"""Columns: the facts and messages of a range as Parquet, an object for each label and number of fields.

They are derived from the segments, for readers that want columns: Spark, DuckDB, Polars, pandas.  A row is
one change of a fact, or a message.  A field has the class of most of its values in the first range, until a
merge finds that another one has most by far; a value of another class, and what Parquet's readers take for
another value (``-0.0``, NaN), is in ``fK_other`` as msgpack.  ARCHIVE.md specifies the columns.

Always: the rows of all objects of a range, by epoch and position, are its changes, exactly.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from operator import itemgetter
from typing import Any, Final
from urllib.parse import quote

from dataspace.codec import pack, unpack_own
from index.errors import UsageError
from index.values.values import Map, Record, Value
from relay.log.segments import Rows, Segment, rows_of

MOST_LABELS: Final = 64
"""Labels of a range that have objects of their own, whatever their rows; the most frequent ones."""

MOST_KINDS: Final = 256
"""Numbers of fields of all these labels together that have an object, whatever their rows."""

MANY_ROWS: Final = 4_096
"""Rows with which each further label, and number of fields, has one as well."""

LABEL_BYTES: Final = 128
"""Bytes of a label that can name a folder."""

NAME_BYTES: Final = 255 - len("label=")
"""Bytes of a label, percent-encoded, that can be in the name of a folder."""

MOST_FIELDS: Final = 256
"""Fields of a record that can be columns of their own; a record with more is among all other rows."""

MOST_ARITY: Final = (1 << 15) - 1
"""The number of fields that stands in the column ``arity`` for this number and all larger ones."""

GROUP_ROWS: Final = 131_072
"""Rows of a row group of Parquet."""

CLUSTERED_ROWS: Final = 16_384
"""The same where rows are ordered by fields."""

LEVEL: Final = 3

CAST_ROWS: Final = 65_536
"""Rows whose values are in Python at a time while a field gets another class."""

CLEAR: Final = 2
"""How many times as many values of another class a field must have to get that class.

So a field with as many values of one as of the other keeps its class.
"""

ERASED: Final = "erased"
ERASED_VALUE: Final = Record(ERASED)
"""What stands for an erased fact or message; it is no fact of a state."""

KINDS: Final = ("insert", "message", "delete")
"""The values of ``_change_type``, in the order in which an epoch has its changes."""

LETTERS: Final[Mapping[type, str]] = {bool: "b", int: "i", float: "f", str: "s", bytes: "y", datetime: "t"}

Types = Mapping[str, str]
"""The class of each field by ``label/arity``: a letter of ``LETTERS`` for each."""


@dataclass(frozen=True, slots=True)
class ColumnObject:
    """One object in Parquet: its label and number of fields, None and -1 for the object of all other rows.

    ``others`` are the fields that have values of other classes, ``order`` the fields that rows are ordered by
    before epoch and position.  ``net`` counts its insertions less its deletions.
    """

    label: str | None
    arity: int
    rows: int
    content: bytes
    others: tuple[int, ...] | None = None
    net: int = 0
    order: tuple[int, ...] = ()

    @property
    def folder(self) -> str:
        """Returns the folder for it, below the folder of its form."""
        return "rest" if self.label is None else label_folder(self.label, self.arity)


def label_folder(label: str, arity: int) -> str:
    """Returns the folder for the objects of a label and a number of fields, below the folder of their form.

    A file system takes names of 255 bytes.  A label that is longer, percent-encoded, is named by its hash:
    the ``@`` before that stands in no percent-encoded label, so no two labels have one folder.

    >>> label_folder("flight", 5), label_folder("a/b", 1)
    ('label=flight/arity=5', 'label=a%2Fb/arity=1')
    >>> len(label_folder("日" * 42, 1))
    47
    """
    spelled = quote(label, safe="")
    if len(spelled) > NAME_BYTES:
        spelled = "@" + blake2b(label.encode(), digest_size=16).hexdigest()
    return f"label={spelled}/arity={arity}"


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
    return _objects(_gathered(row for each in segments for row in each.rows_after(0, each.last)), types)


def state_of(
    facts: Sequence[Value], epoch: int, time: int, types: Types
) -> tuple[list[ColumnObject], dict[str, str]]:
    """Returns the same of facts that held after an epoch; when they were asserted is not known."""
    rows, plain = rows_of(facts)
    return _objects(_gathered([(epoch, time, (len(facts), 0, 0), rows, plain)]), types, is_state=True)


def _objects(
    gathered: tuple[dict[tuple[str, int], _Rows], _Rows], types: Types, *, is_state: bool = False
) -> tuple[list[ColumnObject], dict[str, str]]:
    found, others = gathered
    finish = _without_since if is_state else _as_it_is
    own = _own_kinds(found, types)
    settled: dict[str, str] = {}
    objects: list[ColumnObject] = []
    for (label, arity), rows in sorted(found.items(), key=itemgetter(0)):
        if (label, arity) not in own:
            _add_all(others, label, rows)
            continue
        name = f"{label}/{arity}"
        columns = list(zip(*rows.rows, strict=True))[1:]
        classes = types.get(name) or settled.setdefault(name, "".join(map(_class_of, columns)))
        table = finish(_label_table(rows, columns, classes))
        objects.append(written(table, label, arity, classes, net=_net(rows)))
    if others.rows:
        objects.append(written(finish(_rest(others)), None, -1, net=_net(others)))
    return objects, settled


def _as_it_is(table: Any) -> Any:
    return table


def _without_since(table: Any) -> Any:
    arrow = arrow_module()
    none = arrow.nulls(table.num_rows, arrow.int64())
    when = none.cast(arrow.timestamp("us", tz="UTC"))
    places = arrow.array(range(table.num_rows), arrow.int32())
    table = table.set_column(table.column_names.index("_seq"), "_seq", places)
    return table.append_column("_since", none).append_column("_since_timestamp", when)


def _net(rows: _Rows) -> int:
    return rows.kinds.count(0) - rows.kinds.count(2)


def _gathered(given: Iterable[Rows]) -> tuple[dict[tuple[str, int], _Rows], _Rows]:
    """Returns changes by label and number of fields, and the changes of all other values."""
    found: dict[tuple[str, int], _Rows] = {}
    others = _Rows()
    for number, time, counts, rows, plain in given:
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


def _own_kinds(found: Mapping[tuple[str, int], _Rows], types: Types) -> set[tuple[str, int]]:
    """Returns the labels and numbers of fields that have objects of their own.

    Of several labels that differ in case only, one has.
    """
    counts: dict[str, int] = {}
    for (label, _), rows in found.items():
        counts[label] = counts.get(label, 0) + len(rows.rows)
    spelled = {name.rpartition("/")[0].lower(): name.rpartition("/")[0] for name in types}
    for label in sorted(counts, key=lambda name: (-counts[name], name)):
        spelled.setdefault(label.lower(), label)
    fit = [each for each in counts if is_folder(each) and spelled[each.lower()] == each]
    frequent = sorted(fit, key=lambda name: (-counts[name], name))[:MOST_LABELS]
    labels = {*frequent, *[each for each in fit if counts[each] >= MANY_ROWS]}
    return own_kinds({kind: len(rows.rows) for kind, rows in found.items() if kind[0] in labels})


def own_kinds(counts: Mapping[tuple[str, int], int]) -> set[tuple[str, int]]:
    """Returns which labels and numbers of fields have objects of their own, by the rows of each.

    A record of many fields would be as many columns, and a label with many numbers of fields as many objects:
    such rows are among all other rows.  The objects of a range are bounded so, and their columns.
    """
    narrow = [kind for kind in counts if kind[1] <= MOST_FIELDS]
    frequent = sorted(narrow, key=lambda kind: (-counts[kind], kind))
    return {kind for at, kind in enumerate(frequent) if at < MOST_KINDS or counts[kind] >= MANY_ROWS}


def is_folder(label: str) -> bool:
    """True if a label can have objects of its own."""
    return label != ERASED and 0 < len(label.encode()) <= LABEL_BYTES


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
        letter = LETTERS.get(value.__class__)
        if letter is not None:
            counts[letter] = counts.get(letter, 0) + 1
    return max(sorted(counts), key=counts.__getitem__, default="s")


# -- writing ---------------------------------------------------------------------------------------


def written(
    table: Any, label: str | None, arity: int, classes: str = "", *, net: int = 0, order: tuple[int, ...] = ()
) -> ColumnObject:
    """Returns the object of a table that has the columns of ARCHIVE.md, in the order that it is to have."""
    from pyarrow import BufferOutputStream, parquet

    metadata = {} if label is None else {"label": label, "arity": arity, "classes": classes, "order": order}
    sink = BufferOutputStream()
    parquet.write_table(
        table.replace_schema_metadata({"dataspace": json.dumps(metadata)}),
        sink,
        compression="zstd",
        compression_level=LEVEL,
        row_group_size=CLUSTERED_ROWS if order else GROUP_ROWS,
        write_page_index=True,
    )
    there = set(table.column_names)  # pyarrow makes the list anew each time, which is as long as the row
    others = tuple([at for at in range(arity) if f"f{at}_other" in there])
    content = bytes(sink.getvalue())
    return ColumnObject(label, arity, table.num_rows, content, None if label is None else others, net, order)


def _label_table(rows: _Rows, columns: Sequence[Sequence[Value]], classes: str) -> Any:
    arrow = arrow_module()
    names, arrays = _common(rows)
    for at, (column, letter) in enumerate(zip(columns, classes, strict=True)):
        typed, other = _typed(column, letter)
        names.append(f"f{at}")
        arrays.append(typed)
        if other is not None:
            names.append(f"f{at}_other")
            arrays.append(other)
    return arrow.table(arrays, names=names)


def _rest(others: _Rows) -> Any:
    arrow = arrow_module()
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
        arrow.array([min(each, MOST_ARITY) for each in arities], arrow.int16()),
        arrow.array(list(map(_packed, values)), arrow.binary()),
    ]
    return arrow.table(arrays, names=names)


def label_table(rest: Any, classes: str) -> Any:
    """Returns rows of the object of all other rows, of one label and number of fields, as that label's own.

    O(rows), some 5 µs each.
    """
    facts: list[Any] = list(map(unpack_own, rest.column("value").to_pylist()))
    table = rest.drop_columns(["label", "arity", "value"])
    for name, array in field_arrays([fact.fields for fact in facts], classes):
        table = table.append_column(name, array)
    return table


def classes_of(rest: Any) -> str:
    """Returns the class of each field of some rows as ``label_table`` takes them."""
    facts: list[Any] = list(map(unpack_own, rest.column("value").to_pylist()))
    return "".join(map(_class_of, zip(*[fact.fields for fact in facts], strict=True)))


def kinds_of_rest(content: bytes) -> frozenset[tuple[str, int]]:
    """Returns the labels and numbers of fields that an object of all other rows has rows of."""
    from pyarrow import BufferReader, parquet

    table = parquet.read_table(BufferReader(content), columns=["label", "arity"])
    unique = table.group_by(["label", "arity"]).aggregate([])
    pairs = zip(unique.column("label").to_pylist(), unique.column("arity").to_pylist(), strict=True)
    return frozenset([(label, arity) for label, arity in pairs if label is not None and arity >= 0])


def _common(rows: _Rows) -> tuple[list[str], list[Any]]:
    arrow = arrow_module()
    return ["_epoch", "_epoch_timestamp", "_seq", "_change_type"], [
        arrow.array(rows.epochs, arrow.int64()),
        arrow.array(rows.times, arrow.int64()).cast(arrow.timestamp("us", tz="UTC")),
        arrow.array(rows.places, arrow.int32()),
        arrow.array([KINDS[kind] for kind in rows.kinds], arrow.string()),
    ]


def _typed(column: Sequence[Value], letter: str) -> tuple[Any, Any]:
    """Returns a field as an array of its class, and an array of other values, None if there are none."""
    arrow, wanted, fits = arrow_module(), _type(letter), FITS[letter]
    if all(map(fits, column)):
        return arrow.array(column, wanted), None
    inside = [value if fits(value) else None for value in column]
    outside = [
        None if value is None or kept is not None else _packed(value)
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


def _packed(value: Value) -> bytes:
    """Returns a value as msgpack; the same bytes for equal values, though NaN has many forms."""
    packed = pack(value)
    return pack(_with_one_nan(value)) if b"\xcb\x7f" in packed or b"\xcb\xff" in packed else packed


def _with_one_nan(value: Any) -> Any:
    match value:
        case float():
            return math.nan if math.isnan(value) else value
        case Record():
            return Record.of(_with_one_nan(value.label), tuple(map(_with_one_nan, value.fields)))
        case tuple():
            return tuple(map(_with_one_nan, value))
        case Map():
            return Map([(_with_one_nan(key), _with_one_nan(each)) for key, each in value.pairs()])
    return value


def _is_plain_float(value: Any) -> bool:
    return (
        value.__class__ is float and not math.isnan(value) and (value != 0.0 or math.copysign(1, value) > 0)
    )


FITS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "b": lambda value: value.__class__ is bool,
    "i": lambda value: value.__class__ is int and -(1 << 63) <= value < 1 << 63,
    "f": _is_plain_float,
    "s": lambda value: value.__class__ is str,
    "y": lambda value: value.__class__ is bytes,
    "t": lambda value: value.__class__ is datetime,
}
"""By its letter, whether a value stands in a column of that class, and not beside it in ``fK_other``."""


def _type(letter: str) -> Any:
    arrow = arrow_module()
    return {
        "b": arrow.bool_(),
        "i": arrow.int64(),
        "f": arrow.float64(),
        "s": arrow.string(),
        "y": arrow.binary(),
        "t": arrow.timestamp("us", tz="UTC"),
    }[letter]


# -- settling anew ---------------------------------------------------------------------------------


def classes_in(table: Any) -> str:
    """Returns the class of each field of an object that was read, as the object has it."""
    classes: str = json.loads(table.schema.metadata[b"dataspace"])["classes"]
    return classes


def settled_anew(parts: Sequence[tuple[Any, str]], known: str) -> str:
    """Returns the classes that fields have by the values of some tables, each with its own classes.

    A field keeps its known class unless another has more than ``CLEAR`` times as many values.  O(fields), and
    O(values) for a field that has so many values beside its column.
    """
    return "".join([_settled_anew(parts, at, letter) for at, letter in enumerate(known)])


def _settled_anew(parts: Sequence[tuple[Any, str]], at: int, known: str) -> str:
    inside = outside = 0
    for table, classes in parts:
        valid, packed = _valid(table, f"f{at}"), _valid(table, f"f{at}_other")
        inside, outside = inside + (classes[at] == known) * valid, outside + packed
        outside += (classes[at] != known) * valid
    if outside <= CLEAR * inside:
        return known
    counts: dict[str, int] = {}
    for table, classes in parts:
        counts[classes[at]] = counts.get(classes[at], 0) + _valid(table, f"f{at}")
        if _valid(table, f"f{at}_other"):
            _count_packed(table.column(f"f{at}_other"), counts)
    most = max(sorted(counts), key=counts.__getitem__)
    return most if counts[most] > CLEAR * counts.get(known, 0) else known


def _valid(table: Any, name: str) -> int:
    at = table.schema.get_field_index(name)
    return 0 if at < 0 else table.num_rows - table.column(at).null_count


def _count_packed(column: Any, counts: dict[str, int]) -> None:
    """Counts packed values by their classes; values that can be no column are left out.

    The first byte says the class, but of what is packed as an extension: large integers, times, records.
    """
    from pyarrow import compute

    column = column.drop_null()
    first = compute.binary_slice(column, 0, 1)
    for entry in compute.value_counts(first).to_pylist():
        if entry["values"] not in _EXTENSIONS:
            some = column.filter(compute.equal(first, entry["values"])).slice(0, 1)
            _count_values(some, counts, entry["counts"])
    _count_values(column.filter(compute.is_in(first, value_set=arrow_module().array(_EXTENSIONS))), counts)


def _count_values(column: Any, counts: dict[str, int], times: int = 1) -> None:
    for start in range(0, len(column), CAST_ROWS):
        for each in column.slice(start, CAST_ROWS).to_pylist():
            letter = LETTERS.get(unpack_own(each).__class__)
            if letter is not None:
                counts[letter] = counts.get(letter, 0) + times


_EXTENSIONS: Final = [bytes([each]) for each in (*range(0xC7, 0xCA), *range(0xD4, 0xD9))]
"""The first bytes of extensions in msgpack."""


def with_classes(table: Any, now: str, classes: str) -> Any:
    """Returns a label's rows with the same values in columns of other classes; some 0.5 µs a moved value."""
    for at, (one, other) in enumerate(zip(now, classes, strict=True)):
        if one != other:
            table = _with_class(table, at, one, other)
    return table


def _with_class(table: Any, at: int, now: str, letter: str) -> Any:
    arrow, name, count = arrow_module(), f"f{at}", table.num_rows
    slices = [table.slice(start, CAST_ROWS) for start in range(0, count, CAST_ROWS)]
    parts = [_typed(_values(each, at, now), letter) for each in slices]
    place = table.schema.get_field_index(f"{name}_other")
    if place >= 0:
        table = table.remove_column(place)
    place = table.schema.get_field_index(name)
    typed = arrow.chunked_array([each for each, _ in parts], _type(letter))
    table = table.set_column(place, name, typed)
    if all(packed is None for _, packed in parts):
        return table
    others = [arrow.nulls(len(each), arrow.binary()) if packed is None else packed for each, packed in parts]
    return table.add_column(place + 1, f"{name}_other", arrow.chunked_array(others, arrow.binary()))


# -- reading ---------------------------------------------------------------------------------------


ExactChange = tuple[int, int, int, str, Value]
"""Epoch, time in microseconds, position in the epoch, kind, and value of a change."""


def exact_changes(content: bytes) -> Iterator[ExactChange]:
    """Yields the rows of an object with their exact values, in order; some 10 µs each.  To verify."""
    from pyarrow import BufferReader, parquet

    table = parquet.read_table(BufferReader(content))
    metadata = json.loads(table.schema.metadata[b"dataspace"])
    times = table.column("_epoch_timestamp").cast(arrow_module().int64()).to_pylist()
    own = [table.column(name).to_pylist() for name in ("_epoch", "_seq", "_change_type")]
    common = own[0], times, *own[1:]
    if "label" not in metadata:
        yield from zip(*common, map(unpack_own, table.column("value").to_pylist()), strict=True)
        return
    fields = [_values(table, at, letter) for at, letter in enumerate(metadata["classes"])]
    rows: Iterable[tuple[Value, ...]] = zip(*fields, strict=True) if fields else [()] * table.num_rows
    yield from zip(*common, (Record.of(metadata["label"], row) for row in rows), strict=True)


def exact_intervals(content: bytes) -> Iterator[tuple[int | None, int | None]]:
    """Yields ``_since`` and ``_until`` of the rows of an object, in order, None for none.  To verify."""
    from pyarrow import BufferReader, parquet

    table = parquet.read_table(BufferReader(content))
    none = [None] * table.num_rows
    pair = [table.column(each).to_pylist() if each in table.column_names else none for each in _INTERVALS]
    yield from zip(*pair, strict=True)


_INTERVALS: Final = ("_since", "_until")


def _values(table: Any, at: int, letter: str) -> list[Value]:
    """Returns the exact values of a field whose column has a class."""
    values: list[Any] = table.column(f"f{at}").to_pylist()
    if letter == "t":
        values = [None if each is None else each.replace(tzinfo=UTC) for each in values]
    other = table.schema.get_field_index(f"f{at}_other")
    return values if other < 0 else list(map(_exact, values, table.column(other).to_pylist()))


def _exact(value: Value, other: bytes | None) -> Value:
    return value if other is None else unpack_own(other)


def arrow_module() -> Any:
    try:
        import pyarrow  # needed for columns only
    except ImportError:
        raise UsageError("columns need pyarrow: pip install 'dataspace-server[archive]'") from None
    return pyarrow
