"""A traceparent is read as W3C Trace Context writes it, and what is none is None."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from dataspace.errors import UsageError
from dataspace.wire.traceparents import Parent, check_traceparent, read_traceparent

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@given(st.integers(1, (1 << 128) - 1), st.integers(1, (1 << 64) - 1), st.integers(0, 255))
def test_what_is_written_is_read(trace: int, span: int, flags: int) -> None:
    said = f"00-{trace:032x}-{span:016x}-{flags:02x}"
    assert read_traceparent(said) == Parent(trace, span, bool(flags & 1))
    assert check_traceparent(said) == said


@given(st.text(max_size=60) | st.text("0f-", min_size=55, max_size=56))
def test_any_text_is_a_parent_or_none(said: str) -> None:
    parent = read_traceparent(said)
    if parent is not None:
        assert said.split("-")[1:3] == [f"{parent.trace:032x}", f"{parent.span:016x}"]


@pytest.mark.parametrize(
    "said",
    [
        "",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01\n",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"01-{TRACE}-{SPAN}-01-{'x' * 600}",
    ],
)
def test_what_the_recommendation_calls_invalid_is_none(said: str) -> None:
    assert read_traceparent(said) is None


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    assert read_traceparent(f"01-{TRACE}-{SPAN}-03-more") == Parent(int(TRACE, 16), int(SPAN, 16), True)


def test_a_program_may_leave_it_out_and_not_get_it_wrong() -> None:
    assert check_traceparent("") == ""
    with pytest.raises(UsageError, match="is needed, not 7"):
        check_traceparent(7)
