"""Facts: what each row of a result asserts, retracts or sends.

A sink is told how by a template, a fact in which captures name columns (``airborne($origin, $n)``), or
by a label that goes before all columns in their order.  Apart from the sink because it needs no Spark
process and no daemon: record batches go in, operations come out.

Always: a column's values keep their class (a bigint becomes an int, a double a float, an array a
sequence, null is null, and a string that is marked as a value's JSON that value); what has no value form
(dates, decimals, times without a zone) is refused when the query starts and not in the middle; the order
of rows is kept.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC
from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from dataspace.errors import DataspaceError, UsageError
from index.jsons import from_json
from index.text import ParseError, parse_pattern
from index.values import Map, Record
from relay.spark.schema import CHANGE_TYPE, RESERVED, capture_classes, is_json

if TYPE_CHECKING:
    import pyarrow as pa

    from index.values import Value

Operation: TypeAlias = tuple[str, "Value"]
Row: TypeAlias = tuple["Value", ...]
Build: TypeAlias = Callable[[Row], "Value"]

VERBS: Final[Mapping[object, str]] = {
    "insert": "assert",
    "update_postimage": "assert",
    "delete": "retract",
    "update_preimage": "retract",
    "message": "send",
}
"""What a row's ``_change_type`` has the sink do, in the words of Delta's change feeds and in ours."""


class BadRow(DataspaceError):
    """A row of a result that means no fact."""


class Facts:
    """Turns record batches of one schema into operations; raises ``UsageError`` for what cannot work."""

    def __init__(self, schema: StructType, *, template: str | None = None, label: str | None = None) -> None:
        names = schema.fieldNames()
        if template is not None:
            said = _parsed(template)
            wanted = _named(said, names)
        else:
            wanted = [name for name in names if name not in RESERVED]
        if CHANGE_TYPE in names:
            wanted.append(CHANGE_TYPE)
        self._columns = list(dict.fromkeys(wanted))
        self._converters = [_converter(schema[name]) for name in self._columns]
        places = {name: at for at, name in enumerate(self._columns)}
        self._kinds = places.get(CHANGE_TYPE)
        width = len(self._columns) - (self._kinds is not None)
        self._build = _builder(said, places) if template is not None else _labelled(label, width)

    def operations(self, batch: pa.RecordBatch) -> list[Operation]:
        """One operation for each row, in order: what its ``_change_type`` says, else an assertion."""
        build, kinds = self._build, self._kinds
        columns = [
            convert(batch.column(name)) for name, convert in zip(self._columns, self._converters, strict=True)
        ]
        rows = zip(*columns, strict=True) if columns else iter([()] * batch.num_rows)
        if kinds is None:
            return [("assert", build(row)) for row in rows]
        return [(_verb(row[kinds], row), build(row)) for row in rows]


def _verb(kind: Value, row: Row) -> str:
    try:
        return VERBS[kind]
    except KeyError:
        raise BadRow(
            f"{CHANGE_TYPE} is {kind!r} in {row!r}, allowed are {', '.join(map(str, VERBS))}"
        ) from None


def _labelled(label: str | None, width: int) -> Build:
    return lambda row: Record.of(label, row[:width])


def _parsed(template: str) -> Value:
    try:
        return parse_pattern(template)
    except ParseError as error:
        raise UsageError(f"option template: {error}") from None


def _named(template: Value, columns: Sequence[str]) -> list[str]:
    """The columns that a template names; ``UsageError`` for one that is not there."""
    named = [name for name, _ in capture_classes(template)]
    for name in named:
        if name not in columns:
            raise UsageError(f"option template: {_no_column(name, columns)}")
    return named


def _no_column(name: str, columns: Sequence[str]) -> str:
    there = f"(there are {', '.join(columns)})"
    if name.isdigit():
        return f"a $ without a name, but each names its column, as in $n {there}"
    near = difflib.get_close_matches(name, columns, n=1)
    return f"no column ${name}{f', did you mean ${near[0]}?' if near else ''} {there}"


def _builder(template: Value, places: Mapping[str, int]) -> Build:
    """What makes the template's value of a row."""
    match template:
        case Record(label="$", fields=(str(name), _, _)):
            return itemgetter(places[name])
        case Record(label="_"):
            raise UsageError(
                "option template: _ says nothing that could be asserted; name a column, as in $n"
            )
        case Record(label="lit", fields=(value,)):
            return lambda _row: value
        case Record(label="exact", fields=(inner,)):
            return _builder(inner, places)
        case Record(label=label, fields=parts):
            return _record(label, [_builder(part, places) for part in parts])
        case tuple():
            return _sequence([_builder(part, places) for part in template])
        case Map():
            return _map([(at, _builder(part, places)) for at, part in template.pairs()])
        case _:
            return lambda _row: template


def _record(label: Value, parts: Sequence[Build]) -> Build:
    return lambda row: Record.of(label, tuple([part(row) for part in parts]))


def _sequence(parts: Sequence[Build]) -> Build:
    return lambda row: tuple([part(row) for part in parts])


def _map(parts: Sequence[tuple[Value, Build]]) -> Build:
    return lambda row: Map.of([(at, part(row)) for at, part in parts])


_PLAIN: Final = (
    StringType,
    BooleanType,
    ByteType,
    ShortType,
    IntegerType,
    LongType,
    FloatType,
    DoubleType,
    BinaryType,
    NullType,
)

Convert: TypeAlias = Callable[["pa.Array"], Sequence["Value"]]


def _converter(field: StructField) -> Convert:
    """What makes the values of a column; ``UsageError`` for a type that has no value form."""
    each = _from_json if is_json(field) else _value_of(field.name, field.dataType)
    if each is None:
        return lambda column: column.to_pylist()
    return lambda column: [None if item is None else each(item) for item in column.to_pylist()]


def _from_json(text: object) -> Value:
    return from_json(json.loads(str(text)))


def _value_of(name: str, kind: DataType) -> Callable[[object], Value] | None:
    """How one Python object of a column becomes a value, or None where it is one."""
    if isinstance(kind, _PLAIN):
        return None
    if isinstance(kind, TimestampType):
        return lambda time: time.astimezone(UTC)  # type: ignore[attr-defined]  # Arrow gives aware times
    if isinstance(kind, ArrayType):
        inner = _value_of(name, kind.elementType)
        return lambda items: tuple(
            [item if item is None or inner is None else inner(item) for item in items]  # type: ignore[attr-defined]
        )
    raise UsageError(
        f"column {name} is {kind.simpleString()}, which is no value of a dataspace: cast it "
        f"(a date to timestamp or string, a decimal to double or string) or leave it out"
    )
