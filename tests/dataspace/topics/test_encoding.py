"""Messages of topics survive the wire; what is none is refused as such."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from dataspace.codec import pack, unpack
from dataspace.errors import ProtocolError
from dataspace.topics.messages import Batch, Crashed, Message, Progress, Snapshot, message_of, value_of
from index.values.values import Value
from tests.strategies import values

numbers = st.integers(0, 2**63 - 1)
times = st.one_of(numbers, st.lists(numbers, min_size=1, max_size=3).map(tuple))
many = st.lists(times, max_size=3).map(tuple)
changes = st.lists(st.tuples(times, st.integers(-3, 3)), max_size=3).map(tuple)
partitions = st.integers(0, 1023)
messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(Batch, partitions, times, st.binary(max_size=20)),
    st.builds(Progress, partitions, changes),
    st.builds(Snapshot, partitions, many, many),
    st.builds(Crashed, partitions, many, many, st.text(max_size=9), changes),
)


@given(messages)
def test_a_message_is_the_same_on_the_other_side(message: Message) -> None:
    assert message_of(unpack(pack(value_of(message)))) == message


@given(st.one_of(values, st.tuples(st.integers(0, 4), values, values, values)))
def test_anything_else_is_a_protocol_error_or_a_message(value: Value) -> None:
    try:
        assert value_of(message_of(value)) == value
    except ProtocolError as error:
        assert error.code == "malformed"


@pytest.mark.parametrize(
    "value", [(2, True, 0, b""), (2, 0, True, b""), (1, 0, ((0, True),)), (0, 0, (0,), 0)]
)
def test_true_is_no_number(value: Value) -> None:
    with pytest.raises(ProtocolError):
        message_of(value)
