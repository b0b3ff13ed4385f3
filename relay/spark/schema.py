"""Schema: which columns a pattern makes, and what each of them can hold?

``flight($carrier:str, $n:int, _)`` makes ``carrier string, n bigint`` and, as in Delta's change feeds,
``_change_type``, ``_epoch``, ``_epoch_timestamp`` and ``_seq``.  A capture without an atom class, or of
compounds, has no one Spark type: unless a schema is given it becomes a string with the value's documented
JSON, marked in the column's metadata.  A given schema names any of these columns, in any order.

Always: one column holds values of one class, strictly, so that nothing is converted on the way: an
integer is no double here either.  The only other occupant is null, which is a value as well.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from dataspace.errors import UsageError
from index.jsons import to_json
from index.patterns import capture_names, skeleton
from index.text import ParseError, parse_pattern

if TYPE_CHECKING:
    import pyarrow as pa

    from index.values import Value

CHANGE_TYPE: Final = "_change_type"
EPOCH: Final = "_epoch"
EPOCH_TIMESTAMP: Final = "_epoch_timestamp"
SEQ: Final = "_seq"

RESERVED: Final[Mapping[str, DataType]] = {
    CHANGE_TYPE: StringType(),
    EPOCH: LongType(),
    EPOCH_TIMESTAMP: TimestampType(),
    SEQ: LongType(),
}

JSON_MARK: Final = {"dataspace": "json"}
"""Metadata of a column whose strings are the JSON of values."""

_OF_CLASS: Final[Mapping[str, DataType]] = {
    "str": StringType(),
    "int": LongType(),
    "float": DoubleType(),
    "bool": BooleanType(),
    "bytes": BinaryType(),
    "time": TimestampType(),
}
_ATOMS: Final[Mapping[type[DataType], tuple[str, type]]] = {
    StringType: ("str", str),
    ByteType: ("int", int),
    ShortType: ("int", int),
    IntegerType: ("int", int),
    LongType: ("int", int),
    DoubleType: ("float", float),
    BooleanType: ("bool", bool),
    BinaryType: ("bytes", bytes),
    TimestampType: ("time", datetime),
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name and types, and which capture fills it (None for the columns of our own)."""

    name: str
    spark: DataType
    arrow: pa.DataType
    capture: int | None
    fits: frozenset[type] | None

    def misfits(self, values: Sequence[Value]) -> bool:
        """Whether there is a value of a class that this column does not hold; one pass at C speed."""
        return self.fits is not None and not self.fits.issuperset(map(type, values))

    def holds(self, value: Value) -> bool:
        """Whether one value fits, its size included."""
        if self.fits is None:
            return True
        bits = _BITS.get(type(self.spark))
        small = bits is None or not isinstance(value, int) or -(1 << bits) <= value < 1 << bits
        return type(value) in self.fits and small

    def encoded(self, values: Sequence[Value]) -> Sequence[object]:
        """What Arrow is given for the values."""
        return values if self.fits is not None else [json_text(value) for value in values]

    @property
    def remedy(self) -> str:
        """What a reader can do about a value that does not fit."""
        return "let the pattern ask for the class, or leave the class and the schema away to get JSON"


_BITS: Final[Mapping[type[DataType], int]] = {ByteType: 7, ShortType: 15, IntegerType: 31, LongType: 63}


@dataclass(frozen=True, slots=True)
class Columns:
    """All columns of a source, in order, and the Arrow schema that Spark expects of its batches."""

    all: tuple[Column, ...]
    arrow: pa.Schema


def inferred(pattern: str) -> StructType:
    """The schema of a pattern: its captures, then our own columns.

    Raises ``UsageError`` for a pattern that does not parse, and for names of captures that Spark could
    not tell apart.

    >>> inferred("present($who:str)").simpleString()
    'struct<who:string,_change_type:string,_epoch:bigint,_epoch_timestamp:timestamp,_seq:bigint>'
    """
    fields = [_inferred_field(name, kind) for name, kind in _captured(pattern)]
    return StructType(fields + [StructField(name, kind, False) for name, kind in RESERVED.items()])


def columns(pattern: str, schema: StructType) -> Columns:
    """How the captures of a pattern fill the columns of a schema, inferred or given.

    Raises ``UsageError`` for a column that the pattern does not make, and for a type that cannot hold
    what the pattern captures.
    """
    known = {name: (at, kind) for at, (name, kind) in enumerate(_captured(pattern))}
    arrow = to_arrow_schema(schema, timezone="UTC")
    made = [
        _reserved(field, arrow.field(field.name).type)
        if field.name in RESERVED
        else _captured_column(field, arrow.field(field.name).type, known)
        for field in schema.fields
    ]
    return Columns(tuple(made), arrow)


def parsed(pattern: str) -> Value:
    """The pattern that an option says; ``UsageError`` points at what is wrong with it."""
    try:
        return parse_pattern(pattern)
    except ParseError as error:
        raise UsageError(f"option pattern: {error}") from None


def json_text(value: Value) -> str:
    """The documented JSON of a value, in one line."""
    return json.dumps(to_json(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def is_json(field: StructField) -> bool:
    """Whether a column holds the JSON of values rather than texts."""
    marked = field.metadata.get("dataspace") == JSON_MARK["dataspace"]
    return marked and isinstance(field.dataType, StringType)


def _captured(pattern: str) -> list[tuple[str, str | None]]:
    """Name and atom class of every capture, in the order of the captures."""
    found = capture_classes(parsed(pattern))
    folded: dict[str, str] = {name.lower(): name for name in RESERVED}
    for name, _ in found:
        other = folded.setdefault(name.lower(), name)
        if other != name or name in RESERVED:
            raise UsageError(f"capture ${name} cannot be told from column {other}: give it another name")
    return found


def _inferred_field(name: str, kind: str | None) -> StructField:
    known = _OF_CLASS.get(kind or "")
    # Nullable in any case, so that a later decision on facts that do not fit cannot change a schema.
    return StructField(name, known, True) if known else StructField(name, StringType(), True, dict(JSON_MARK))


def _reserved(field: StructField, arrow: pa.DataType) -> Column:
    if field.dataType != RESERVED[field.name]:
        wanted = RESERVED[field.name].simpleString()
        raise UsageError(f"column {field.name} is {wanted}, the schema says {field.dataType.simpleString()}")
    return Column(field.name, field.dataType, arrow, None, None)


def _captured_column(
    field: StructField, arrow: pa.DataType, known: Mapping[str, tuple[int, str | None]]
) -> Column:
    if field.name not in known:
        near = difflib.get_close_matches(field.name, [*known, *RESERVED], n=1, cutoff=0.0)
        listed = ", ".join([*known, *RESERVED])
        raise UsageError(
            f"column {field.name} is none of the pattern's, did you mean {near[0]}? (it makes {listed})"
        )
    at, kind = known[field.name]
    if is_json(field):
        return Column(field.name, field.dataType, arrow, at, None)
    wanted, held = _ATOMS.get(type(field.dataType), (None, type(None)))
    if wanted is None or (kind is not None and kind != wanted):
        raise UsageError(_unfit(field, kind))
    nulls = {type(None)} if field.nullable else set()
    return Column(field.name, field.dataType, arrow, at, frozenset({held} | nulls))


def _unfit(field: StructField, kind: str | None) -> str:
    said = field.dataType.simpleString()
    if kind in _OF_CLASS:
        allowed = [each().simpleString() for each, (of, _) in _ATOMS.items() if of == kind]
    else:
        allowed = [each().simpleString() for each in _ATOMS]
    return (
        f"column {field.name} captures {kind or 'values of any class'} and the schema says {said}, "
        f"allowed are {', '.join(allowed)}"
    )


def capture_classes(pattern: Value) -> list[tuple[str, str | None]]:
    """Name and class of each capture of a pattern, outer before inner; O(size).

    >>> capture_classes(parse_pattern("at($who:str, $p(point($, _)))"))
    [('who', 'str'), ('p', None), ('2', None)]
    """
    form = skeleton(pattern)
    classes = {check.path: str(check.argument) for check in form.checks if check.kind == "class"}
    names = capture_names(pattern)
    return [(name, classes.get(path)) for name, path in zip(names, form.captures, strict=True)]
