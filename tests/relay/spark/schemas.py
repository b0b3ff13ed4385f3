"""Schemas as text, for tests that need no Spark session (Spark's own parser is in the JVM)."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_KINDS: dict[str, DataType] = {
    "string": StringType(),
    "bigint": LongType(),
    "int": IntegerType(),
    "smallint": ShortType(),
    "tinyint": ByteType(),
    "double": DoubleType(),
    "float": FloatType(),
    "boolean": BooleanType(),
    "binary": BinaryType(),
    "timestamp": TimestampType(),
    "date": DateType(),
    "array<int>": ArrayType(IntegerType()),
    "array<timestamp>": ArrayType(TimestampType()),
}


def ddl(text: str) -> StructType:
    """The schema that a list such as ``n bigint, s string`` says."""
    pairs = [each.split() for each in text.split(",")]
    return StructType([StructField(name, _KINDS[kind]) for name, kind in pairs])
