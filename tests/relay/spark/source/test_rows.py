"""Rows are exactly the changes of epochs, in their order and with their types."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from dataspace.client.bulk.blocks import Block
from index.values.values import Record, Value
from relay.spark.common.connections import DaemonPeer
from relay.spark.common.fitting import Misfit
from relay.spark.common.schema import Columns, columns, inferred
from relay.spark.source.tasks import SortedState, batches
from tests.relay.spark.schemas import ddl

Rows = Sequence[tuple[Value, ...]]


def in_order(state: Iterator[pa.RecordBatch], made: Columns, rows: int) -> Iterator[pa.RecordBatch]:
    snapshot = SortedState(made)
    for each in state:
        snapshot.add(each)
    return snapshot.batches(rows)


def part(
    number: int,
    added: Rows = (),
    messages: Rows = (),
    removed: Rows = (),
    *,
    snapshot: bool = False,
    skipped: int = 0,
) -> Block:
    """One epoch that was made ``number`` microseconds after 1970, or a part of it, as a block."""
    rows = [*added, *messages, *removed]
    counts = ((len(added),), (len(messages),), (len(removed),))
    return Block(snapshot, False, skipped, (number,), (number,), *counts, tuple(zip(*rows, strict=True)))


def table(pattern: str, *parts: Block, rows: int = 100) -> list[tuple[object, ...]]:
    """All rows of some parts, as plain tuples without the time."""
    made = batches(parts, columns(pattern, inferred(pattern)), rows)
    dicts = [row for batch in made for row in batch.drop_columns("_epoch_timestamp").to_pylist()]
    return [tuple(row.values()) for row in dicts]


def test_an_epoch_is_additions_then_messages_then_removals() -> None:
    whole = part(3, added=[("a",), ("b",)], messages=[("c",)], removed=[("d",)])
    assert table("p($x:str)", whole) == [
        ("a", "insert", 3, 0),
        ("b", "insert", 3, 1),
        ("c", "message", 3, 2),
        ("d", "delete", 3, 3),
    ]


def test_a_snapshot_is_inserts_of_its_epoch_and_the_next_epoch_counts_anew() -> None:
    parts = [part(3, added=[("a",)], snapshot=True), part(4, removed=[("a",)])]
    assert table("p($x:str)", *parts) == [("a", "insert", 3, 0), ("a", "delete", 4, 0)]


@given(st.permutations([(a, b) for a in (0.0, -0.0, math.nan, 1.5) for b in ("x", "y")]))
def test_a_snapshot_is_the_same_rows_in_the_same_order_however_it_comes(rows: Rows) -> None:
    made = columns("p($a:float, $b:str)", inferred("p($a:float, $b:str)"))
    parts = [part(3, added=[row], snapshot=True) for row in rows]
    ordered = pa.Table.from_batches(in_order(batches(parts, made, 3), made, 4))
    assert ordered.column("_seq").to_pylist() == list(range(8))
    again = pa.Table.from_batches(in_order(batches(parts[::-1], made, 100), made, 100))
    assert repr(ordered.to_pylist()) == repr(again.to_pylist())


def test_an_epoch_in_several_parts_goes_on_counting_across_batches() -> None:
    parts = [part(3, added=[(at,)], skipped=at) for at in range(5)] + [part(3, removed=[(9,)], skipped=5)]
    made = table("p($n:int)", *parts, rows=2)
    assert [row[-1] for row in made] == [0, 1, 2, 3, 4, 5]


def test_batches_have_the_size_that_was_asked_for() -> None:
    parts = [part(at + 1, added=[(at,)]) for at in range(7)]
    made = list(batches(parts, columns("p($n:int)", inferred("p($n:int)")), 3))
    assert [batch.num_rows for batch in made] == [3, 3, 1]


def test_types_and_nullability_are_those_of_the_schema() -> None:
    pattern = "p($s:str, $i:int, $f:float, $b:bool, $y:bytes, $t:time, $x)"
    made = columns(pattern, inferred(pattern))
    time = datetime(2026, 1, 1, 12, 0, 0, 5, tzinfo=UTC)
    (batch,) = batches([part(1, added=[("s", -1, 1.5, True, b"y", time, Record("r", 1))])], made, 10)
    assert batch.schema.equals(made.arrow)
    assert tuple(batch.to_pylist()[0].values())[:6] == ("s", -1, 1.5, True, b"y", time)
    assert batch.column("x").to_pylist() == ['{"@":"r","fields":[1]}']
    assert batch.column("_epoch_timestamp").cast(pa.int64()).to_pylist() == [1]


def test_a_pattern_without_captures_still_counts() -> None:
    assert table("p(_)", part(2, added=[(), ()])) == [("insert", 2, 0), ("insert", 2, 1)]


def test_no_changes_are_no_batches() -> None:
    assert table("p($x)") == []


def test_null_is_a_value_of_its_own() -> None:
    made = columns("p($x)", ddl("x string"))
    (batch,) = batches([part(1, added=[(None,), ("a",)])], made, 10)
    assert batch.column("x").to_pylist() == [None, "a"]


@pytest.mark.parametrize(
    ("schema", "value", "said"),
    [
        ("x bigint", 1 << 63, "int 9223372036854775808 for column x"),
        ("x tinyint", 128, "int 128 for column x"),
        ("x bigint", True, "bool True for column x"),
        ("x bigint", 1.0, "float 1.0 for column x"),
        ("x double", 1, "int 1 for column x"),
        ("x string", b"a", "bytes b'a' for column x"),
        ("x timestamp", 5, "int 5 for column x"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_epoch_and_column(
    schema: str, value: Value, said: str
) -> None:
    fitting: dict[str, Value] = {
        "x bigint": 1,
        "x tinyint": 1,
        "x double": 1.0,
        "x string": "a",
        "x timestamp": datetime(2026, 1, 1, tzinfo=UTC),
    }
    made = columns("p($x)", ddl(schema))
    with pytest.raises(Misfit, match=f"epoch 8 has {said}"):
        list(batches([part(7, added=[(fitting[schema],)]), part(8, removed=[(value,)])], made, 10))


def test_a_block_holds_many_epochs() -> None:
    whole = Block(False, False, 2, (3, 4, 7), (3, 4, 7), (1, 0, 1), (0, 1, 0), (1, 0, 1), (tuple("abcde"),))
    assert table("p($x:str)", whole) == [
        ("a", "insert", 3, 2),
        ("b", "delete", 3, 3),
        ("c", "message", 4, 0),
        ("d", "insert", 7, 0),
        ("e", "delete", 7, 1),
    ]
    with pytest.raises(Misfit, match="epoch 4 has str 'c' for column x"):
        table("p($x:int)", replace(whole, columns=((1, 2, "c", 4, 5),)))


BAD = part(5, added=[(1, "a"), ("x", "b"), (3, 4)], removed=[(5, "e")])


def test_facts_that_do_not_fit_may_be_dropped_or_null() -> None:
    pattern = "p($n, $s)"
    schema = ddl("n bigint, s string, _seq bigint")
    dropped = batches([BAD], columns(pattern, schema, malformed="drop"), 10)
    assert [tuple(row.values()) for each in dropped for row in each.to_pylist()] == [(1, "a", 0), (5, "e", 3)]
    nulls = batches([BAD], columns(pattern, schema, malformed="null"), 10)
    assert [tuple(row.values()) for each in nulls for row in each.to_pylist()] == [
        (1, "a", 0),
        (None, "b", 1),
        (3, None, 2),
        (5, "e", 3),
    ]


def test_the_daemon_the_space_and_the_whole_fact_are_columns_too() -> None:
    schema = inferred("p($n:int)", include_value=True, several=True, spaces=True)
    made = columns("p($n:int)", schema, include_value=True)
    peer = DaemonPeer("tcp://a:1", space="plant-b")
    (batch,) = batches([part(1, added=[(Record("p", 3, "x"), 3)])], made, 10, peer=peer)
    row = batch.drop_columns("_epoch_timestamp").to_pylist()[0]
    assert tuple(row.values()) == (3, "insert", 1, 0, "tcp://a:1", "plant-b", 'p(3, "x")')


ROWS = st.lists(st.tuples(st.integers(0, 9)), max_size=4)


@given(ROWS, ROWS, ROWS, st.integers(0, 14))
def test_the_rest_of_a_block_is_what_was_not_passed_on(
    added: Rows, messages: Rows, removed: Rows, passed: int
) -> None:
    if passed < len(added) + len(messages) + len(removed):
        whole = part(1, added, messages, removed)
        assert table("p($n:int)", whole.without(passed)) == table("p($n:int)", whole)[passed:]
