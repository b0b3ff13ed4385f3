"""Nesting: which Spark type holds which class of values, and compounds inside compounds.

A record becomes a struct by the position of its fields (a first column ``_label`` takes its label), a
sequence an array, a map a map.  Apart from the schema, which decides about captures; this is about what is
in them, and is the same however deep.

Always: strictly by class, as for captures: an integer is no double inside an array either; null fits where
the type may be null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from index.values.values import Map, Record

if TYPE_CHECKING:
    from index.values.values import Value

ATOMS: Final[Mapping[type[DataType], type]] = {
    StringType: str,
    ByteType: int,
    ShortType: int,
    IntegerType: int,
    LongType: int,
    DoubleType: float,
    BooleanType: bool,
    BinaryType: bytes,
    TimestampType: datetime,
}
"""The class of values that each plain type holds."""

_COMPOUNDS: Final[Mapping[type[DataType], type]] = {StructType: Record, ArrayType: tuple, MapType: Map}

LABEL: Final = "_label"
"""The field of a struct that takes the record's label; it must be the first."""

Convert: TypeAlias = "Callable[[Value], object]"


class Unfit(Exception):
    """A value is other inside than its type; whoever looks for the row says which."""


def held_class(kind: DataType) -> type | None:
    """The class of values that a type holds, or None for a type that holds no value.

    >>> held_class(ArrayType(LongType())).__name__
    'tuple'
    """
    known = ATOMS.get(type(kind)) or _COMPOUNDS.get(type(kind))
    return known if known is not None and all(map(held_class, _inner(kind))) else None


def conversion(kind: DataType) -> Convert | None:
    """What makes Arrow's form of a value that is of the type's class, or None where it is that already."""
    match kind:
        case StructType():
            return _struct(kind)
        case ArrayType():
            element = _checked(kind.elementType, nullable=kind.containsNull)
            return lambda value: [element(item) for item in value]  # type: ignore[union-attr]  # a sequence, by its class
        case MapType():
            at = _checked(kind.keyType, nullable=False)
            held = _checked(kind.valueType, nullable=kind.valueContainsNull)
            return lambda value: [(at(k), held(v)) for k, v in value.pairs()]  # type: ignore[union-attr]  # a map
    return None


def _struct(kind: StructType) -> Convert:
    fields = [(field.name, _checked(field.dataType, nullable=field.nullable)) for field in kind.fields]
    labelled = bool(fields) and fields[0][0] == LABEL

    def convert(value: Value) -> object:
        assert isinstance(value, Record)  # by its class
        parts = (value.label, *value.fields) if labelled else value.fields
        if len(parts) != len(fields):
            raise Unfit
        return {name: inner(part) for (name, inner), part in zip(fields, parts, strict=True)}

    return convert


def _checked(kind: DataType, *, nullable: bool) -> Convert:
    """The conversion of a part, which must be of the type's class, or null where that may be."""
    held, inner = held_class(kind), conversion(kind)

    def convert(value: Value) -> object:
        if value is None and nullable:
            return None
        if value.__class__ is not held:
            raise Unfit
        return value if inner is None else inner(value)

    return convert


def _inner(kind: DataType) -> list[DataType]:
    """The types inside a type."""
    match kind:
        case StructType():
            return [field.dataType for field in kind.fields]
        case ArrayType():
            return [kind.elementType]
        case MapType():
            return [kind.keyType, kind.valueType]
    return []
