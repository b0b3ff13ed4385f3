"""The JSON of a packet gives that packet, for all values; what is refused in msgpack is refused here."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given, settings, strategies as st

from dataspace.codec import pack, unpack
from dataspace.errors import ProtocolError
from dataspace.steps import at_once
from dataspace.wire import packets as p
from index.errors import UsageError
from index.values.jsons import from_json, to_json
from index.values.values import Map, Record, Value
from relay.delivery.outbox import values_frame
from server.web import jsons
from server.web.upgrade import packed_values
from tests.server.web_client import tagged
from tests.strategies import values

ELEMENTS = 1 << 18


def payload(sent: bytes) -> bytes:
    """What is in a message of the daemon."""
    return sent[{126: 4, 127: 10}.get(sent[1], 2) :]


def decoded(body: bytes, *, elements: int = ELEMENTS, depth: int = 64, first: bool = False) -> Value:
    return at_once(jsons.decoding(body, elements, depth, first))


@settings(max_examples=40)
@given(st.lists(values, max_size=3).map(tuple), st.integers(0, 1 << 40))
def test_decoding_what_was_encoded_gives_the_packet(parts: tuple[Value, ...], number: int) -> None:
    for packet in (
        p.Values(number, 3, parts, 0),
        p.Answer(number, parts),
        p.Request(number, "verb", Map({"@": parts, "x": parts})),
    ):
        assert repr(p.read(decoded(payload(jsons.encode(packet))))) == repr(packet)


@settings(max_examples=60)
@given(values)
def test_it_is_the_documented_json_but_for_floats_without_a_fraction(value: Value) -> None:
    said = json.loads(jsons.text(pack(value)))
    assert repr(said) == repr(tagged(json.loads(json.dumps(to_json(value)))))


@settings(max_examples=60)
@given(values)
def test_one_and_one_point_zero_stay_two_after_a_reader_that_has_one_kind_of_number(value: Value) -> None:
    said = json.loads(jsons.text(pack(value)), parse_float=_number, parse_int=_number)
    assert repr(from_json(said)) == repr(unpack(pack(value)))


def _number(text: str) -> object:
    """A number as JavaScript keeps it: whether it was written with a point is lost."""
    found = float(text)
    return int(found) if found.is_integer() else found


@settings(max_examples=60)
@given(values)
def test_steps_make_the_value_that_the_documented_reader_makes(value: Value) -> None:
    body = json.dumps(to_json(value)).encode()
    assert repr(decoded(body)) == repr(from_json(json.loads(body)))


SAID = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["@", "fields", "@map", "@int", "@float", "x"]), inner, max_size=2)
    ),
    max_leaves=8,
)


@given(SAID)
def test_what_is_no_value_is_refused_by_both(said: object) -> None:
    body = json.dumps(said).encode()
    try:
        wanted = repr(from_json(json.loads(body)))
    except UsageError:
        with pytest.raises(ProtocolError) as caught:
            decoded(body)
        assert caught.value.code in ("malformed", "limit")
    else:
        assert repr(decoded(body)) == wanted


@given(st.binary(max_size=60))
def test_any_bytes_give_a_value_or_a_refusal(body: bytes) -> None:
    try:
        decoded(body)
    except (ProtocolError, UnicodeDecodeError):
        pass


@settings(max_examples=40)
@given(st.lists(values, min_size=1, max_size=4), st.integers(0, 300), st.integers(0, 1 << 40))
def test_values_cost_what_they_cost_in_msgpack(each: list[Value], stream: int, first: int) -> None:
    body = b"".join(map(pack, each))
    sent, size = jsons.framed(stream, first, len(each), body, 7)
    said = decoded(payload(sent))
    assert isinstance(said, tuple) and said[-1] == size == values_frame(stream, first, len(each), body, 7)[1]
    assert packed_values(stream, first, len(each), body, 7)[1] == size
    assert repr(p.read(said)) == repr(p.Values(stream, first, tuple(map(unpack, map(pack, each))), 7))


@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        (b"[1,2", "malformed", "no JSON"),
        (b"NaN", "malformed", "no JSON"),
        (b"[1234567890123456789, NaN]", "malformed", "NaN is no number"),
        (b"[" * 57 + b"]" * 57, "limit", "nested deeper"),
        (b"[" * 5000 + b"]" * 5000, "malformed", "no JSON"),
        (b"[1234567890123456789," + b"[" * 5000 + b"]" * 5001, "malformed", "no JSON"),
        (b"[" + b"1," * 100 + b"1]", "limit", "101 elements, limit 100"),
        (b'{"a":1,"a":1}', "malformed", "an object has the key 'a' twice"),
        (b'[[{"b":{"a":":","\\"a":1,"a":2}}]]', "malformed", "an object has the key 'a' twice"),
        (b'{"a":1,"\\u0061":1}', "malformed", "an object has the key 'a' twice"),
        (b"\xef\xbb\xbf[1]", "malformed", "begins with a byte order mark"),
        (b"\xff\xfe[\0]\0", "malformed", "the mark of UTF-16"),
        (b'{"@what":1}', "malformed", "none of the tagged forms"),
        (b'{"@int":"x"}', "malformed", "is no int"),
        (b'{"@map":[[1]]}', "malformed", "a map is a list of pairs"),
        (b'"\\ud800"', "malformed", ""),
        (b'["\\ud800", 1234567890123456789]', "malformed", ""),
    ],
)
def test_what_is_refused_says_why(body: bytes, code: str, text: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        decoded(body, elements=100 if b"1,1" in body else ELEMENTS, depth=56)
    assert caught.value.code == code and text in caught.value.text


def test_commas_in_text_are_no_elements() -> None:
    body = json.dumps([",[{" * 100, '"' * 100]).encode()
    assert decoded(body, elements=10) == (",[{" * 100, '"' * 100)


TEXTS = st.text(st.sampled_from('",[{]}:\\\n a'), max_size=12)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=20,
)


@settings(max_examples=200)
@given(PLAIN, st.integers(1, 9), st.integers(-2, 2))
def test_elements_are_counted_in_pieces_as_in_the_whole(said: object, piece: int, more: int) -> None:
    body = json.dumps(said).encode()
    count = marks(said)
    refused = False
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsons, "PIECE_BYTES", piece)
        try:
            at_once(jsons.bounding(body, count + more))
        except ProtocolError as error:
            refused = error.code == "limit"
    assert refused == (more < 0)


def marks(said: object) -> int:
    """The brackets that open, and the commas, in the JSON of something."""
    if not isinstance(said, list | dict):
        return 0
    inner = list(said.values()) if isinstance(said, dict) else said
    return 1 + max(0, len(inner) - 1) + sum(map(marks, inner))


HEAVY = [
    b"{},",
    b'"",',
    b'"\\\\",',
    b'",",',
    b"[1,2],",
    b'{"a":"b"},',
    b'{"@float":"1.0"},',
    b'"' + b"," * 999 + b'",',
]


@pytest.mark.parametrize("part", HEAVY)
def test_no_step_of_reading_is_long_whatever_the_text_is(part: bytes) -> None:
    """Counted in calls of Python, which are nearly all of the cost, and in bytes that are looked at."""
    body = b"[" + part * ((1 << 19) // len(part)) + b"1]"
    calls = 0

    def count(_frame: object, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    steps, longest, before = jsons.decoding(body, 1 << 18, 56), 0, 0
    sys.setprofile(count)
    try:
        for _ in steps:
            longest, before = max(longest, calls - before), calls
    except ProtocolError as error:
        assert error.code == "limit"
    finally:
        sys.setprofile(None)
    assert longest < 20 * jsons.STEP


def test_integers_of_any_size_are_kept() -> None:
    for number in (1 << 53, (1 << 64) - 1, 1 << 64, -(1 << 63) - 1, 10**400):
        assert decoded(b"[%d]" % number) == (number,)


def test_another_version_is_refused_whatever_the_rest_is() -> None:
    with pytest.raises(ProtocolError, match="spoken 1 to 1, got 2"):
        decoded(b'[1,2,{"@what":1}]', first=True)


def test_a_large_packet_is_read_in_steps() -> None:
    body = json.dumps([[each, {"@": "r", "fields": [each]}] for each in range(10_000)]).encode()
    steps, count = jsons.decoding(body, ELEMENTS, 56), 0
    for _ in steps:
        count += 1
    assert count >= 20_001 // jsons.STEP


def test_all_observers_of_a_pattern_are_sent_one_text() -> None:
    kept = jsons.KeptTexts()
    body = pack((Record("v", 1.0),))
    assert kept.text(1, body) is kept.text(1, bytes(bytearray(body)))
    large = pack("x" * jsons.KEPT_BYTES)
    assert kept.text(1, large) is not kept.text(1, large)  # nothing is kept that is as large
