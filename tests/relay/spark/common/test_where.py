"""A condition keeps the rows for which it is true, in Python and for every form of it."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from pyspark.sql.types import ByteType, StructField, StructType

from dataspace.errors import UsageError
from relay.spark.common.schema import EPOCH, inferred
from relay.spark.common.where import bounds, condition, kept

SCHEMA = inferred("p($n:int, $s:str, $f:float, $b:bool, $t:time)")
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)

Row = dict[str, Any]

ROWS: list[Row] = [
    {"n": n, "s": s, "f": f, "b": b, "t": t}
    for n in (None, -1, 0, 5)
    for s in (None, "", "it's")
    for f in (None, 0.5)
    for b in (None, True, False)
    for t in (None, NOON)
]


def batch(rows: list[Row]) -> pa.RecordBatch:
    kinds = {
        "n": pa.int64(),
        "s": pa.string(),
        "f": pa.float64(),
        "b": pa.bool_(),
        "t": pa.timestamp("us", tz="UTC"),
    }
    return pa.RecordBatch.from_arrays(
        [pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()], names=[*kinds]
    )


def chosen(text: str) -> list[Row]:
    found = kept(condition(text, SCHEMA), batch(ROWS)).to_pylist()
    return [{**row, "t": row["t"] and row["t"].replace(tzinfo=UTC)} for row in found]


Truth = Callable[[Row], bool | None]

CASES: list[tuple[str, Truth]] = [
    ("n = 5", lambda r: None if r["n"] is None else r["n"] == 5),
    ("n <> 5", lambda r: None if r["n"] is None else r["n"] != 5),
    ("n < 0", lambda r: None if r["n"] is None else r["n"] < 0),
    ("n >= -1", lambda r: None if r["n"] is None else r["n"] >= -1),
    ("s = 'it''s'", lambda r: None if r["s"] is None else r["s"] == "it's"),
    ("s != ''", lambda r: None if r["s"] is None else r["s"] != ""),
    ("f > 0.25", lambda r: None if r["f"] is None else r["f"] > 0.25),
    ("f = 1", lambda r: None if r["f"] is None else r["f"] == 1),
    ("b", lambda r: r["b"]),
    ("b = false", lambda r: None if r["b"] is None else not r["b"]),
    ("t <= timestamp '2026-01-31T12:00:00Z'", lambda r: None if r["t"] is None else True),
    ("t < '2026-01-31 12:00:00+00:00'", lambda r: None if r["t"] is None else False),
    ("n is null", lambda r: r["n"] is None),
    ("s is not null", lambda r: r["s"] is not None),
    ("n in (0, 5)", lambda r: None if r["n"] is None else r["n"] in (0, 5)),
    ("n not in (0)", lambda r: None if r["n"] is None else r["n"] != 0),
    ("n between -1 and 0", lambda r: None if r["n"] is None else -1 <= r["n"] <= 0),
]


def both(one: bool | None, other: bool | None) -> bool | None:
    if one is False or other is False:
        return False
    return None if one is None or other is None else True


def either(one: bool | None, other: bool | None) -> bool | None:
    return inverted(both(inverted(one), inverted(other)))


def inverted(one: bool | None) -> bool | None:
    return None if one is None else not one


@pytest.mark.parametrize(("text", "truth"), CASES, ids=[text for text, _ in CASES])
def test_a_comparison_is_that_of_sql(text: str, truth: Truth) -> None:
    assert chosen(text) == [row for row in ROWS if truth(row)]
    assert chosen(f"not ({text})") == [row for row in ROWS if truth(row) is False]


@pytest.mark.parametrize("beyond", [128, 1 << 31, (1 << 63) - 1])
def test_a_number_beyond_a_small_column_is_compared(beyond: int) -> None:
    schema = StructType([StructField("y", ByteType())])
    some = pa.RecordBatch.from_arrays([pa.array([None, -128, 127], pa.int8())], names=["y"])
    assert kept(condition(f"y < {beyond}", schema), some).num_rows == 2
    assert kept(condition(f"y >= -{beyond} and y <> {beyond}", schema), some).num_rows == 2
    assert kept(condition(f"y = {beyond} or y > {beyond}", schema), some).num_rows == 0


@given(st.sampled_from(CASES), st.sampled_from(CASES), st.sampled_from(CASES))
def test_and_binds_more_than_or(
    one: tuple[str, Truth], two: tuple[str, Truth], three: tuple[str, Truth]
) -> None:
    text = f"{one[0]} OR {two[0]} and not {three[0]}"
    expected = [
        row for row in ROWS if either(one[1](row), both(two[1](row), inverted(three[1](row)))) is True
    ]
    assert chosen(text) == expected
    grouped = [row for row in ROWS if both(either(one[1](row), two[1](row)), three[1](row)) is True]
    assert chosen(f"({one[0]} or {two[0]}) and {three[0]}") == grouped


@pytest.mark.parametrize(
    ("text", "after", "upto"),
    [
        ("_epoch >= 100", 99, None),
        ("_epoch > 100 and n = 1", 100, None),
        ("_epoch = 7", 6, 7),
        ("_epoch < 7 and _epoch <= 9", 0, 6),
        ("_epoch between 3 and 5", 2, 5),
        ("_epoch > 3 or n = 1", 0, None),
        ("not _epoch > 3", 0, None),
        ("(_epoch > 3 and (_epoch < 9 and b))", 3, 8),
    ],
)
def test_bounds_of_epochs_are_found(text: str, after: int, upto: int | None) -> None:
    assert bounds(condition(text, SCHEMA), EPOCH) == (after, upto)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "expected a column, found the end"),
        ("nn = 1", "no column nn, did you mean n\\?"),
        ("n = 'x'", "column n is bigint, and 'x' is no literal of that; allowed are"),
        ("n = 1.5", "no literal of that"),
        ("n = 9223372036854775808", "no literal of that"),
        ("s = 1", "column s is string"),
        ("n = 1 n", "expected and, or or the end, found n"),
        ("n = 1 and", "expected a column, found the end"),
        ("(n = 1", "expected \\), found the end"),
        ("n", "expected a comparison, found the end"),
        ("n not 5", "expected in or between, found 5"),
        ("n ? 5", "cannot read '\\? 5'"),
        ("t = timestamp 'yesterday'", "no literal of that"),
        ("s like 'a%'", "expected a comparison, found like"),
    ],
)
def test_a_text_that_is_no_condition_is_refused_with_what_is_wrong(text: str, error: str) -> None:
    with pytest.raises(UsageError, match=f"option where: .*{error}"):
        condition(text, SCHEMA)


FLOATS = (None, math.nan, -math.inf, -1.5, -0.0, 0.0, 5e-324, 5.0, 1.7e308, math.inf)
LITERALS = ("-1e308", "-0.0", "0", "5", "1.7e308")


def spark_order(value: float) -> tuple[bool, float]:
    """The order of Spark: NaN after all others and equal to itself, both zeros one."""
    return (math.isnan(value), 0.0 if math.isnan(value) else value)


@pytest.mark.parametrize("sign", ["=", "<>", "<", "<=", ">", ">="])
def test_floats_compare_as_in_spark(sign: str) -> None:
    compare = {
        "=": operator.eq,
        "<>": operator.ne,
        "<": operator.lt,
        "<=": operator.le,
        ">": operator.gt,
        ">=": operator.ge,
    }[sign]
    floats = pa.RecordBatch.from_arrays([pa.array(FLOATS, pa.float64(), from_pandas=False)], names=["f"])
    schema = inferred("p($f:float)")
    for literal in LITERALS:
        held = spark_order(float(literal))
        for text, wanted in ((f"f {sign} {literal}", True), (f"not (f {sign} {literal})", False)):
            found = kept(condition(text, schema), floats).column(0).to_pylist()
            expected = [
                each for each in FLOATS if each is not None and compare(spark_order(each), held) is wanted
            ]
            assert list(map(repr, found)) == list(map(repr, expected)), text
    both = kept(condition("f between 5 and 1.7e308", schema), floats).column(0).to_pylist()
    assert both == [5.0, 1.7e308]


@pytest.mark.parametrize(
    "text",
    [
        "0001-01-01T00:00:00",
        "0814-01-28T00:00:00",
        "1969-12-31T23:59:59.999999",
        "9999-12-31T23:59:59.999999",
    ],
)
def test_times_at_the_ends_are_compared(text: str) -> None:
    at = datetime.fromisoformat(text).replace(tzinfo=UTC)
    times = [datetime(1, 1, 1, tzinfo=UTC), at, datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)]
    column = pa.array([(each - _BEGIN) // timedelta(microseconds=1) for each in times], pa.int64())
    some = pa.RecordBatch.from_arrays([column.cast(pa.timestamp("us", tz="UTC"))], names=["t"])
    for sign, compare in (("<", operator.lt), ("=", operator.eq), (">=", operator.ge)):
        of = condition(f"t {sign} timestamp '{text}Z'", inferred("p($t:time)"))
        assert kept(of, some).num_rows == sum([compare(each, at) for each in times])


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00"])
def test_a_time_beyond_the_calendar_is_no_literal(text: str) -> None:
    with pytest.raises(UsageError, match="no literal of that"):
        condition(f"t < timestamp '{text}'", inferred("p($t:time)"))


_BEGIN = datetime(1970, 1, 1, tzinfo=UTC)
