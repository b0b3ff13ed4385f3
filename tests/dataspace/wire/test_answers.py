"""A long answer is packed in steps, as the bytes that it has in one call."""

from __future__ import annotations

import pytest

from dataspace.steps import at_once
from dataspace.wire import packets as p
from dataspace.wire.answers import ROWS, answering, is_long
from dataspace.wire.session import encode
from index.values.values import Map, Record, Value


def rows(count: int) -> tuple[Value, ...]:
    return tuple(
        [Map({"fact": Record("fact", n), "owner": "o", "stamp": Map({1: (n,)})}) for n in range(count)]
    )


@pytest.mark.parametrize("count", [0, 1, 15, 16, ROWS, ROWS + 1, 3 * ROWS, 70_000])
@pytest.mark.parametrize(
    "made",
    [
        rows,
        lambda count: Map({"changes": rows(count), "upto": 7}),
        lambda count: Map({1: rows(count)}),
        lambda count: Map({f"{n}": rows(min(count, 300)) for n in range(20)}),
        lambda count: Record("list", *rows(min(count, 300))),
        lambda count: ((rows(count),),),
        lambda count: (7, Map({"group": "w", "deliveries": rows(count)}), Map({1: rows(min(count, 300))})),
        lambda _: None,
    ],
)
def test_it_is_the_frame_of_the_packet(made: object, count: int) -> None:
    value: Value = made(count)  # type: ignore[operator]  # a function
    assert at_once(answering(9, value)) == encode(p.Answer(9, value))


def test_a_step_packs_some_rows() -> None:
    value = Map({"changes": rows(10 * ROWS), "upto": 7})
    assert is_long(value) and not is_long(Map({"upto": 7})) and is_long(rows(ROWS + 1))
    assert len(list(answering(1, value))) == 10
    assert is_long((value,)) and not is_long((Map({"upto": 7}),))
    assert len(list(answering(1, (Map({"upto": 7}), value, value)))) == 20
