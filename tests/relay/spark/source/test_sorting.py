"""A snapshot is the same rows in the same order, however large a run is and however the rows came."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from pyspark.sql.types import ArrayType, DataType, LongType, MapType, StringType, StructField, StructType

from dataspace.client.bulk.blocks import Block
from index.values.values import Map, Record, Value
from relay.spark.common.schema import Columns, columns, inferred
from relay.spark.source.tasks import SortedState, batches

PATTERN = "p($n:int, $x:float)"
facts = st.lists(
    st.tuples(st.integers(-3, 3), st.sampled_from([0.0, -0.0, 1.5, float("nan"), -2.0])), max_size=40
)


def taken(made: Columns, rows: list[tuple[Value, ...]], *, run: int, chunk: int, each: int) -> list[str]:
    snapshot = SortedState(made, run_rows=run, chunk_rows=chunk)
    for at in range(0, len(rows), 3):
        some = rows[at : at + 3]
        block = Block(True, False, 0, (7,), (0,), (len(some),), (0,), (0,), tuple(zip(*some, strict=True)))
        for batch in batches([block], made, 1):
            snapshot.add(batch)
    out = list(snapshot.batches(each))
    assert all(batch.num_rows == each for batch in out[:-1])
    assert all(batch.schema == made.arrow for batch in out)
    return [repr(row) for batch in out for row in batch.to_pylist()]


@given(facts, st.integers(1, 9), st.integers(1, 5), st.integers(1, 50), st.randoms(use_true_random=False))
def test_runs_of_any_size_merge_to_what_one_run_sorts(
    rows: list[tuple[int, float]], run: int, chunk: int, each: int, rng: random.Random
) -> None:
    made = columns(PATTERN, inferred(PATTERN))
    shuffled = list(rows)
    rng.shuffle(shuffled)
    whole = taken(made, list(rows), run=1000, chunk=1000, each=1000)
    assert taken(made, list(shuffled), run=run, chunk=chunk, each=each) == whole
    numbers = [f"'n': {n}, " for n in sorted(n for n, _ in rows)]
    assert all(
        number in row and f"'_seq': {at}" in row
        for at, (number, row) in enumerate(zip(numbers, whole, strict=True))
    )


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (ArrayType(LongType()), [(2,), (1, 2), (), (1,)]),
        (MapType(StringType(), LongType()), [Map({"b": 1}), Map({"a": 1}), Map()]),
        (StructType([StructField("x", ArrayType(LongType()))]), [Record("r", (2,)), Record("r", (1,))]),
    ],
)
def test_compounds_are_sorted_too(kind: DataType, values: list[Value]) -> None:
    made = columns("p($v)", StructType([StructField("v", kind), StructField("_seq", LongType(), False)]))
    rows: list[tuple[Value, ...]] = [(value,) for value in values]
    whole = taken(made, rows, run=100, chunk=100, each=100)
    assert len(whole) == len(values)
    assert taken(made, rows[::-1], run=1, chunk=1, each=2) == whole


def test_a_row_without_captures_is_numbered_too() -> None:
    made = columns("p()", inferred("p()"))
    snapshot = SortedState(made, run_rows=2, chunk_rows=1)
    for _ in range(3):
        block = Block(True, False, 0, (7,), (0,), (1,), (0,), (0,), ())
        for batch in batches([block], made, 1):
            snapshot.add(batch)
    assert [row["_seq"] for batch in snapshot.batches(2) for row in batch.to_pylist()] == [0, 1, 2]


def test_files_have_no_name_once_they_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = columns("p($n:int)", inferred("p($n:int)"))
    snapshot = SortedState(made, run_rows=1, chunk_rows=1)
    block = Block(True, False, 0, (7,), (0,), (4,), (0,), (0,), ((3, 1, 2, 0),))
    for batch in batches([block], made, 1):
        snapshot.add(batch)
    assert not list(tmp_path.iterdir())
    assert pa.Table.from_batches(snapshot.batches(9)).column("n").to_pylist() == [0, 1, 2, 3]
