"""What is staged, in whichever form, means what it would mean one by one, and rubbish is refused."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from dataspace.client.bulk.packed import PackedColumns, staged_form
from dataspace.codec import unpack
from dataspace.errors import Refused
from index.values.values import Record, Value, key
from server.spaces.packed import VERBS, check, read
from tests.strategies import values

verbs = st.sampled_from(VERBS)


def told(staged: Value) -> list[tuple[str, object]]:
    """What the operations are, told apart strictly; they are as many as are counted."""
    operations = read(staged)
    assert check(staged) == len(operations.verbs)
    return [(verb, key(value)) for verb, value in zip(*operations, strict=True)]


@given(st.lists(st.tuples(verbs, values), max_size=6))
def test_operations_survive_the_plain_form(operations: list[tuple[str, Value]]) -> None:
    assert told(unpack(staged_form(operations))) == [(verb, key(value)) for verb, value in operations]


@given(values, st.lists(st.tuples(verbs, values, values), min_size=1, max_size=6), st.booleans())
def test_operations_survive_the_form_in_columns(
    label: Value, rows: list[tuple[str, Value, Value]], alike: bool
) -> None:
    each, first, second = zip(*rows, strict=True)
    said = ("send",) * len(rows) if alike else each
    columns = PackedColumns("send" if alike else each, label, [first, second], len(rows))
    meant = [(verb, key(Record.of(label, (a, b)))) for verb, a, b in zip(said, first, second, strict=True)]
    assert told(unpack(columns.packed())) == meant
    assert [(verb, key(value)) for verb, value in columns.operations()] == meant
    assert [each for half in columns.halves() if half for each in told(unpack(half.packed()))] == meant


@pytest.mark.parametrize(
    "staged",
    [
        1,
        ("assert", ((),), ()),
        ("assert", (1,), ()),
        ("assert", (("p", 1),), ("0",)),
        ("upsert", (("p", 1),), ()),
        (("assert",), (("p",), ("q",)), ()),
        (("assert", 1), (("p",), ("q",)), ()),
        (Record("assert", 1),),
        ("assert", "p", (), 1_000_000_000_000),
        ("assert", "p", ((1, 2),), 3),
        ("assert", "p", ((1, 2),), -1),
        ("assert", "p", ((1, 2), (1,)), 2),
        ("assert", "p", ("ab",), 2),
        ("upsert", "p", ((1,),), 1),
        (("assert",), "p", ((1, 2),), 2),
        (None, "p", ((1,),), 1),
        ("assert", "p", ((1,),), True),
    ],
)
def test_what_means_no_operations_is_refused(staged: Value) -> None:
    with pytest.raises(Refused, match="no operation"):
        check(staged)


@pytest.mark.parametrize("count", [3, 4])
def test_pairs_are_no_other_form_however_many(count: int) -> None:
    pairs = tuple(("send", Record("batch", at)) for at in range(count))
    assert told(pairs) == [(verb, key(value)) for verb, value in pairs]
