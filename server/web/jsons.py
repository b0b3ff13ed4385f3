"""Packets in text messages: the same packets as JSON, for clients that have no codec.

A packet is an array of its number and its fields, and values have their documented JSON form
(``index/TEXT.md``), in which a float without a fraction is ``{"@float": "1.0"}``.

Always: the JSON of a packet gives that packet; a number that no reader would keep as it is is never written,
and one that this reader would not is read by another one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from typing import Final

import orjson

from dataspace.codec import array_head, pack, too_deep
from dataspace.errors import ProtocolError
from dataspace.steps import Steps
from dataspace.wire.forms import Form
from dataspace.wire.packets import NUMBERS, VERSIONS, Packet, Values, written
from dataspace.wire.plain import decoded, tagged
from index.errors import UsageError
from index.values.jsons import from_json
from index.values.values import Map, Record, Value
from relay.delivery.outbox import values_size
from server.web.messages import BAD_TEXT, TEXT, MessageCutter, message

STEP: Final = 256
"""Compounds that are made into values in one step, in about a millisecond."""

KEPT_BYTES: Final = 256 << 10
"""Bytes of values and their JSON that are kept for the next observer of the same pattern."""

_STRICT: Final = orjson.OPT_STRICT_INTEGER | orjson.OPT_PASSTHROUGH_DATETIME
_LONG_NUMBER: Final = re.compile(rb"\d{19}")
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
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

    The cost is that of the same packet in msgpack, so that no reader has to count bytes of text.
    """
    size = values_size(stream, first, count, body, left)
    whole = b"[%d,%d,%d,%b,%d,%d]" % (_VALUES, stream, first, _kept.text(count, body), left, size)
    return message(TEXT, whole), size


def text(packed: bytes) -> bytes:
    """Returns the JSON of packed values."""
    said = decoded(packed)
    if b"\xcb" in packed:  # the head of a float, or a letter
        said = tagged(said)
    try:
        return orjson.dumps(said, option=_STRICT)
    except TypeError:  # bytes, a time, or an integer beyond 53 bits
        return orjson.dumps(tagged(said), option=_STRICT)


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

    Raises ``ProtocolError`` for what is no JSON, for ``depth`` levels or ``elements`` beyond a bound, and
    for a ``first`` packet of another version; ``UnicodeDecodeError`` for what is no text.
    """
    _bound(body, elements)
    said = _read(body)
    if first:
        _check_version(said)
    pace = _Pace()
    try:
        return (yield from _value(said, depth, pace))
    except UsageError as error:
        raise ProtocolError("malformed", str(error)) from None


def _bound(body: bytes, elements: int) -> None:
    """Refuses what has more elements than so many, before anything is made of it.

    Brackets and commas are counted: each element but the first of a compound follows a comma.
    """
    if len(body) <= elements or _count(body) <= elements:
        return
    count = _count(_STRING.sub(b"", body))
    if count > elements:
        raise ProtocolError("limit", f"{count} elements, limit {elements}")


def _count(body: bytes) -> int:
    return body.count(b",") + body.count(b"[") + body.count(b"{")


def _read(body: bytes) -> object:
    try:
        if _LONG_NUMBER.search(body):  # orjson would make a float of an integer beyond 64 bits
            return json.loads(body.decode(), parse_constant=_no_number)
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        body.decode()  # to say so if that is the cause
        raise ProtocolError("malformed", f"no JSON: {error}") from None
    except UnicodeDecodeError:
        raise
    except (ValueError, RecursionError) as error:
        raise ProtocolError("malformed", f"no JSON: {error}") from None


def _no_number(name: str) -> object:
    raise ValueError(f"{name} is no number of JSON")


def _check_version(said: object) -> None:
    """Refuses a hello of a version that is not spoken, whatever its other fields are."""
    if isinstance(said, list) and len(said) > 1 and said[0] == 1 and type(said[1]) is int:
        lowest, highest = VERSIONS
        if not lowest <= said[1] <= highest:
            raise ProtocolError("version", f"spoken {lowest} to {highest}, got {said[1]}")


class _Pace:
    """Counts the compounds that have been made."""

    __slots__ = ("made",)

    def __init__(self) -> None:
        self.made = 0


def _value(said: object, depth: int, pace: _Pace) -> Steps[Value]:
    """Makes the value of what was read, as ``from_json`` does, in steps."""
    if not isinstance(said, (list, dict)) or _is_atom(said):
        return from_json(said)
    if depth <= 0:
        raise too_deep()
    pace.made += 1
    if pace.made % STEP == 0:
        yield
    if isinstance(said, list):
        return (yield from _values(said, depth - 1, pace))
    keys = said.keys()
    if keys == {"@", "fields"} and isinstance(said["fields"], list):
        label = yield from _value(said["@"], depth - 1, pace)
        return Record.of(label, (yield from _values(said["fields"], depth - 1, pace)))
    if keys == {"@map"} and _are_pairs(said["@map"]):
        halves = yield from _values([half for pair in said["@map"] for half in pair], depth - 1, pace)
        return Map.of(list(zip(halves[::2], halves[1::2], strict=True)))
    if any(at.startswith("@") for at in keys):
        return from_json(said)  # which says what is wrong
    parts = yield from _values(list(said.values()), depth - 1, pace)
    return Map.of(list(zip([from_json(at) for at in keys], parts, strict=True)))


def _is_atom(said: list[object] | dict[str, object]) -> bool:
    """True for an object with a tag that stands for an atom."""
    return isinstance(said, dict) and len(said) == 1 and not _ATOMS.isdisjoint(said)


_ATOMS: Final = frozenset(["@int", "@float", "@bytes", "@time"])


def _are_pairs(said: object) -> bool:
    return isinstance(said, list) and all(isinstance(each, list) and len(each) == 2 for each in said)


def _values(said: list[object], depth: int, pace: _Pace) -> Steps[tuple[Value, ...]]:
    made: list[Value] = []
    for each in said:
        kind = each.__class__
        if kind is int or each is None or kind is bool or kind is float:
            made.append(each)  # type: ignore[arg-type]  # by its class
        elif kind is str:
            made.append(from_json(each))
        else:
            made.append((yield from _value(each, depth, pace)))
    return tuple(made)
