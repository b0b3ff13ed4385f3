"""Values survive the wire, and bytes from strangers give values or ProtocolError."""

from __future__ import annotations

import tracemalloc

import msgpack
import pytest
from hypothesis import given, strategies as st

from dataspace.codec import MAX_DEPTH, array_head, pack, scan, unpack
from dataspace.errors import ProtocolError, UsageError
from index.values.values import Map, Record, Value, same
from tests.strategies import values


@given(values)
def test_what_is_packed_comes_back_the_same(value: Value) -> None:
    assert same(unpack(pack(value)), value)


@given(values)
def test_the_same_value_has_the_same_bytes(value: Value) -> None:
    assert pack(unpack(pack(value))) == pack(value)


@given(values)
def test_a_scan_agrees_that_a_value_is_whole(value: Value) -> None:
    assert 1 <= scan(pack(value), 10_000) <= len(pack(value))


@given(st.binary(max_size=64))
def test_any_bytes_give_a_value_or_a_protocol_error(data: bytes) -> None:
    try:
        value = unpack(data)
    except ProtocolError:
        return
    assert same(unpack(pack(value)), value)


@given(st.binary(max_size=64))
def test_any_bytes_are_scanned_or_refused(data: bytes) -> None:
    try:
        scan(data, 1000)
    except ProtocolError:
        return


def _nested_record(levels: int) -> bytes:
    data = b"\x01"
    for _ in range(levels):
        data = msgpack.packb(msgpack.ExtType(1, b"\x91" + data))
    return data


@pytest.mark.parametrize(
    "data",
    [
        _nested_record(3000),
        b"\x91" * 500 + b"\x01",
        b"\x91" * 3000,
        b"\x81\xa1k" * 500 + b"\x01",
        msgpack.packb(msgpack.ExtType(1, b"\x92\x01" + b"\x91" * 100 + b"\x01")),
        msgpack.packb(msgpack.ExtType(3, b"\x92\x01" + b"\x91" * 100 + b"\x01")),
    ],
    ids=["records", "arrays", "unfinished arrays", "maps", "arrays in a record", "arrays in a map"],
)
def test_deep_nesting_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        unpack(data)
    with pytest.raises(ProtocolError):
        scan(data, 1 << 20)


def test_nesting_up_to_the_limit_passes() -> None:
    value: Value = 1
    for _ in range(MAX_DEPTH):
        value = Record("a", value)
    assert same(unpack(pack(value)), value)
    with pytest.raises(UsageError, match="deeper than 64"):
        pack(Record("a", value))


@pytest.mark.parametrize(
    "data", [b"\xdd\xff\xff\xff\xff", b"\xdf\x05\xf5\xe1\x00", b"\xc9\xff\xff\xff\xff\x01"]
)
def test_declared_lengths_cost_no_memory(data: bytes) -> None:
    tracemalloc.start()
    with pytest.raises(ProtocolError):
        unpack(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


def test_too_many_elements_are_refused_before_anything_is_built() -> None:
    flood = b"\xdd" + (1_000_000).to_bytes(4, "big") + b"\x90" * 1_000_000
    tracemalloc.start()
    with pytest.raises(ProtocolError, match="elements, limit"):
        unpack(flood, elements=262_144)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000  # a copy of the input


def test_elements_hidden_in_a_record_are_counted() -> None:
    inside = b"\xdd" + (300_000).to_bytes(4, "big") + b"\x01" * 300_000
    with pytest.raises(ProtocolError, match="elements, limit"):
        unpack(msgpack.packb(msgpack.ExtType(1, inside)), elements=262_144)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "incomplete"),
        (b"\xc1", "FormatError"),
        (b"\x01\x01", "extra data"),
        (b"\xd4\x09\x00", "extension 9"),
        (b"\x81\x01\x02", "map key"),
        (b"\x82\xa1k\x01\xa1k\x02", "different keys"),
        (b"\xa1\xff", "utf-8"),
        (msgpack.packb(msgpack.ExtType(1, b"\x90")), "begins with its label"),
        (msgpack.packb(msgpack.ExtType(1, b"\x01")), "begins with its label"),
        (msgpack.packb(msgpack.ExtType(2, b"\x00\x01")), "as few bytes"),
        (msgpack.packb(msgpack.ExtType(3, b"\x91\x01")), "keys and values in turn"),
    ],
)
def test_what_pack_would_not_write_is_malformed(data: bytes, said: str) -> None:
    with pytest.raises(ProtocolError, match=said) as caught:
        unpack(data)
    assert caught.value.code == "malformed"


def test_types_are_told_apart() -> None:
    assert len({pack(value) for value in (1, 1.0, True, "1", b"1")}) == 5
    assert pack(Map([(1, "a"), (True, "b")])) != pack(Map([(1, "a"), (1.0, "b")]))


@pytest.mark.parametrize("thing", [object(), {1, 2}, 1j, "\ud800"])
def test_what_is_no_value_is_not_packed(thing: object) -> None:
    with pytest.raises(UsageError, match=r"no value|cannot be packed"):
        pack(thing)
    assert unpack(pack("still working")) == "still working"


@pytest.mark.parametrize("count", [0, 15, 16, 65_535, 65_536])
def test_the_head_of_an_array_is_what_msgpack_writes(count: int) -> None:
    assert pack([None] * count).startswith(array_head(count))
