"""An epoch that comes in parts is the same as one that comes whole."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from dataspace.client.epochs.assembling import Assembler
from dataspace.errors import ProtocolError
from dataspace.kernel.actions import MORE, SNAPSHOT
from index.values.values import Record, Value

ROWS = st.lists(st.tuples(st.integers(0, 9)), max_size=6)
EPOCHS = st.lists(st.tuples(ROWS, ROWS, ROWS, st.sampled_from([0, SNAPSHOT])), min_size=1, max_size=5)


def value(number: int, flags: int, rows: tuple[Any, Any, Any], first: int | None = None) -> Value:
    added, messages, removed = map(tuple, rows)
    return (number, 1000 + number, flags, added, messages, removed, number if first is None else first)


@given(EPOCHS, st.data())
def test_parts_make_the_whole(epochs: list[Any], data: st.DataObject) -> None:
    parts: list[Value] = []
    for number, (added, messages, removed, flags) in enumerate(epochs):
        rows = [(0, row) for row in added] + [(1, row) for row in messages] + [(2, row) for row in removed]
        cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=4)))
        pieces = [rows[a:b] for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
        for at, piece in enumerate(pieces):
            split = tuple([row for kind, row in piece if kind == wanted] for wanted in range(3))
            more = MORE if at < len(pieces) - 1 else 0
            parts.append(value(number, flags | more, split))  # type: ignore[arg-type]  # three lists
    assembler = Assembler(("x",))
    came = [epoch for part in parts if (epoch := assembler.feed(part)) is not None]
    assert [(e.number, [*e.added], [*e.messages], [*e.removed], e.flags) for e in came] == [
        (number, added, messages, removed, flags)
        for number, (added, messages, removed, flags) in enumerate(epochs)
    ]
    assert all(e.micros == 1000 + e.number and e.first == e.number and e.names == ("x",) for e in came)


def test_a_mark_says_what_was_lost() -> None:
    epoch = Assembler(()).feed(Record("lost", 12, 3, 9))
    assert epoch is not None and (epoch.lost, epoch.first, epoch.number) == (12, 3, 9)


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        (),
        (1, 2, 0, (), (), ()),
        (1, 2, 0, (), (), (), 1, 1),
        (True, 2, 0, (), (), (), 1),
        (1, 2.0, 0, (), (), (), 1),
        (1, 2, None, (), (), (), 1),
        (1, 2, 0, None, (), (), 1),
        (1, 2, 0, (), "rows", (), 1),
        Record("lost", 1, 2),
        Record("lost", 1, 2, True),
        Record("found", 1, 2, 3),
    ],
)
def test_what_is_no_epoch_breaks_the_protocol(wrong: Value) -> None:
    with pytest.raises(ProtocolError, match="malformed"):
        Assembler(()).feed(wrong)
