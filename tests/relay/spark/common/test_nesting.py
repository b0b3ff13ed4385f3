"""Compounds become structs, arrays and maps, strictly by class however deep."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from index.values.values import Map, Record, Value
from relay.spark.common.schema import Column, columns, held_class

POINT = StructType([StructField("x", LongType()), StructField("y", DoubleType(), False)])
NAMED = StructType([StructField("_label", StringType()), StructField("x", LongType())])
DEEP = ArrayType(MapType(StringType(), POINT))


def column(kind: DataType) -> Column:
    (made,) = columns("p($v)", StructType([StructField("v", kind)])).all
    return made


@pytest.mark.parametrize(
    ("kind", "value", "given"),
    [
        (POINT, Record("point", 1, 2.5), {"x": 1, "y": 2.5}),
        (POINT, Record("other", None, 2.5), {"x": None, "y": 2.5}),
        (NAMED, Record("point", 1), {"_label": "point", "x": 1}),
        (ArrayType(LongType()), (1, None, 3), [1, None, 3]),
        (MapType(StringType(), LongType()), Map({"b": 2, "a": 1}), [("a", 1), ("b", 2)]),
        (DEEP, (Map({"k": Record("p", 1, 0.5)}),), [[("k", {"x": 1, "y": 0.5})]]),
        (POINT, None, None),
    ],
)
def test_a_compound_is_what_spark_has_for_it(kind: DataType, value: Value, given: object) -> None:
    made = column(kind)
    assert made.holds(value)
    assert pa.array(made.encoded([value]), made.arrow).to_pylist() == [given]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (POINT, Record("point", 1)),
        (POINT, Record("point", 1, 2.5, 3)),
        (POINT, Record("point", 1.0, 2.5)),
        (POINT, Record("point", 1, None)),
        (POINT, (1, 2.5)),
        (NAMED, Record(7, 1)),
        (ArrayType(LongType(), containsNull=False), (None,)),
        (ArrayType(LongType()), (1, True)),
        (ArrayType(LongType()), (1 << 63,)),
        (MapType(StringType(), LongType()), Map({1: 2})),
        (DEEP, (Map({"k": Record("p", 1)}),)),
    ],
)
def test_what_is_other_inside_does_not_fit(kind: DataType, value: Value) -> None:
    assert not column(kind).holds(value)


def test_a_type_without_values_inside_holds_nothing() -> None:
    assert held_class(ArrayType(DateType())) is None
    assert held_class(StructType([StructField("d", DateType())])) is None


def test_integers_of_any_size_may_be_text() -> None:
    (made,) = columns("p($n:int)", StructType([StructField("n", StringType())])).all
    assert made.encoded([1 << 70, None, -1]) == [str(1 << 70), None, "-1"]
    assert not made.holds("1") and not made.holds(True)


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        (POINT, Record("point", 1), "the record has 1 field, the struct 2 (x, y)"),
        (POINT, Record("point", 1, 2.5, 3), "the record has 3 fields, the struct 2 (x, y)"),
        (NAMED, Record("point", 1, 2), "the record has 2 fields, the struct 1 (x) beside _label"),
        (POINT, Record("point", 1.0, 2.5), "in x: float 1.0 is no bigint"),
        (POINT, Record("point", 1, None), "in y: null, which the schema does not allow"),
        (NAMED, Record(7, 1), "in _label: int 7 is no string"),
        (ArrayType(LongType()), (1, True), "in [1]: bool True is no bigint"),
        (ArrayType(LongType()), (1, 1 << 63), "in [1]: int 9223372036854775808 is too large for bigint"),
        (MapType(StringType(), LongType()), Map({"a": "b"}), "in ['a']: str 'b' is no bigint"),
        (DEEP, (Map({"k": Record("p", 1)}),), "in [0]['k']: the record has 1 field, the struct 2 (x, y)"),
    ],
)
def test_what_is_other_inside_is_pointed_at(kind: DataType, value: Value, why: str) -> None:
    made = column(kind)
    assert not made.holds(value)
    assert made.remedy(value).startswith(why), made.remedy(value)
