"""Frames survive any way of cutting the stream."""

from __future__ import annotations

from hypothesis import given, strategies as st

from dataspace.wire.frames import Cutter, frame


@given(st.lists(st.binary(max_size=20)), st.lists(st.integers(1, 7)))
def test_frames_survive_any_cut(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(frame, bodies))
    cutter, got, at = Cutter(), [], 0
    for size in [*cuts, len(stream)]:
        got += cutter.feed(stream[at : at + size])
        at += size
    assert got == bodies
    assert cutter.held == 0


def test_a_length_beyond_the_limit_is_refused_and_frames_before_it_are_not() -> None:
    cutter = Cutter(limit=10)
    assert cutter.feed(frame(b"fine") + (11).to_bytes(4, "big")) == [b"fine"]
    assert str(cutter.refusal) == "limit: frame of 11 bytes, limit 10"
    assert cutter.feed(frame(b"later")) == []


def test_what_speaks_another_protocol_is_named() -> None:
    for head, name in ((b"GET / HTTP/1.1", "HTTP"), (b"\x16\x03\x01\x02\x00", "TLS"), (b"SSH-2.0", "SSH")):
        cutter = Cutter()
        cutter.feed(head)
        assert name in str(cutter.refusal)


def test_a_large_frame_byte_by_byte_costs_its_bytes() -> None:
    """Were what is held copied for each, this would move terabytes, and be stopped before it is done."""
    cutter = Cutter(limit=1 << 28)
    body = bytes(100 << 20)
    assert cutter.feed(frame(body)[:-50_000]) == []
    for _ in range(49_999):
        assert cutter.feed(b"\0") == []
    assert cutter.held == len(body) + 3
    assert cutter.feed(b"\0" + frame(b"next")) == [body, b"next"]
    assert cutter.held == 0
