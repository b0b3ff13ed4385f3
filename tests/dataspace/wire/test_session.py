"""Any bytes into a session give packets or ProtocolError, and nothing passes out of turn."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from dataspace.errors import ProtocolError, UsageError
from dataspace.kernel.actions import ASSERT
from dataspace.wire import packets as p
from dataspace.wire.frames import frame
from dataspace.wire.session import FIRST_FRAME, Role, Session, State
from index.values.values import Map, Record

HELLO = p.Hello(p.VERSION, "me", "a test", Map())
WELCOME = p.Welcome(p.VERSION, 1, "space", 0, 0, Map(), Map())
TURN = p.Turn(1, "main", "", ((ASSERT, 1, Record("present", "Alice")),))


def _pair() -> tuple[Session, Session]:
    client, server = Session(Role.CLIENT), Session(Role.SERVER)
    assert list(server.feed(client.send(HELLO))) == [HELLO]
    assert list(client.feed(server.send(WELCOME))) == [WELCOME]
    return client, server


def test_a_conversation() -> None:
    client, server = _pair()
    opening = p.Open(1, Map({"kind": "observe", "pattern": "x"}), 10, 1000)
    assert list(server.feed(client.send(TURN) + client.send(opening))) == [TURN, opening]
    values = p.Values(1, 0, ((1, 2, 0, (("Alice",),), (), (), 1),), 0)
    assert list(client.feed(server.send(p.Accepted(1, (1,))) + server.send(values))) == [
        p.Accepted(1, (1,)),
        values,
    ]
    assert list(server.feed(client.send(p.Bye("", "")))) == [p.Bye("", "")]
    assert server.state is State.ENDED


def test_byte_by_byte_is_the_same_as_all_at_once() -> None:
    client = Session(Role.CLIENT)
    stream = b"".join(client.send(packet) for packet in (HELLO, TURN, p.Ping(7), p.Bye("", "")))
    server = Session(Role.SERVER)
    got = [packet for at in range(len(stream)) for packet in server.feed(stream[at : at + 1])]
    assert got == list(Session(Role.SERVER).feed(stream))
    assert len(got) == 4


@given(st.lists(st.binary(max_size=40), max_size=4), st.booleans())
def test_any_bytes_give_packets_or_a_protocol_error(bodies: list[bytes], greeted: bool) -> None:
    server = _pair()[1] if greeted else Session(Role.SERVER)
    try:
        for body in bodies:
            assert all(type(packet) in p.NUMBERS for packet in server.feed(frame(body)))
    except ProtocolError:
        assert server.state is State.ENDED
        with pytest.raises(ProtocolError):
            list(server.feed(frame(b"\x92\x07\x01")))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ((99, 1), "unknown-packet: packet 99, known are"),
        ((True, 1), "unknown-packet"),
        ((7,), "malformed: Ping has 1 fields, got 0"),
        ((7, -1), "malformed: Ping.number must be a number from 0"),
        ((7, True), "malformed: Ping.number must be"),
        ((2, 1, "main", "", 5), "malformed: Turn.actions must be an array, got 5"),
        ((6, 1, "x" * 5000, Map()), "malformed: Request.verb must be text of at most 4096"),
        ((1, 1, "me", "x" * 5000, Map()), "unexpected: Hello while talking"),
        ((33, 1, 1, "s", 0, 0, Map(), Map()), "unexpected: Welcome while talking, allowed are Abort, Ask"),
        ((1, 1, "me", "", Map()), "unexpected: Hello while talking"),
        ((4, 1, 1, 1), "unexpected: stream 1 was never opened"),
        ("hello", "malformed: a packet is an array"),
        ((), "malformed: a packet is an array"),
    ],
)
def test_rubbish_is_named(value: object, said: str) -> None:
    from dataspace.codec import pack

    _, server = _pair()
    with pytest.raises(ProtocolError) as caught:
        list(server.feed(frame(pack(value))))
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize("levels", [100, 900, 980, 1_010, 5_000])
@pytest.mark.parametrize(("head", "tail"), [(b"\x91", b""), (b"\x92\x07", b""), (b"\x94\x26\x01", b"\xa0")])
def test_a_client_outlives_whatever_nesting(head: bytes, levels: int, tail: bytes) -> None:
    """What cannot be a packet is refused in words, which begin by naming it."""
    client, _ = _pair()
    with pytest.raises(ProtocolError):
        list(client.feed(frame(head + b"\x91" * levels + b"\x00" + tail)))
    assert client.state is State.ENDED


def test_packets_before_an_error_are_still_handed_out() -> None:
    client, server = _pair()
    feed = server.feed(client.send(p.Ping(1)) + frame(b"\xc1"))
    assert next(feed) == p.Ping(1)
    with pytest.raises(ProtocolError):
        next(feed)


def test_nothing_comes_before_hello_and_hello_is_small() -> None:
    with pytest.raises(ProtocolError, match="Ping while waiting for hello, allowed are Bye, Hello"):
        list(Session(Role.SERVER).feed(_pair()[0].send(p.Ping(1))))
    with pytest.raises(ProtocolError, match=f"limit {FIRST_FRAME}"):
        list(Session(Role.SERVER).feed((FIRST_FRAME + 1).to_bytes(4, "big")))


def test_streams_are_opened_in_ascending_order() -> None:
    client, server = _pair()
    list(server.feed(client.send(p.Open(5, Map(), 1, 1))))
    with pytest.raises(ProtocolError, match="stream 5 opened after stream 5"):
        list(server.feed(client.send(p.Open(5, Map(), 1, 1))))


def test_a_side_does_not_break_the_protocol_itself() -> None:
    client, server = _pair()
    with pytest.raises(UsageError, match="a client cannot send Welcome now"):
        client.send(WELCOME)
    server.send(p.Bye("", ""))
    with pytest.raises(UsageError, match="a server cannot send Pong now"):
        server.send(p.Pong(1))


def test_the_size_of_a_frame_is_known_to_both_sides() -> None:
    client, server = _pair()
    data = server.send(p.Values(1, 0, ((1, 2, 0, (), (), (), 1),), 0))
    assert list(client.feed(data))
    assert client.size == len(data) - 4
