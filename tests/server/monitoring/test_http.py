"""The head of a request is understood whole or refused, however it is cut."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from server.monitoring.http import MOST_BYTES, BadRequest, Head, read_head, response

PIECES = st.sampled_from(
    [
        b"GET ",
        b"POST ",
        b"/metrics",
        b" HTTP/1.1",
        b"\r\n",
        b"\n",
        b"Host: here",
        b": ",
        b"\0",
        b"\xff",
        b" ",
        b"a",
    ]
)
RUBBISH = st.lists(PIECES | st.binary(max_size=8), max_size=40).map(b"".join)


def outcome(data: bytes) -> object:
    try:
        return read_head(data)
    except BadRequest as refusal:
        return refusal.status


def test_a_request_is_read_with_its_headers_in_their_order() -> None:
    said = b"GET /metrics?x=1 HTTP/1.1\r\nHost: here:1\r\nAccept:  text/plain;q=0.5 \r\nX-Empty:\r\n\r\nmore"
    assert read_head(said) == Head(
        "/metrics?x=1", (("Host", "here:1"), ("Accept", "text/plain;q=0.5"), ("X-Empty", ""))
    )


@given(RUBBISH)
def test_any_bytes_are_a_head_or_refused_or_the_beginning_of_one(data: bytes) -> None:
    assert outcome(data) is None or isinstance(outcome(data), Head | int)


@given(RUBBISH)
def test_what_was_decided_stays_so_whatever_follows(data: bytes) -> None:
    for end in range(len(data)):
        decided = outcome(data[:end])
        if decided is not None:
            assert outcome(data) == decided
            return


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
        (b"GET /metrics\r\n\r\n", 400),
        (b"GET /metrics HTTP/2.0\r\n\r\n", 400),
        (b"GET  /metrics HTTP/1.1\r\n\r\n", 400),
        (b"\x80\x00\x00\x01\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA: b\r\n folded: yes\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA: b\nC: d\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 65 + b"\r\n", 431),
        (b"GET /" + b"x" * MOST_BYTES, 431),
    ],
)
def test_what_is_refused(said: bytes, status: int) -> None:
    assert outcome(said) == status


def test_an_answer_says_its_length_and_that_it_is_the_last() -> None:
    head, _, body = response(405, [("Content-Type", "text/plain")], b"no\n").partition(b"\r\n\r\n")
    assert head.split(b"\r\n")[0] == b"HTTP/1.1 405 Method Not Allowed"
    assert {b"Content-Length: 3", b"Connection: close", b"Allow: GET"} <= set(head.split(b"\r\n"))
    assert body == b"no\n"
