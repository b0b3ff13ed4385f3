"""Unpacking in slices: a large frame becomes a value in steps, between which other work can be done.

A frame of some 100 kB may hold a hundred thousand small values, and msgpack decodes it in one call of tenths
of a second.  So a frame beyond ``PIECE_BYTES`` is followed down to where its parts are small: those are
decoded some at a time, and compounds larger than that are built of them.  It is apart from the codec, which
decodes what is small, and everything that needs no steps, in one call.

Always: values and refusals are the same as with ``unpack``; a step decodes about ``PIECE_BYTES`` bytes, or
one text of any length.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, Final, TypeAlias

import msgpack

from dataspace.codec import (
    MAP,
    MAX_DEPTH,
    RECORD,
    array_head,
    bound_depth,
    decoder,
    malformed,
    may_exceed,
    most_compounds,
    pairs_map,
    record,
    scanning,
    text_map,
    too_deep,
    unpack,
)
from dataspace.errors import ProtocolError
from index.values.values import Value

PIECE_BYTES: Final = 2048
"""Bytes that are decoded in one step, in a millisecond or two at most."""

GROUP: Final = 64
"""Values whose end is looked for together."""

Steps: TypeAlias = Generator[None, None, Value]
"""Yields between two steps, and returns a value."""

_DECODERS: Final = [decoder(depth) for depth in range(MAX_DEPTH + 1)]


def unpacking(data: bytes, *, elements: int, depth: int) -> Steps:
    """Returns, as the value of the generator, what ``unpack`` returns; yields between two steps.

    Raises as ``unpack``, in any step.
    """
    if _is_quick(data):
        return unpack(data, elements=elements, depth=depth)
    if may_exceed(data, elements):
        yield from scanning(data, elements, depth=depth)
    try:
        return (yield from _Decoding(depth).value(memoryview(data), depth, 0))
    except ProtocolError:
        raise
    except (RecursionError, msgpack.StackError):
        raise too_deep(depth) from None
    except (ValueError, OverflowError, TypeError, msgpack.UnpackException) as error:
        raise malformed(data, error) from None


def _is_quick(data: bytes) -> bool:
    """True if a frame is decoded in one step: compounds take time, and long texts hardly any."""
    size = len(data)
    return size <= PIECE_BYTES or (size <= 8 * PIECE_BYTES and most_compounds(data) <= PIECE_BYTES // 4)


class _Decoding:
    """What the parts of one frame have in common: how many levels it may have."""

    def __init__(self, levels: int) -> None:
        self._levels = levels

    def value(self, data: memoryview, left: int, inside: int) -> Steps:
        """Decodes one value, which is all of ``data``; ``left`` levels are allowed from here on.

        ``inside`` counts the extensions around it.
        """
        if len(data) <= PIECE_BYTES:
            return self._piece(data, 1, left, inside)[0]
        at, count, code = _opened(data)
        if code < 0:  # no compound: one long text, or what msgpack refuses
            return self._piece(data, 1, left, inside)[0]
        if left <= 0:
            raise too_deep(self._levels)
        if code in (RECORD, MAP):
            fields = yield from self._payload(data[at:], left - 1, inside + 1)
            return record(fields) if code == RECORD else pairs_map(fields)
        parts = yield from self._parts(data[at:], count, left - 1, inside)
        return tuple(parts) if code == _ARRAY else text_map(list(zip(parts[::2], parts[1::2], strict=True)))

    def _payload(self, data: memoryview, left: int, inside: int) -> Generator[None, None, tuple[Value, ...]]:
        """Decodes the array in a record or a map."""
        if inside > MAX_DEPTH:
            raise too_deep(self._levels)
        at, count, code = _opened(data)
        if code != _ARRAY:
            raise ProtocolError("malformed", "the payload of a record or a map is not an array")
        return tuple((yield from self._parts(data[at:], count, left, inside)))

    def _parts(
        self, data: memoryview, count: int, left: int, inside: int
    ) -> Generator[None, None, list[Value]]:
        """Decodes so many values in a row, which are all of ``data``."""
        parts: list[Value] = []
        begin = some = end = 0
        for at, end, group in _groups(data, count):
            if group == 1 and end - at > PIECE_BYTES:
                parts += self._piece(data[begin:at], some, left, inside)
                parts.append((yield from self.value(data[at:end], left, inside)))
                begin, some = end, 0
                continue
            some += group
            if end - begin >= PIECE_BYTES:
                parts += self._piece(data[begin:end], some, left, inside)
                begin, some = end, 0
                yield
        if end != len(data):
            raise ProtocolError("malformed", f"{len(data) - end} bytes after the last value")
        parts += self._piece(data[begin:], some, left, inside)
        return parts

    def _piece(self, data: memoryview, count: int, left: int, inside: int) -> tuple[Value, ...]:
        """Decodes some values in one call."""
        values: Any = _DECODERS[inside](array_head(count) + data)
        bound_depth(values, left + 1, self._levels)  # the array around them is none of theirs
        return values  # type: ignore[no-any-return]  # msgpack has no types


def _groups(data: memoryview, count: int, most: int = GROUP) -> Iterator[tuple[int, int, int]]:
    """Yields so many values in a row as groups: where each begins and ends, and how many are in it.

    A group is of small values, or of one; nothing is built.
    """
    unpacker = msgpack.Unpacker(max_buffer_size=max(len(data), 1))
    unpacker.feed(data)
    skip, at = unpacker.skip, 0
    for start in range(0, count, most):
        group = min(most, count - start)
        for _ in range(group):
            skip()
        end = unpacker.tell()
        if group > 1 and end - at > 2 * PIECE_BYTES:
            for first, last, one in _groups(data[at:end], group, 1):
                yield at + first, at + last, one
        else:
            yield at, end, group
        at = end


_ARRAY: Final = 1000
_TEXT_MAP: Final = 1001
_SIZES: Final = {0xDC: (2, _ARRAY), 0xDD: (4, _ARRAY), 0xDE: (2, _TEXT_MAP), 0xDF: (4, _TEXT_MAP)}
_EXTENSIONS: Final = {0xC7: 1, 0xC8: 2, 0xC9: 4}


def _opened(data: memoryview) -> tuple[int, int, int]:
    """Returns where the parts of a compound begin, their number, and its kind; a kind below 0 for none."""
    head = data[0] if len(data) else 0xC1
    if 0x90 <= head < 0xA0:
        return 1, head & 15, _ARRAY
    if 0x80 <= head < 0x90:
        return 1, 2 * (head & 15), _TEXT_MAP
    if head in _SIZES:
        width, kind = _SIZES[head]
        count = int.from_bytes(data[1 : 1 + width], "big")
        return 1 + width, count if kind == _ARRAY else 2 * count, kind
    if head in _EXTENSIONS:
        width = _EXTENSIONS[head]
        size = int.from_bytes(data[1 : 1 + width], "big")
        if len(data) == 2 + width + size and data[1 + width] in (RECORD, MAP):
            return 2 + width, 0, data[1 + width]
    return 0, 0, -1
