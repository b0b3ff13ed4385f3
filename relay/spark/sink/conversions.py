"""Conversions: how an object of one of Spark's types becomes a value of a dataspace.

Types that values have keep their class.  The others have one documented form each: a date, a decimal and a
time without a zone are text, since nothing is lost in it; a map is a map; a struct is a map by the names of
its fields, or, with ``_label`` as its first field, a record; a variant is what its JSON says, with numbers
that have a fraction as floats.

Always: a type without a form is refused before there are rows; equal objects become equal values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final, TypeAlias
from uuid import UUID

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
    VariantVal,
)

from dataspace.errors import UsageError
from index.values.values import Map, Record, Value
from relay.spark.common.schema import LABEL

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

Conversion: TypeAlias = Callable[[Any], Value]


def conversion_to_value(name: str, kind: DataType) -> Conversion | None:
    """Returns what makes values of the objects that Arrow has for a column; None where these are values.

    Raises ``UsageError``, with the name of the column, for a type that has no form.
    """
    match kind:
        case TimestampType():
            return lambda time: time.astimezone(UTC)  # Arrow gives aware times
        case DateType() | TimestampNTZType():
            return lambda day: str(day.isoformat())
        case DecimalType():
            return decimal_text
        case VariantType():
            return lambda parts: _of_python(VariantVal(parts["value"], parts["metadata"]).toPython())
        case ArrayType():
            inner = _nullable(conversion_to_value(name, kind.elementType))
            return lambda items: tuple(map(inner, items))
        case MapType():
            of_key = _nullable(conversion_to_value(name, kind.keyType))
            of_value = _nullable(conversion_to_value(name, kind.valueType))
            return lambda pairs: Map.of([(of_key(at), of_value(held)) for at, held in pairs])
        case StructType():
            return _of_struct(name, kind)
    if isinstance(kind, _PLAIN):
        return None
    raise UsageError(
        f"column {name} is {kind.simpleString()}, which is no value of a dataspace: cast it, to a string for "
        f"instance, or leave it out"
    )


def decimal_text(number: Decimal) -> str:
    """Returns the digits of a decimal with its scale, never with an exponent.

    >>> decimal_text(Decimal("1E+2")), decimal_text(Decimal("12.50"))
    ('100', '12.50')
    """
    return format(number, "f")


def _nullable(inner: Conversion | None) -> Conversion:
    if inner is None:
        return lambda item: item
    return lambda item: None if item is None else inner(item)


def _of_struct(name: str, kind: StructType) -> Conversion:
    names = kind.fieldNames()
    if len(set(names)) < len(names):
        raise UsageError(f"column {name} is a struct with two fields of one name: {', '.join(names)}")
    inner = [_nullable(conversion_to_value(f"{name}.{field.name}", field.dataType)) for field in kind.fields]

    def parts(row: Mapping[str, object]) -> list[Value]:
        return [of(row[at]) for at, of in zip(names, inner, strict=True)]

    if names[:1] == [LABEL]:
        return lambda row: _record(parts(row))
    return lambda row: Map.of(list(zip(names, parts(row), strict=True)))


def _record(parts: Sequence[Value]) -> Value:
    return Record.of(parts[0], tuple(parts[1:]))


def _of_python(thing: Any) -> Value:
    """Returns the value for a part of a variant."""
    match thing:
        case dict():
            return Map.of([(str(at), _of_python(held)) for at, held in thing.items()])
        case list():
            return tuple(map(_of_python, thing))
        case datetime() if thing.tzinfo is not None:
            return thing.astimezone(UTC)
        case date():  # a time without a zone is one as well
            return thing.isoformat()
        case Decimal():
            return float(thing)  # what JSON with a fraction becomes in a variant
        case UUID():
            return str(thing)
        case None | bool() | int() | float() | str() | bytes():
            return thing
    raise UsageError(f"a variant holds {thing!r:.60}, which is no value of a dataspace")
