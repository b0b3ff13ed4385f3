"""Values survive the wire, and bytes from strangers give values or ProtocolError."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable

import msgpack
import pytest
from hypothesis import given, strategies as st

from dataspace.codec import (
    MAX_DEPTH,
    MAX_ELEMENTS,
    PATTERNS,
    array_head,
    most_elements,
    pack,
    scan,
    unpack,
    unpack_own,
)
from dataspace.errors import ProtocolError, UsageError
from index.values.values import Map, Record, Value, same
from tests.index.strategies import patterns
from tests.strategies import values


@given(values)
def test_what_is_packed_comes_back_the_same(value: Value) -> None:
    assert same(unpack(pack(value)), value)


@given(patterns)
def test_a_pattern_that_was_decoded_before_is_the_same(pattern: Value) -> None:
    turn = pack((2, pattern, (1, pattern)))
    first, second = unpack(turn), unpack(turn)
    assert same(first, unpack_own(turn))
    assert same(second, unpack_own(turn))


def test_patterns_that_differ_in_the_class_of_a_number_stay_apart() -> None:
    given = [Record("p", Record("_"), number) for number in (1, 1.0, True)]
    for _ in range(2):
        assert all(same(unpack(pack(each)), each) for each in given)


def test_patterns_that_stay_decoded_are_bounded() -> None:
    def grown(count: int) -> int:
        before = sys.getallocatedblocks()
        for n in range(count):
            unpack(pack(Record("p", n, Record("_"))))
        return sys.getallocatedblocks() - before

    grown(2 * PATTERNS)
    assert grown(10 * PATTERNS) < 10 * PATTERNS


@given(values)
def test_the_same_value_has_the_same_bytes(value: Value) -> None:
    assert pack(unpack(pack(value))) == pack(value)


@given(values)
def test_a_scan_agrees_that_a_value_is_whole(value: Value) -> None:
    assert 1 <= scan(pack(value), 10_000) <= most_elements(pack(value))


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


WIDTHS = [8 * k + d for k in range(1, 40) for d in (-1, 0, 1)]
EDGES = [sign * (1 << bits) + off for bits in WIDTHS for sign in (1, -1) for off in (-1, 0, 1)]
LENGTHS = [
    *[0, 1, 15, 16, 31, 32, 255, 256],
    *[pytest.param(length, marks=pytest.mark.slow) for length in (65_535, 65_536)],
]


@pytest.mark.parametrize(
    "wrap", [lambda each: each, lambda each: Record("r", each)], ids=["bare", "in a record"]
)
def test_integers_at_every_boundary_come_back_in_as_few_bytes_as_they_need(
    wrap: Callable[[Value], Value],
) -> None:
    for number in EDGES:
        assert same(unpack(pack(wrap(number))), wrap(number))
        if not -(1 << 63) <= number < 1 << 64:
            size = next(n for n in range(9, 50) if -(1 << (8 * n - 1)) <= number < 1 << (8 * n - 1))
            least = number.to_bytes(size, "big", signed=True)
            assert pack(number) == msgpack.packb(msgpack.ExtType(2, least))


@pytest.mark.parametrize("k", [9, 10, 16, 17, 33])
def test_a_log_from_before_may_hold_a_byte_more(k: int) -> None:
    number = -(1 << (8 * k - 1))
    assert unpack(msgpack.packb(msgpack.ExtType(2, number.to_bytes(k + 1, "big", signed=True)))) == number
    for longer in (
        number.to_bytes(k + 2, "big", signed=True),
        (number + 1).to_bytes(k + 1, "big", signed=True),
    ):
        with pytest.raises(ProtocolError, match="as few bytes"):
            unpack(msgpack.packb(msgpack.ExtType(2, longer)))


@pytest.mark.parametrize("length", LENGTHS)
def test_lengths_at_every_boundary_come_back(length: int) -> None:
    several: list[Value] = [
        "x" * length,
        b"x" * length,
        (None,) * length,
        Record("r", *[None] * length),
        Map({str(at): at for at in range(length)}),
        Map([(at, at) for at in range(length)]),
    ]
    for value in several:
        packed = pack(value)
        assert same(unpack(packed), value)
        assert scan(packed, 1 << 20) <= most_elements(packed)


COMPOUNDS: dict[str, Callable[[Value], Value]] = {
    "sequences": lambda inner: (inner,),
    "records": lambda inner: Record("r", inner),
    "labels": lambda inner: Record(inner, 1),
    "maps": lambda inner: Map({"k": inner}),
    "keys": lambda inner: Map([(inner, 1)]),
}


@pytest.mark.parametrize("kinds", [*[[each] for each in COMPOUNDS], list(COMPOUNDS)], ids="-".join)
@pytest.mark.parametrize("beside", ["", "x" * (MAX_ELEMENTS + 1)], ids=["alone", "beside a long text"])
@pytest.mark.parametrize("deepest", [1, (), Record("e"), Map()], ids=repr)
def test_the_depth_limit_is_the_same_whatever_else_is_in_the_frame(
    kinds: list[str], beside: str, deepest: Value
) -> None:
    value, levels = deepest, 0 if deepest == 1 else 1
    for at in range(20):
        value = COMPOUNDS[kinds[at % len(kinds)]](value)
    levels += 20
    data = pack((value, beside))
    assert same(unpack(data, depth=levels + 1), (value, beside))
    assert same(unpack(data, depth=None), (value, beside))
    with pytest.raises(ProtocolError, match=f"deeper than {levels} levels"):
        unpack(data, depth=levels)
    assert scan(data, 1000, depth=levels + 1) == scan(data, 1000, depth=None)
    with pytest.raises(ProtocolError, match=f"deeper than {levels} levels"):
        scan(data, 1000, depth=levels)


@pytest.mark.slow
@given(values)
def test_a_scan_and_a_decoder_count_the_same_levels(value: Value) -> None:
    data = pack(value)
    levels = next(depth for depth in range(65) if _passes(data, depth, unpack))
    assert levels == next(depth for depth in range(65) if _passes(data, depth, _scan))


def _scan(data: bytes, *, depth: int) -> object:
    return scan(data, 10_000, depth=depth)


def _passes(data: bytes, depth: int, read: Callable[..., object]) -> bool:
    try:
        read(data, depth=depth)
    except ProtocolError as error:
        assert error.code == "limit"
        return False
    return True


def test_what_was_packed_once_leaves_no_buffer_of_its_size() -> None:
    large = ("x" * 30_000_000,)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        pack(large)
        pack(Record("p", large))
        assert tracemalloc.get_traced_memory()[0] - before < 1_000_000
    finally:
        tracemalloc.stop()
