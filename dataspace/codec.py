"""The codec: values to msgpack bytes and back.

This is the only module that knows msgpack.  A record is extension 1, whose payload is the msgpack array
``[label, field, …]``; an integer beyond 64 bits is extension 2, big-endian two's complement; a time is
msgpack's own timestamp; a map whose keys are all text is a msgpack map, any other is extension 3, whose
payload is the array ``[key, value, key, value, …]``.  The log stores the same bytes that the wire carries.

It is apart from frames and packets because they trust it with the dangerous part: bytes from strangers.
msgpack's C code bounds array lengths by the input and nesting by 1024 levels, but it would follow nested
extensions until the C stack ends, and turn one byte into 80 bytes of memory.  So each level of extension is
decoded by a function of its own, with a fixed number of functions, and an input that is long enough to hold
more elements than allowed is scanned before anything is built.

Always: ``unpack(pack(v))`` is the same value as ``v``, of at most ``MAX_DEPTH`` levels; any bytes give a
value or ``ProtocolError``.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Final

import msgpack

from dataspace.errors import ProtocolError, UsageError
from dataspace.steps import at_once
from index.values.values import Map, Record, Value

RECORD: Final = 1
BIG_INTEGER: Final = 2
MAP: Final = 3

MAX_DEPTH: Final = 64
"""Levels of nesting that are packed and unpacked, counting records, sequences and maps alike."""

MAX_ELEMENTS: Final = 1 << 18
"""Elements (atoms and compounds, nested ones included) in one frame."""

SCAN_STEP: Final = 2048
"""Values that are scanned in a step, in about a millisecond."""

MAP_ELEMENTS: Final = 8
"""Elements that a map counts as, besides its keys and values: it makes as much work as so many."""


KEPT_BYTES: Final = 1 << 20
"""A packer that has packed so much is not used again: it keeps a buffer that large for ever."""


def pack(value: object) -> bytes:
    """The bytes of a value, or of plain lists and dicts of values; O(size).

    Raises ``UsageError`` for records nested beyond ``MAX_DEPTH`` and for an object that is no value.
    Sequences and maps of text that are deeper are packed as they are, and ``unpack`` refuses the bytes.
    """
    try:
        packers = _idle.pop()
    except IndexError:  # asked for like this because another thread may take the last one
        packers = _packers()
    try:
        packed: bytes = packers[0].pack(value)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"cannot be packed: {error}") from error
    if len(packed) < KEPT_BYTES:
        _idle.append(packers)
    else:
        packers.clear()  # each refers to all of them
    return packed


def packer() -> Callable[[object], bytes]:
    """A ``pack`` of one's own, for one thread that packs a lot: quicker, but its errors are msgpack's."""
    return _packers()[0].pack  # type: ignore[no-any-return]  # msgpack has no types


def unpack(data: bytes | memoryview, *, elements: int = MAX_ELEMENTS, depth: int | None = MAX_DEPTH) -> Value:
    """The value that some bytes mean; O(size), bounded before memory is spent.

    Raises ``ProtocolError("malformed")`` for bytes that are no value, and ``ProtocolError("limit")`` beyond
    ``depth`` levels (``MAX_DEPTH`` at most) or ``elements``, whatever else the bytes hold.  With None only
    what could break the interpreter is bounded: for bytes from a peer that has bounded them before.
    """
    if may_exceed(data, elements):
        scan(bytes(data), elements, depth=depth)
    value = _decoded(data, _decode_said)
    if depth is not None and most_compounds(data) > depth:  # else it need not be looked at
        bound_depth(value, depth, depth)
    return value


def unpack_own(data: bytes | memoryview) -> Value:
    """The same for bytes that this project wrote and that a checksum vouches for: nothing is bounded."""
    return _decoded(data, _decode)


def _decoded(data: bytes | memoryview, decode: Callable[[bytes | memoryview], Value]) -> Value:
    try:
        return decode(data)
    except ProtocolError:
        raise
    except (RecursionError, msgpack.StackError):
        raise too_deep() from None
    except (ValueError, OverflowError, TypeError, msgpack.UnpackException) as error:
        raise malformed(data, error) from None


def malformed(data: bytes | memoryview, error: Exception) -> ProtocolError:
    """Returns the refusal of bytes that msgpack cannot decode."""
    said = str(error) or type(error).__name__
    return ProtocolError("malformed", f"no value in {len(data)} bytes: {said}")


def most_elements(data: bytes | memoryview) -> int:
    """Returns a number of elements that some bytes cannot exceed; O(bytes), at some 1 ns each.

    Each element is one byte at least, and a map begins with one of a few.
    """
    maps = len(data) - len(bytes(data).translate(None, _MAP_HEADS))
    return len(data) + (MAP_ELEMENTS - 1) * maps


def may_exceed(data: bytes | memoryview, elements: int) -> bool:
    """True if some bytes must be scanned to learn whether they hold more elements than so many."""
    return MAP_ELEMENTS * len(data) > elements and most_elements(data) > elements


def most_compounds(data: bytes | memoryview) -> int:
    """Returns a number of compounds that some bytes cannot exceed, nor their levels; O(bytes), as above."""
    return len(data) - len(bytes(data).translate(None, _COMPOUND_HEADS))


_MAP_HEADS: Final = bytes([*range(0x80, 0x90), 0xDE, 0xDF, MAP])
"""The first bytes of maps, and the extension code of maps."""

_COMPOUND_HEADS: Final = bytes([*range(0x80, 0xA0), 0xC7, 0xC8, 0xC9, *range(0xD4, 0xD9), *range(0xDC, 0xE0)])
"""The first bytes of arrays, maps and extensions; a level of nesting has one at least."""


# -- packing ------------------------------------------------------------------------------------------

_idle: list[list[msgpack.Packer]] = []
"""Chains of packers nobody uses: a packer is not re-entrant, so each depth and each caller has its own."""


def _packers() -> list[msgpack.Packer]:
    chain: list[msgpack.Packer] = []
    chain.append(_packer(chain, 0))
    return chain


def _packer(chain: list[msgpack.Packer], depth: int) -> msgpack.Packer:
    def extend(thing: object) -> object:
        if thing.__class__ is Record:
            return msgpack.ExtType(RECORD, below()((thing.label, *thing.fields)))
        if thing.__class__ is Map:
            return _map_form(thing, below)
        if thing.__class__ is int:
            return msgpack.ExtType(BIG_INTEGER, thing.to_bytes(_size(thing), "big", signed=True))
        raise UsageError(f"{type(thing).__qualname__} is no value")

    def below() -> Callable[[object], bytes]:
        if depth + 1 >= len(chain):
            if depth >= MAX_DEPTH:
                raise UsageError(f"nested deeper than {MAX_DEPTH} levels")
            chain.append(_packer(chain, depth + 1))
        return chain[depth + 1].pack  # type: ignore[no-any-return]  # msgpack has no types

    return msgpack.Packer(default=extend, datetime=True, use_bin_type=True, buf_size=1024)


def _map_form(thing: Map, below: Callable[[], Callable[[object], bytes]]) -> object:
    pairs = thing.pairs()
    if all(at.__class__ is str for at, _ in pairs):
        return dict(pairs)
    return msgpack.ExtType(MAP, below()([half for pair in pairs for half in pair]))


# -- unpacking ----------------------------------------------------------------------------------------


def too_deep(levels: int = MAX_DEPTH) -> ProtocolError:
    """Returns the refusal of what nests beyond so many levels."""
    return ProtocolError("limit", f"nested deeper than {levels} levels")


def decoder(depth: int) -> Callable[[bytes | memoryview], Value]:
    """Returns what decodes a payload inside ``depth`` extensions; it bounds nothing but their number."""
    return _refuse_depth if depth > MAX_DEPTH else _with_extensions(_decoding(depth))


def _decoding(depth: int) -> Callable[[int, bytes], Value]:
    """Returns what makes values of extensions inside so many others."""
    below = decoder(depth + 1)

    def extension(code: int, payload: bytes) -> Value:
        if code == RECORD:
            return record(below(payload))
        if code == BIG_INTEGER:
            return _big_integer(payload)
        if code == MAP:
            return pairs_map(below(payload))
        raise ProtocolError("malformed", f"extension {code}, known are 1 to 3 and timestamps")

    return extension


def _with_extensions(extension: Callable[[int, bytes], Value]) -> Callable[[bytes | memoryview], Value]:
    decode: Callable[[Any], Any] = partial(
        msgpack.unpackb,
        use_list=False,
        strict_map_key=True,
        timestamp=3,
        object_pairs_hook=text_map,
        ext_hook=extension,
    )
    return decode


def _remembering() -> Callable[[bytes | memoryview], Value]:
    """Returns what decodes as ``decoder(0)``, and keeps the short patterns that it met.

    A client that expects or observes says the same few patterns again and again, each of several records.
    """
    below, other, patterns = decoder(1), _decoding(0), dict[bytes, Value]()

    def extension(code: int, payload: bytes) -> Value:
        if code != RECORD:
            return other(code, payload)
        known = patterns.get(payload)
        if known is not None:
            return known
        decoded = record(below(payload))
        if len(payload) <= PATTERN_BYTES and (b"\xa1$" in payload or b"\xa1_" in payload):
            if len(patterns) >= PATTERNS:
                patterns.clear()
            patterns[payload] = decoded
        return decoded

    return _with_extensions(extension)


PATTERNS: Final = 1024
PATTERN_BYTES: Final = 128
"""Patterns that stay decoded, and the bytes of their records up to which they do."""


def _refuse_depth(_payload: bytes | memoryview) -> Value:
    raise too_deep()


def record(parts: Value) -> Value:
    """Returns the record whose payload has these parts."""
    if parts.__class__ is not tuple or not parts:
        raise ProtocolError("malformed", "a record is an array that begins with its label")
    return Record.of(parts[0], parts[1:])


def bound_depth(value: Value, budget: int, levels: int) -> None:
    """Refuses what nests beyond the budget; level by level, so that no compound costs a call."""
    level: list[Value] = [value] if value.__class__ in _COMPOUND else []
    while level:
        if budget <= 0:
            raise too_deep(levels)
        budget -= 1
        level = _inside(level)


def _inside(compounds: list[Value]) -> list[Value]:
    """Returns the compounds that are parts of these."""
    parts: list[Value] = []
    for compound in compounds:
        if compound.__class__ is tuple:
            parts += compound
        elif compound.__class__ is Record:
            parts += compound.fields
            if compound.label.__class__ is not str:
                parts.append(compound.label)
        elif compound.__class__ is Map:
            parts += [half for pair in compound.pairs() for half in pair]
    if _COMPOUND.isdisjoint(map(type, parts)):
        return []
    return [part for part in parts if part.__class__ in _COMPOUND]


_COMPOUND: Final = frozenset([tuple, Record, Map])


def _size(number: int) -> int:
    """Bytes of two's complement that an integer needs, its sign included.

    >>> _size(-(1 << 71)), _size(1 << 71)
    (9, 10)
    """
    return (number if number >= 0 else ~number).bit_length() // 8 + 1


def _big_integer(payload: bytes) -> int:
    """The integer, also where -2^(8k-1) has the byte more that logs from before it was left out hold."""
    number = int.from_bytes(payload, "big", signed=True)
    fits = len(payload) == _size(number) or len(payload) == (number.bit_length() + 8) // 8
    if -(1 << 63) <= number < 1 << 64 or not fits:
        raise ProtocolError("malformed", "a big integer is written in as few bytes as it needs, past 64 bits")
    return number


def pairs_map(halves: Value) -> Map:
    """Returns the map whose payload has these keys and values in turn."""
    if halves.__class__ is not tuple or len(halves) % 2:
        raise ProtocolError("malformed", "a map is an array of keys and values in turn")
    return Map.of(list(zip(halves[::2], halves[1::2], strict=True)))


def text_map(pairs: list[tuple[Value, Value]]) -> Map:
    """Returns the map of pairs that a msgpack map has; raises ``ProtocolError`` for keys that are no text."""
    if not pairs:
        return NO_ENTRIES
    for at, _ in pairs:
        if at.__class__ is not str:
            raise ProtocolError("malformed", "a map with keys that are no text is extension 3")
    return Map.of(pairs)


NO_ENTRIES: Final = Map()

_decode: Final = decoder(0)
_decode_said: Final = _remembering()


# -- scanning -----------------------------------------------------------------------------------------


def _widths() -> tuple[list[int], list[int], list[int], list[int]]:
    """For each first byte: bytes to skip, bytes of a length that follows, elements, elements per length."""
    skip, length, count, per = [0] * 256, [0] * 256, [0] * 256, [0] * 256
    for byte in range(0x80, 0x90):
        count[byte] = 2 * (byte & 15)
    for byte in range(0x90, 0xA0):
        count[byte] = byte & 15
    for byte in range(0xA0, 0xC0):
        skip[byte] = byte & 31
    sized = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
    plain = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
    for byte, width in sized.items():
        length[byte] = width
    for byte, width in plain.items():
        skip[byte] = width
    for byte, width, each in ((0xDC, 2, 1), (0xDD, 4, 1), (0xDE, 2, 2), (0xDF, 4, 2)):
        length[byte], per[byte] = width, each
    return skip, length, count, per


_SKIP, _LENGTH, _COUNT, _PER = _widths()
_EXTENSIONS: Final = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16, 0xC7: -1, 0xC8: -2, 0xC9: -4}


def scan(data: bytes, elements: int, *, depth: int | None = MAX_DEPTH) -> int:
    """How many elements some bytes hold, nested extension payloads included; builds nothing.

    Raises ``ProtocolError("limit")`` as soon as there are more than ``elements`` or ``depth`` levels,
    declared ones counted, and ``ProtocolError("malformed")`` where the bytes end early.  Levels are counted
    as in ``unpack``: a record, a sequence and a map are one each, whatever their encoding.
    """
    return at_once(scanning(data, elements, depth=depth, step=len(data) + 1))


def scanning(
    data: bytes, elements: int, *, depth: int | None = MAX_DEPTH, step: int = SCAN_STEP
) -> Generator[None, None, int]:
    """As ``scan``, but yields after each ``step`` values, so that other work can be done in between."""
    at, seen, end, pause = 0, 0, len(data), step
    levels = end if depth is None else depth
    open_counts, wrapped = [1], False
    while open_counts:
        if not open_counts[-1]:
            open_counts.pop()
            continue
        if at >= end:
            raise ProtocolError("malformed", f"{end} bytes end in the middle of a value")
        byte = data[at]
        at += 1
        seen += 1
        if seen > pause:
            pause = seen + step
            yield
        if byte in _EXTENSIONS and not wrapped:
            at, wrapped = _extension(data, at, _EXTENSIONS[byte])
            open_counts[-1] -= not wrapped  # else its payload takes its place
            if wrapped and data[at - 1] == MAP:
                seen += MAP_ELEMENTS - 1
            continue
        open_counts[-1] -= 1
        if not _IS_COMPOUND[byte]:
            if wrapped:
                raise ProtocolError("malformed", "the payload of a record or a map is not an array")
            width = _LENGTH[byte]
            at += width + int.from_bytes(data[at : at + width], "big") if width else _SKIP[byte]
            continue
        if len(open_counts) > levels:
            raise too_deep(levels)
        wrapped, width, children = False, _LENGTH[byte], _COUNT[byte]
        if width:
            children = int.from_bytes(data[at : at + width], "big") * _PER[byte]
            at += width
        if _IS_MAP[byte]:
            seen += MAP_ELEMENTS - 1
        if seen + children > elements:
            raise ProtocolError("limit", f"{seen + children} elements, limit {elements}")
        open_counts.append(children)
    return seen


_IS_MAP: Final = [0x80 <= byte < 0x90 or byte in (0xDE, 0xDF) for byte in range(256)]
_IS_COMPOUND: Final = [0x80 <= byte < 0xA0 or _PER[byte] > 0 for byte in range(256)]


def _extension(data: bytes, at: int, width: int) -> tuple[int, bool]:
    """Returns where to go on after the head of an extension, and whether that is at its payload."""
    size = width
    if width < 0:
        size = int.from_bytes(data[at : at - width], "big")
        at -= width
    inside = at < len(data) and data[at] in (RECORD, MAP)
    return (at + 1, True) if inside else (at + 1 + size, False)


# -- pieces -------------------------------------------------------------------------------------------


def split_rows(packed: bytes) -> tuple[list[bytes], list[bytes], list[bytes]]:
    """Returns the packed rows of a stream value: those added, the messages, those removed.  O(bytes).

    Nothing is decoded.  The value was packed by this project.

    >>> added, messages, removed = split_rows(pack((7, 70, 0, [("a",)], [], [(1, "b"), (2,)], 7)))
    >>> [unpack(row) for row in added + removed], messages
    ([('a',), (1, 'b'), (2,)], [])
    """
    reader = msgpack.Unpacker(max_buffer_size=len(packed))
    reader.feed(packed)
    reader.read_array_header()
    for _ in range(3):  # the epoch, its time, the flags
        reader.skip()
    kinds: list[list[bytes]] = []
    for _ in range(3):
        rows: list[bytes] = []
        count = reader.read_array_header()
        begin = reader.tell()
        for _ in range(count):
            reader.skip()
            end = reader.tell()
            rows.append(packed[begin:end])
            begin = end
        kinds.append(rows)
    return kinds[0], kinds[1], kinds[2]


def low_first(numbers: array[int]) -> bytes:
    """Returns an array as it is on the wire: the least byte of each number first.

    >>> low_first(array("i", [1, 256])).hex()
    '0100000000010000'
    """
    if sys.byteorder == "big":
        numbers = array(numbers.typecode, numbers)
        numbers.byteswap()
    return numbers.tobytes()


def array_head(count: int) -> bytes:
    """The head of a msgpack array of ``count`` elements, to be followed by their packed forms."""
    if count < 16:
        return _SHORT_HEADS[count]
    return b"\xdc" + count.to_bytes(2, "big") if count < 1 << 16 else b"\xdd" + count.to_bytes(4, "big")


_SHORT_HEADS: Final = [bytes([0x90 | count]) for count in range(16)]
