"""What is staged in the plain form means what it would mean one by one, and rubbish is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataspace.client.blocking_link import staged_form
from dataspace.errors import Refused
from dataspace.wire.codec import unpack
from index.values import Record, Value, key
from server.publishing import VERBS, _operations
from tests.strategies import values


@given(st.lists(st.tuples(st.sampled_from(VERBS), values), max_size=6))
def test_operations_survive_the_plain_form(operations: list[tuple[str, Value]]) -> None:
    read = _operations(unpack(staged_form(operations)))
    assert [(verb, key(value)) for verb, value in read] == [(verb, key(value)) for verb, value in operations]


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
    ],
)
def test_what_means_no_operations_is_refused(staged: Value) -> None:
    with pytest.raises(Refused, match="no operation"):
        _operations(staged)


def test_three_pairs_are_no_plain_form() -> None:
    pairs = tuple(("send", Record("batch", at)) for at in range(3))
    assert list(_operations(pairs)) == list(pairs)
