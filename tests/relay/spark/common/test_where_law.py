"""The option ``where`` keeps the rows that Spark's own ``WHERE`` keeps, whatever condition and rows are."""

from __future__ import annotations

import math
import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from relay.spark.common.versions import arrow_schema
from relay.spark.common.where import condition, kept

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.spark]

TYPES: Final = {
    "at": IntegerType(),
    "n": LongType(),
    "i": IntegerType(),
    "y": ByteType(),
    "s": StringType(),
    "f": DoubleType(),
    "b": BooleanType(),
    "t": TimestampType(),
}
SCHEMA: Final = StructType([StructField(name, kind) for name, kind in TYPES.items()])
NOON: Final = datetime(2026, 1, 31, 12, tzinfo=UTC)
WHOLE: Final = {"n": 63, "i": 31, "y": 7}
FLOATS: Final = (math.nan, -math.inf, -1.5, -0.0, 0.0, 5e-324, 0.1, 5.0, 1.7e308, math.inf)
TEXTS: Final = ("", "a", "b", "it's", "é", "日本", "\U0001f600", "A\0")
TIMES: Final = tuple(NOON + timedelta(microseconds=each) for each in (-1, 0, 1, 3_600_000_000))
EDGES: Final = [
    each for bits in (0, 7, 31, 63) for each in (-(1 << bits) - 1, -(1 << bits), (1 << bits) - 1, 1 << bits)
]
NUMBERS: Final = sorted(each for each in {*EDGES, 0, 5} if -(1 << 63) <= each < 1 << 63)


def rows() -> st.SearchStrategy[list[dict[str, Any]]]:
    whole = {
        name: st.sampled_from([each for each in NUMBERS if -(1 << bits) <= each < 1 << bits])
        for name, bits in WHOLE.items()
    }
    others = {"s": TEXTS, "f": FLOATS, "b": (True, False), "t": TIMES}
    columns = whole | {name: st.sampled_from(values) for name, values in others.items()}
    return st.lists(
        st.fixed_dictionaries({name: st.none() | each for name, each in columns.items()}),
        min_size=1,
        max_size=30,
    )


def literals(column: str) -> st.SearchStrategy[str]:
    """Literals of a column's class, as SQL has them."""
    match column:
        case "s":
            return st.sampled_from([each for each in TEXTS if "\0" not in each]).map(
                lambda text: "'" + text.replace("'", "''") + "'"
            )
        case "f":
            return st.sampled_from(["-1.7e308", "-1.5", "-0.0", "0", "0.1", "5", "1e-300", "1.7e308"])
        case "b":
            return st.sampled_from(["true", "false"])
        case "t":
            return st.sampled_from(TIMES).map(lambda time: f"timestamp '{time:%Y-%m-%dT%H:%M:%S.%fZ}'")
    return st.sampled_from(NUMBERS[1:]).map(str)  # Spark reads the sign of the least one apart


@st.composite
def comparisons(draw: st.DrawFn) -> str:
    column = draw(st.sampled_from(["n", "i", "y", "s", "f", "b", "t"]))
    value = literals(column)
    negated = draw(st.sampled_from(["", "not "]))
    match draw(st.sampled_from(["sign", "sign", "in", "between", "null", "bare"])):
        case "in":
            values = draw(st.lists(value, min_size=1, max_size=3))
            return f"{column} {negated}in ({', '.join(values)})"
        case "between":
            return f"{column} {negated}between {draw(value)} and {draw(value)}"
        case "null":
            return f"{column} is {negated}null"
        case "bare":
            return f"{negated}b"
    return f"{column} {draw(st.sampled_from(['=', '==', '<>', '!=', '<', '<=', '>', '>=']))} {draw(value)}"


def conditions() -> st.SearchStrategy[str]:
    def joined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        both = st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(" ".join)
        return both | inner.map(lambda text: f"not ({text})") | both.map(lambda text: f"({text})")

    return st.recursive(comparisons(), joined, max_leaves=5)


@settings(
    max_examples=40 if "TORTURE_ROUNDS" in os.environ else 5,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(table=rows(), texts=st.lists(conditions(), min_size=30, max_size=40))
def test_a_row_is_kept_where_spark_keeps_it(
    spark: SparkSession, table: list[dict[str, Any]], texts: list[str]
) -> None:
    numbered = [{"at": at, **row} for at, row in enumerate(table)]
    batch = pa.RecordBatch.from_pylist(numbered, arrow_schema(SCHEMA))
    frame = spark.createDataFrame([tuple(row[name] for name in TYPES) for row in numbered], SCHEMA)
    masks = frame.selectExpr("at", *[f"({text}) AS c{number}" for number, text in enumerate(texts)]).collect()
    for number, text in enumerate(texts):
        wanted = sorted(row["at"] for row in masks if row[f"c{number}"])
        assert kept(condition(text, SCHEMA), batch).column(0).to_pylist() == wanted, text
