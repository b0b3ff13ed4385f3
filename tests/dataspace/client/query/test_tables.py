"""Rows become typed tables in which each value is the one that it was."""

from __future__ import annotations

import math
import sys
from datetime import UTC, datetime
from typing import Final

import pytest
from hypothesis import given, strategies as st

from dataspace.client.query.rows import ColumnKind, Rows, kind_of
from dataspace.errors import UsageError
from index.patterns.text import parse, unparse
from index.values.freezing import freeze
from index.values.values import Map, Record, Value, same
from tests.strategies import values

NOON: Final = datetime(2026, 11, 22, 12, tzinfo=UTC)
COLUMNS: Final[list[tuple[list[Value], str, str]]] = [
    ([1, -2], "int64", "int64"),
    ([1, None], "int64", "Int64"),
    ([1, (1 << 64) - 1], "uint64", "uint64"),
    ([1.5, 2.0], "double", "float64"),
    ([1.5, None], "double", "Float64"),
    ([True, False], "bool", "bool"),
    ([True, None], "bool", "boolean"),
    (["a", "b"], "string", "object"),
    ([b"a", None], "binary", "object"),
    ([NOON, None], "timestamp[us, tz=UTC]", "datetime64[us, UTC]"),
    ([None, None], "null", "object"),
    ([1, 1.0], "string", "object"),
    ([1, True], "string", "object"),
    ([-1, 1 << 63], "string", "object"),
    ([Record("p", 1), "p(1)"], "string", "object"),
    ([(1, 2), Map({"k": 1})], "string", "object"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("column", "arrow", "pandas"), COLUMNS)
def test_a_column_has_the_type_of_its_values_or_their_text(
    column: list[Value], arrow: str, pandas: str
) -> None:
    rows = Rows(("n", "v"), [(n, value) for n, value in enumerate(column)], 7)
    table, frame = rows.to_arrow(), rows.to_pandas()
    field = table.schema.field("v")
    assert (str(field.type), str(frame.dtypes["v"])) == (arrow, pandas)
    is_text = arrow == "string" and not all(isinstance(each, str) for each in column)
    assert (field.metadata or {}) == ({b"dataspace": b"text"} if is_text else {})
    assert table.column("v").to_pylist() == ([unparse(each) for each in column] if is_text else column)
    assert table.schema.metadata == {b"dataspace.epoch": b"7"} and frame.attrs == {"epoch": 7}
    assert [None if frame.isna()["v"][n] else frame["v"][n] for n in range(2)] == column


@pytest.mark.slow
@given(column=st.lists(values, max_size=6))
def test_nothing_is_lost_in_a_table(column: list[Value]) -> None:
    table = Rows(("v",), [(value,) for value in column], 7).to_arrow()
    found = [freeze(each) for each in table.column("v").to_pylist()]  # Arrow has another object for UTC
    if kind_of(column) is ColumnKind.OTHER:
        found = [None if each is None else parse(str(each)) for each in found]
    assert len(found) == len(column) and all(map(same, found, column))


@pytest.mark.slow
def test_tables_of_no_rows_of_no_columns_and_of_two_columns_of_one_name() -> None:
    none = Rows(("who", "n"), [], 3)
    assert (none.to_arrow().num_rows, none.to_arrow().column_names) == (0, ["who", "n"])
    assert (list(none.to_pandas().columns), len(none.to_pandas())) == (["who", "n"], 0)
    true = Rows((), [()], 3)
    assert (true.to_arrow().num_rows, len(true.to_pandas())) == (1, 1)
    twice = Rows(("0", "0"), [(1, "a")], 3)
    assert twice.to_arrow().column_names == ["0", "0"] and list(twice.to_pandas().columns) == ["0", "0"]


@pytest.mark.parametrize("name", ["pandas", "pyarrow"])
def test_what_is_missing_is_said_in_one_sentence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    rows = Rows(("n",), [(1,)], 3)
    with pytest.raises(UsageError, match=f"^{name} is not installed, and this needs it: pip install {name}$"):
        rows.to_pandas() if name == "pandas" else rows.to_arrow()


def test_nan_is_no_null_in_pandas() -> None:
    """pandas takes one for the other where it makes the column."""
    pytest.importorskip("pandas", reason="pandas is not installed")
    rows = Rows(("v",), [(1.5,), (None,), (math.nan,), (math.inf,)], 1)
    column = rows.to_pandas()["v"]
    assert str(column.dtype) == "Float64"
    assert [*column.array._mask] == [False, True, False, False]
    assert [column[0], math.isnan(column[2]), column[3]] == [1.5, True, math.inf]
