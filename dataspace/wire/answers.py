"""Answers: a long answer is packed in steps.

An answer may list ten thousand claims or changes, and packing these in one call takes 30 ms.  So such a list
is packed some rows at a time.  Other packets are short, or are values of streams, which are cut anyway.

Always: ``pack`` makes the same bytes.
"""

from __future__ import annotations

from typing import Final, TypeGuard

from dataspace.codec import array_head, pack
from dataspace.steps import Steps
from dataspace.wire.frames import frame
from dataspace.wire.packets import NUMBERS, Answer
from index.values.values import Map, Value

ROWS: Final = 128
"""Rows of a list that are packed in one step."""


def is_long(value: Value) -> bool:
    """True if a value is a long list, or a map with one, or a few such maps."""
    if value.__class__ is Map:
        return any(_is_list(each) for _, each in value.pairs())
    return _is_list(value) or _has_long_maps(value)


def answering(number: int, value: Value) -> Steps[bytes]:
    """Returns the frame of an answer, in steps."""
    pieces = [array_head(3), pack(NUMBERS[Answer]), pack(number)]
    yield from _packing(value, pieces)
    return frame(b"".join(pieces))


def _packing(value: Value, pieces: list[bytes]) -> Steps[None]:
    if _is_list(value):
        yield from _packing_rows(value, pieces)
    elif value.__class__ is Map and is_long(value) and _has_short_head(value):
        pieces.append(bytes([0x80 | len(value)]))
        for at, each in value.pairs():
            pieces.append(pack(at))
            yield from _packing(each, pieces)
    elif _has_long_maps(value):
        pieces.append(array_head(len(value)))
        for each in value:
            yield from _packing(each, pieces)
    else:
        pieces.append(pack(value))


def _packing_rows(rows: tuple[Value, ...], pieces: list[bytes]) -> Steps[None]:
    pieces.append(array_head(len(rows)))
    for begin in range(0, len(rows), ROWS):
        some = rows[begin : begin + ROWS]
        pieces.append(pack(some)[len(array_head(len(some))) :])
        yield


def _is_list(value: Value) -> TypeGuard[tuple[Value, ...]]:
    return value.__class__ is tuple and len(value) > ROWS


def _has_long_maps(value: Value) -> TypeGuard[tuple[Value, ...]]:
    """True for a short list with a map that has a long one, such as groups with what is out."""
    return value.__class__ is tuple and any(each.__class__ is Map and is_long(each) for each in value)


def _has_short_head(value: Map) -> bool:
    return len(value) < 16 and all(isinstance(at, str) for at, _ in value.pairs())
