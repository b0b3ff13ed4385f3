"""Messages survive any way of cutting the bytes and any division into fragments; what is wrong is refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from server.web import messages
from server.web.messages import BINARY, TEXT, MessageCutter, closing, message
from tests.server.web_client import masked

LIMIT = 1 << 20


def cutter(limit: int = LIMIT) -> tuple[MessageCutter, list[bytes]]:
    pings: list[bytes] = []
    return MessageCutter(BINARY, pings.append, limit), pings


def fed(made: MessageCutter, *chunks: bytes) -> list[bytes]:
    return [body for chunk in chunks for body in made.feed(chunk)]


@st.composite
def conversations(draw: st.DrawFn) -> tuple[list[bytes], list[bytes], bytes]:
    """Messages, pings, and the bytes of both: fragments, with control frames between them."""
    bodies = draw(st.lists(st.binary(max_size=300), max_size=4))
    pings: list[bytes] = []
    said = b""

    def control() -> bytes:
        frames = b""
        for payload in draw(st.lists(st.binary(max_size=125), max_size=2)):
            if draw(st.booleans()):
                pings.append(payload)
                frames += masked(0x89, payload)
            else:
                frames += masked(0x8A, payload)
        return frames

    for body in bodies:
        places = sorted(draw(st.lists(st.integers(0, len(body)), max_size=3)))
        parts = [body[begin:end] for begin, end in zip([0, *places], [*places, len(body)], strict=True)]
        for at, part in enumerate(parts):
            is_last = at == len(parts) - 1
            said += control() + masked((0x80 if is_last else 0) | (0 if at else BINARY), part)
    return bodies, pings, said + control()


@settings(max_examples=50)
@given(conversations(), st.lists(st.integers(0, 2000), max_size=6))
def test_any_cutting_and_any_fragments_give_the_same_messages(
    conversation: tuple[list[bytes], list[bytes], bytes], places: list[int]
) -> None:
    bodies, pings, said = conversation
    made, heard = cutter()
    ends = [*sorted(min(place, len(said)) for place in places), len(said)]
    chunks = [said[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
    assert fed(made, *chunks) == bodies
    assert heard == pings
    assert made.refusal is None and not made.held


@settings(max_examples=50)
@given(conversations())
def test_byte_by_byte_is_the_same(conversation: tuple[list[bytes], list[bytes], bytes]) -> None:
    bodies, _, said = conversation
    made, _ = cutter()
    assert fed(made, *[said[at : at + 1] for at in range(len(said))]) == bodies
    assert not made.held


@given(st.binary(max_size=200))
def test_any_bytes_give_messages_or_a_refusal(said: bytes) -> None:
    whole, _ = cutter(100)
    apart, _ = cutter(100)
    assert fed(whole, said) == fed(apart, *[said[at : at + 1] for at in range(len(said))])
    assert str(whole.refusal) == str(apart.refusal)
    assert whole.held <= 100 + 14 + 125


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
def test_a_message_of_the_daemon_has_the_shortest_head(size: int) -> None:
    body = b"x" * size
    said = message(TEXT, body)
    assert said.endswith(body) and said[0] == 0x81
    assert len(said) - size == {0: 2, 125: 2, 126: 4, 65_535: 4, 65_536: 10}[size]


@pytest.mark.parametrize(
    ("said", "code", "text"),
    [
        (b"\x82\x01x", 1002, "must be masked"),
        (masked(0xC2, b"x"), 1002, "no extension"),
        (masked(0x83, b"x"), 1002, "kind 3"),
        (masked(0x8B, b"x"), 1002, "kind 11"),
        (masked(0x81, b"x"), 1003, "a message of text, this subprotocol has binary"),
        (masked(0x80, b"x"), 1002, "nothing is there to continue"),
        (masked(0x02, b"x") + masked(0x82, b"x"), 1002, "begins within another"),
        (masked(0x09, b"x"), 1002, "control frame"),
        (masked(0x89, b"x" * 126), 1002, "control frame"),
        (masked(0x88, b"x"), 1002, "closed with 78"),
        (masked(0x88, b"\x03\xed"), 1002, "closed with 03ed"),
        (masked(0x88, b"\x03\xe7"), 1002, "closed with 03e7"),
        (masked(0x88, b"\x13\x88"), 1002, "closed with 1388"),
        (masked(0x88, b"\x03\xe8\xff"), 1007, "UTF-8"),
        (b"\x82\xfe\x00\x01" + b"\0" * 4 + b"x", 1002, "length of 1 in 2 bytes"),
        (b"\x82\xff" + (125).to_bytes(8, "big") + b"\0" * 4, 1002, "length of 125 in 8 bytes"),
        (masked(0x02, b"x") + masked(0x00, b"") * 9 + b"\x80\xfe\x00\x7d", 1002, "length of 125 in 2 bytes"),
        (masked(0x82, b"x" * 101), 1009, "message of 101 bytes, limit 100"),
        (masked(0x02, b"x" * 60) + masked(0x80, b"x" * 60), 1009, "message of 120 bytes, limit 100"),
        (b"\x82\xff" + b"\xff" * 12, 1009, "limit 100"),
        (masked(0x02, b"") + masked(0x00, b"") * 5000, 1002, "frames beyond what whole messages"),
        (masked(0x8A, b"") * 5000, 1002, "frames beyond what whole messages"),
    ],
)
def test_what_breaks_the_protocol_is_refused_by_its_head(said: bytes, code: int, text: str) -> None:
    made, _ = cutter(100)
    fine = masked(0x82, b"fine")
    assert fed(made, fine + said + fine) == [b"fine"]
    assert made.refusal is not None and text in made.refusal.text
    assert made.code == code
    assert fed(made, fine) == []


FRAMES = st.lists(
    st.tuples(st.sampled_from([0x02, 0x00, 0x80, 0x82, 0x89, 0x8A]), st.sampled_from([0, 1, 63, 64, 100])),
    max_size=80,
)


@given(FRAMES)
def test_the_frames_of_a_client_are_bounded_by_its_messages_and_their_bytes(
    drawn: list[tuple[int, int]],
) -> None:
    """Whatever their order: what 4 000 empty fragments before each message cost was 18 ms for each 64 KiB."""
    is_within, said, taken, paid = False, 0, 0, 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages, "IDLE_FRAMES", 10)
        patch.setattr(messages, "PAID_BY_MESSAGE", 2)
        made, _ = cutter()
        for first, size in drawn:
            if first & 0x0F in (BINARY, 0):
                if is_within != (first & 0x0F == 0):
                    continue
                is_within = not first & 0x80
                paid += size // messages.PAID_BY_BYTES
            said += len(fed(made, masked(first, b"x" * size)))
            if made.refusal is not None:
                break
            taken += 1
        assert taken <= 10 + paid + 3 * said
    assert made.refusal is None or taken >= 10


def test_a_large_message_in_fragments_of_a_kilobyte_is_taken() -> None:
    made, _ = cutter()
    frames = [masked(0x02, b"x" * 1024), *[masked(0x00, b"x" * 1024)] * 1000, masked(0x80, b"")]
    for _ in range(9):
        assert [len(each) for each in fed(made, *frames)] == [1001 * 1024]


def test_a_length_beyond_the_limit_is_refused_before_its_payload_comes() -> None:
    made, _ = cutter(100)
    assert fed(made, masked(0x82, b"x" * 101)[:6]) == []
    assert made.refusal is not None


def test_nothing_is_cut_after_the_closing_frame() -> None:
    made, _ = cutter()
    closed = masked(0x88, b"\x03\xe8")
    assert fed(made, closed + masked(0x82, b"late"), masked(0x82, b"later")) == []
    assert made.is_closed and made.refusal is None
    assert closing(1000) == b"\x88\x02\x03\xe8"
