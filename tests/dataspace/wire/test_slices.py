"""A frame that is unpacked in slices gives the value, or the refusal, that it gives in one call."""

from __future__ import annotations

from collections.abc import Callable

import msgpack
import pytest
from hypothesis import given, strategies as st

from dataspace.codec import MAP_ELEMENTS, most_compounds, most_elements, pack, scan, unpack
from dataspace.errors import ProtocolError
from dataspace.wire import slices
from dataspace.wire.slices import PIECE_BYTES, Steps, unpacking
from index.values.values import Map, Record, Value, same
from tests.strategies import values

DEPTH = 56


def taken(steps: Steps) -> tuple[Value, int]:
    """The value, and in how many steps it came."""
    count = 1
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
        count += 1


@pytest.fixture(params=[1, 7, 64])
def piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Bytes of a piece: small, so that small values are cut."""
    monkeypatch.setattr(slices, "PIECE_BYTES", request.param)
    return int(request.param)


@pytest.mark.usefixtures("piece")
class TestLaws:
    @given(values)
    def test_slices_give_the_same_value(self, value: Value) -> None:
        data = pack(value)
        assert same(taken(unpacking(data, elements=10_000, depth=DEPTH))[0], value)

    @given(st.one_of(st.binary(max_size=64), values.map(pack)), st.data())
    def test_slices_refuse_the_same_bytes(self, data: bytes, more: st.DataObject) -> None:
        if data and more.draw(st.booleans()):
            at = more.draw(st.integers(0, len(data) - 1))
            data = data[:at] + more.draw(st.binary(max_size=3)) + data[at + 1 :]
        whole = _outcome(lambda: unpack(data, elements=1000, depth=5))
        sliced = _outcome(lambda: taken(unpacking(data, elements=1000, depth=5))[0])
        if isinstance(whole, str) or isinstance(sliced, str):
            assert isinstance(whole, str) and isinstance(sliced, str), (whole, sliced)
        else:
            assert same(whole[0], sliced[0])


def _outcome(function: Callable[[], Value]) -> str | tuple[Value]:
    """A refusal, or a value in a tuple."""
    try:
        return (function(),)
    except ProtocolError as refusal:
        return refusal.code


def _large() -> list[Value]:
    rows = tuple([(0, n, Record("row", n, "text", Map({"a": n, "b": (n,)}))) for n in range(2000)])
    deep: Value = rows
    for n in range(20):
        deep = (n, Record("level", deep), Map({"k": "v"}))
    return [rows, deep, Map({"x": rows}), Map([(1, rows), ("b", "c")]), Record("r", *rows), "x" * 100_000]


@pytest.mark.parametrize("value", _large(), ids=["rows", "deep", "map", "any map", "record", "text"])
def test_a_large_value_comes_in_many_steps(value: Value) -> None:
    data = pack((value, 1))
    found, steps = taken(unpacking(data, elements=1 << 20, depth=64))
    assert same(found, (value, 1))
    assert steps == 1 if isinstance(value, str) else steps >= len(data) // (4 * PIECE_BYTES)


def test_levels_are_counted_across_pieces() -> None:
    value: Value = tuple([Record("a", n) for n in range(2000)])
    for _ in range(10):
        value = Record("level", value)
    data = pack(value)
    assert same(taken(unpacking(data, elements=1 << 20, depth=12))[0], value)
    with pytest.raises(ProtocolError, match="deeper than 11 levels"):
        taken(unpacking(data, elements=1 << 20, depth=11))


@pytest.mark.parametrize("empty", [b"\x80", b"\xc7\x01\x03\x90"], ids=["text keys", "any keys"])
def test_a_frame_of_empty_maps_is_refused_before_it_is_built(empty: bytes) -> None:
    count = 258_000
    flood = b"\xdd" + count.to_bytes(4, "big") + empty * count
    steps = unpacking(flood, elements=1 << 18, depth=DEPTH)
    with pytest.raises(ProtocolError, match="elements, limit 262144"):
        taken(steps)
    few = b"\xdd" + (1000).to_bytes(4, "big") + empty * 1000
    assert scan(few, 1 << 18) >= 1000 * MAP_ELEMENTS


@given(st.binary(max_size=64))
def test_no_bytes_have_more_elements_than_they_allow(data: bytes) -> None:
    try:
        assert scan(data, 1 << 20) <= most_elements(data)
    except ProtocolError:
        return


@given(st.one_of(st.binary(max_size=64), values.map(pack)))
def test_no_bytes_have_more_levels_than_compounds(data: bytes) -> None:
    try:
        scan(data, 1 << 20, depth=most_compounds(data))
    except ProtocolError as error:
        assert "nested" not in error.text


def test_a_frame_of_some_texts_comes_in_one_step_and_one_of_as_many_bytes_in_compounds_does_not() -> None:
    texts = pack(tuple([(3, n, n + 1, Record("says", n, "x" * 64)) for n in range(50)]))
    assert taken(unpacking(texts, elements=1 << 18, depth=DEPTH))[1] == 1
    assert taken(unpacking(pack(((),) * len(texts)), elements=1 << 18, depth=DEPTH))[1] > 1


def test_bytes_after_a_large_value_are_malformed() -> None:
    data = pack(tuple(range(10_000)))
    for bad in (data + b"\x01", data[:-1], msgpack.packb(msgpack.ExtType(9, data))):
        with pytest.raises(ProtocolError) as caught:
            taken(unpacking(bad, elements=1 << 20, depth=DEPTH))
        assert caught.value.code == "malformed"
