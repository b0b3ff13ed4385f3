"""What is staged, in whichever form, means what it would mean one by one, and rubbish is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

import dataspace
from dataspace.client.bulk.packed import PackedColumns, staged_form
from dataspace.codec import MAX_DEPTH, unpack
from dataspace.errors import Refused
from dataspace.wire.outgoing import FACT_DEPTH
from index.values.values import Map, Record, Value, key
from server.spaces.turns.packed import VERBS, check, read
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


def _as_pair(fact: Record) -> bytes:
    return staged_form([("assert", fact)])


def _as_column(fact: Record) -> bytes:
    return PackedColumns("assert", fact.label, [[each] for each in fact.fields], 1).packed()


@pytest.mark.parametrize("packed", [_as_pair, _as_column])
async def test_packed_facts_nest_as_deep_as_those_of_a_turn(
    url: str, packed: Callable[[Record], bytes]
) -> None:
    """No turn could have a deeper one, nor a fact that a rule derives, so it would suspend each such rule."""
    deepest = Record("deep", 1)
    for _ in range(FACT_DEPTH - 1):
        deepest = Record("deep", deepest)
    async with dataspace.connect(url) as space, dataspace.connect(url, reconnect=False) as near:
        asked = {"client": "~deep", "owner": "o"}
        await space.request("publish", Map(asked | {"keys": (packed(deepest),), "sequence": 1}))
        assert await near.matches("deep($x)") == [deepest.fields]
        for levels in range(1, MAX_DEPTH - FACT_DEPTH):
            deeper = Record("deep", deepest)
            for _ in range(levels - 1):
                deeper = Record("deep", deeper)
            with pytest.raises(Refused, match="limit: nested deeper"):
                await space.request(
                    "publish", Map(asked | {"keys": (packed(deeper),), "sequence": 1 + levels})
                )
            assert await near.matches("deep($x)") == [deepest.fields]
