"""Packed rows become values of bounded size, in steps, which have the rows in their order."""

from __future__ import annotations

from hypothesis import given, strategies as st

from dataspace.codec import pack, split_rows
from dataspace.kernel.actions import CONFLATED, MORE
from dataspace.steps import at_once
from relay.delivery.packed import PART_BYTES, packing

SIZES = (1, 200, PART_BYTES // 3, PART_BYTES + 1)
ROWS = st.lists(st.integers(0, len(SIZES) - 1), max_size=9).map(
    lambda kinds: [pack((at, "x" * SIZES[kind])) for at, kind in enumerate(kinds)]
)


@given(added=ROWS, messages=ROWS, removed=ROWS, most=st.integers(1, 5))
def test_no_value_is_too_large_and_no_row_is_lost(
    added: list[bytes], messages: list[bytes], removed: list[bytes], most: int
) -> None:
    values = at_once(packing((7, 70, 5, CONFLATED), (added, messages, removed), most))
    split = [split_rows(each.packed) for each in values]
    assert [row for rows, _, _ in split for row in rows] == added
    assert [row for _, rows, _ in split for row in rows] == messages
    assert [row for _, _, rows in split for row in rows] == removed
    assert [each.flags for each in values] == [CONFLATED | MORE] * (len(values) - 1) + [CONFLATED]
    for each, lists in zip(values, split, strict=True):
        assert (each.number, each.time, each.first) == (7, 70, 5)
        assert (each.size, each.messages) == (sum(map(len, lists)), len(lists[1]))
        assert each.size <= most and (len(each.packed) <= PART_BYTES or each.size == 1)
        assert len(each.changes()) == each.size


def test_there_is_a_step_for_each_part() -> None:
    rows = [pack((n,)) for n in range(10)]
    assert len(list(packing((1, 1, 1, 0), (rows, (), rows), 2))) == 9
