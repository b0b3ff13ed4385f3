"""Packets in text messages: the same packets as JSON, for clients that have no codec.

A packet is an array of its number and its fields, and values have their documented JSON form
(``index/TEXT.md``), in which a float without a fraction is ``{"@float": "1.0"}``.

Always: the JSON of a packet gives that packet; a number that no reader would keep is never written, and a
number that this reader would not keep is read by another one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import Final

import orjson

from dataspace.codec import array_head, pack, too_deep
from dataspace.errors import ProtocolError
from dataspace.steps import Steps, batched
from dataspace.wire.packets import NUMBERS, VERSIONS, Packet, Values, written
from dataspace.wire.plain import decoded, tagged
from dataspace.wire.session import Form
from index.errors import UsageError
from index.values.jsons import from_json
from index.values.values import Map, Record, Value
from relay.delivery.outbox import values_size
from server.web.messages import BAD_TEXT, TEXT, MessageCutter, message

STEP: Final = 256
"""Compounds, texts and tagged atoms that are made into values in one step, in about a millisecond."""

PART: Final = 512
"""Elements of parsed JSON that are looked at in one step; a compound costs as many as eight."""

PIECE_BYTES: Final = 64 << 10
"""Bytes of a text whose elements are counted in one step."""

KEPT_BYTES: Final = 256 << 10
"""Bytes of values and their JSON that are kept for the next observer of the same pattern."""

_STRICT: Final = orjson.OPT_STRICT_INTEGER | orjson.OPT_PASSTHROUGH_DATETIME
DIGITS: Final = 19
"""Digits from which on an integer may be beyond 64 bits."""

_LONG_NUMBER: Final = re.compile(rb"\d{%d}" % DIGITS)
_VALUES: Final = NUMBERS[Values]


def json_form(cutter: MessageCutter) -> Form:
    """Returns the form of the subprotocol ``dataspace.1.json``."""

    def decode(body: bytes, elements: int, depth: int, first: bool) -> Generator[None, None, Value]:
        try:
            return (yield from decoding(body, elements, depth, first))
        except UnicodeDecodeError as error:
            cutter.code = BAD_TEXT
            raise ProtocolError("malformed", f"a text message must be UTF-8: {error.reason}") from None

    return Form(cutter, encode, framed, decode)


# -- writing ------------------------------------------------------------------------------------------


def encode(packet: Packet) -> bytes:
    """Returns the message of a packet."""
    return message(TEXT, text(pack(written(packet))))


def framed(stream: int, first: int, count: int, body: bytes, left: int) -> tuple[bytes, int]:
    """Returns the message of a packet of values, and its cost in credit, which is its last field.

    The cost is the same as for the packet in msgpack, so that no reader has to count bytes of text.
    """
    size = values_size(stream, first, count, body, left)
    whole = b"[%d,%d,%d,%b,%d,%d]" % (_VALUES, stream, first, _kept.text(count, body), left, size)
    return message(TEXT, whole), size


def text(packed: bytes) -> bytes:
    """Returns the JSON of packed values."""
    values = decoded(packed)
    if b"\xcb" in packed:  # the head of a float, or a letter
        values = tagged(values)
    try:
        return orjson.dumps(values, option=_STRICT)
    except TypeError:  # bytes, a time, or an integer beyond 53 bits
        return orjson.dumps(tagged(values), option=_STRICT)


class KeptTexts:
    """The JSON of the values that were sent last: all observers of one pattern are sent the same."""

    def __init__(self) -> None:
        self._texts: dict[bytes, bytes] = {}
        self._size = 0

    def text(self, count: int, body: bytes) -> bytes:
        """Returns the JSON array of so many packed values."""
        found = self._texts.get(body)
        if found is None:
            found = text(array_head(count) + body)
            size = len(body) + len(found)
            if self._size + size > KEPT_BYTES:
                self._texts.clear()
                self._size = 0
            if size <= KEPT_BYTES:
                self._texts[body] = found
                self._size += size
        return found


_kept: Final = KeptTexts()


# -- reading ------------------------------------------------------------------------------------------


def decoding(body: bytes, elements: int, depth: int, first: bool = False) -> Steps[Value]:
    """Returns, as the value of the generator, what the JSON of a packet is; yields between two steps.

    Raises ``ProtocolError`` for bytes that are no JSON, for ``depth`` levels or ``elements`` beyond a bound,
    and for a ``first`` packet of another version; ``UnicodeDecodeError`` for bytes that are no text.
    """
    document = yield from reading(body, elements)
    if first:
        _check_version(document)
    try:
        return (yield from value_of(document, depth))
    except UsageError as error:
        raise ProtocolError("malformed", str(error)) from None


def reading(body: bytes, elements: int) -> Steps[object]:
    """Reads a JSON text, as ``json.loads`` does, in steps; parsing is one step.

    Raises ``ProtocolError`` for bytes that are no JSON, or have more ``elements``; ``UnicodeDecodeError`` for
    bytes that are no text.
    """
    yield from bounding(body, elements)
    for start in range(0, len(body), PIECE_BYTES):
        if _LONG_NUMBER.search(body, start, start + PIECE_BYTES + DIGITS):
            document = _read_exactly(body)
            break
        yield
    else:
        document = _read(body)
    yield
    if b"{" in body:
        yield from _check_keys(body, document)
    return document


def _check_keys(body: bytes, document: object) -> Steps[None]:
    """Raises ``ProtocolError`` for an object that has a key twice: readers differ in which one they keep.

    Parsed objects have kept one of them, so there are fewer keys then than colons outside of texts.  O(size).
    """
    colons = 0
    for plain in _outside_texts(body):
        colons += plain.count(b":")
        yield
    keys, looked, waiting = 0, 0, [document]
    while waiting:
        item = waiting.pop()
        inner: list[object] = item if isinstance(item, list) else []
        if isinstance(item, dict):
            keys += len(item)
            inner = list(item.values())
        looked += 8
        for some in batched(inner, PART):
            waiting += [one for one in some if one.__class__ is dict or one.__class__ is list]
            looked += len(some)
            if looked >= PART:
                looked = 0
                yield
    if keys != colons:
        raise ProtocolError("malformed", f"no JSON: an object has {_twice(body)} twice")


def _twice(body: bytes) -> str:
    """Returns which key an object has twice, for an error; ``a key`` for a large text."""
    found: list[str] = []

    def look(pairs: list[tuple[str, object]]) -> None:
        seen = set[str]()
        for name, _ in pairs:
            if name in seen:
                found.append(name)
            seen.add(name)

    if len(body) <= PIECE_BYTES:
        with suppress(ValueError, RecursionError):
            json.loads(body, object_pairs_hook=look)
    return f"the key {found[0]!r:.60}" if found else "a key"


def bounding(body: bytes, elements: int) -> Steps[None]:
    """Raises ``ProtocolError`` for a JSON text of more than so many elements; makes nothing of it.

    Brackets and commas outside of texts are counted, since each element but the first of a compound follows a
    comma.
    A step looks at ``PIECE_BYTES``, in a few milliseconds at most.
    """
    if len(body) <= elements or _count(body) <= elements:
        return
    count = 0
    for plain in _outside_texts(body):
        count += _count(plain)
        if count > elements:
            raise ProtocolError("limit", f"{count} elements, limit {elements}")
        yield


def _outside_texts(body: bytes) -> Iterator[bytes]:
    """Yields what is outside of texts in each piece of a JSON text."""
    is_text, rest = False, b""
    for start in range(0, len(body), PIECE_BYTES):
        piece = rest + body[start : start + PIECE_BYTES]
        escapes = len(piece) - len(piece.rstrip(b"\\"))
        rest = piece[-1:] if escapes % 2 else b""  # what it escapes is in the next piece
        plain = piece[: len(piece) - len(rest)].replace(b"\\\\", b"").replace(b'\\"', b"")
        parts = plain.split(b'"')
        yield b"".join(parts[is_text::2])
        is_text ^= len(parts) % 2 == 0


def _count(body: bytes) -> int:
    return body.count(b",") + body.count(b"[") + body.count(b"{")


def _read(body: bytes) -> object:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        check_encoding(body)
        body.decode()  # to say so if that is the cause
        raise ProtocolError("malformed", f"no JSON: {error}") from None


def check_encoding(body: bytes) -> None:
    """Raises ``ProtocolError`` for a text in another encoding than UTF-8, or with a mark before it."""
    for mark, name in _MARKS:
        if body.startswith(mark):
            raise ProtocolError("malformed", f"no JSON: it begins with {name}, send UTF-8 without a mark")


_MARKS: Final = (
    (b"\xef\xbb\xbf", "a byte order mark"),
    (b"\xff\xfe", "the mark of UTF-16"),
    (b"\xfe\xff", "the mark of UTF-16"),
    (b"{\0", "a NUL, as UTF-16 does"),
    (b"\0{", "a NUL, as UTF-16 does"),
    (b"[\0", "a NUL, as UTF-16 does"),
    (b"\0[", "a NUL, as UTF-16 does"),
)


def _read_exactly(body: bytes) -> object:
    """Reads integers beyond 64 bits, which orjson would turn into floats."""
    try:
        return json.loads(body.decode(), parse_constant=_no_number)
    except UnicodeDecodeError:
        raise
    except (ValueError, RecursionError) as error:
        raise ProtocolError("malformed", f"no JSON: {error}") from None


def _no_number(name: str) -> object:
    raise ValueError(f"{name} is no number of JSON")


def _check_version(document: object) -> None:
    """Refuses a hello of a version that is not spoken, whatever its other fields are."""
    if isinstance(document, list) and len(document) > 1 and document[0] == 1 and type(document[1]) is int:
        lowest, highest = VERSIONS
        if not lowest <= document[1] <= highest:
            raise ProtocolError("version", f"spoken {lowest} to {highest}, got {document[1]}")


def value_of(item: object, depth: int) -> Steps[Value]:
    """Makes the value of parsed JSON, as ``from_json`` does, in steps of ``STEP`` elements.

    Raises ``UsageError`` for JSON that is no value, and ``ProtocolError`` beyond so many levels.
    """
    return (yield from _value(item, depth, _Pace()))


class _Pace:
    """Counts the elements that have been made."""

    __slots__ = ("made",)

    def __init__(self) -> None:
        self.made = 0


def _value(item: object, depth: int, pace: _Pace) -> Steps[Value]:
    """Makes the value of parsed JSON, as ``from_json`` does, in steps."""
    pace.made += 1
    if pace.made % STEP == 0:
        yield
    if not isinstance(item, (list, dict)) or _is_atom(item):
        return from_json(item)
    if depth <= 0:
        raise too_deep()
    if isinstance(item, list):
        return (yield from _values(item, depth - 1, pace))
    keys = item.keys()
    if keys == {"@", "fields"} and isinstance(item["fields"], list):
        label = yield from _value(item["@"], depth - 1, pace)
        return Record.of(label, (yield from _values(item["fields"], depth - 1, pace)))
    if keys == {"@map"} and _are_pairs(item["@map"]):
        halves = yield from _values([half for pair in item["@map"] for half in pair], depth - 1, pace)
        return Map.of(list(zip(halves[::2], halves[1::2], strict=True)))
    if any(at.startswith("@") for at in keys):
        return from_json(item)  # which says what is wrong
    parts = yield from _values(list(item.values()), depth - 1, pace)
    return Map.of(list(zip([from_json(at) for at in keys], parts, strict=True)))


def _is_atom(item: list[object] | dict[str, object]) -> bool:
    """True for an object with a tag that stands for an atom."""
    return isinstance(item, dict) and len(item) == 1 and not _ATOMS.isdisjoint(item)


_ATOMS: Final = frozenset(["@int", "@float", "@bytes", "@time"])


def _are_pairs(item: object) -> bool:
    return isinstance(item, list) and all(isinstance(each, list) and len(each) == 2 for each in item)


def _values(items: list[object], depth: int, pace: _Pace) -> Steps[tuple[Value, ...]]:
    values: list[Value] = []
    for item in items:
        kind = item.__class__
        if kind is int or item is None or kind is bool or kind is float:
            values.append(item)  # type: ignore[arg-type]  # by its class
        elif kind is str:
            values.append(from_json(item))
            pace.made += 1
            if pace.made % STEP == 0:
                yield
        else:
            values.append((yield from _value(item, depth, pace)))
    return tuple(values)
