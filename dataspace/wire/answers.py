"""Answers: a long answer is packed in steps.

An answer may list ten thousand claims or changes, and packing these in one call takes 30 ms.  So such a list
is packed some rows at a time.  Other packets are short, or are values of streams, which are cut anyway.

Always: ``pack`` makes the same bytes.
"""

from __future__ import annotations

from typing import Final

from dataspace.codec import array_head, pack
from dataspace.steps import Steps
from dataspace.wire.frames import frame
from dataspace.wire.packets import NUMBERS, Answer
from index.values.values import Map, Value

ROWS: Final = 128
"""Rows of a list that are packed in one step."""


def is_long(value: Value) -> bool:
    """True if a value is a long list, or a map with one."""
    if value.__class__ is Map:
        return any(_is_list(each) for _, each in value.pairs())
    return _is_list(value)


def answering(number: int, value: Value) -> Steps[bytes]:
    """Returns the frame of an answer, in steps."""
    pieces = [array_head(3), pack(NUMBERS[Answer]), pack(number)]
    if isinstance(value, Map) and len(value) < 16 and all(isinstance(at, str) for at, _ in value.pairs()):
        pieces.append(bytes([0x80 | len(value)]))
        for at, each in value.pairs():
            pieces.append(pack(at))
            yield from _packing(each, pieces)
    else:
        yield from _packing(value, pieces)
    return frame(b"".join(pieces))


def _packing(value: Value, pieces: list[bytes]) -> Steps[None]:
    if not _is_list(value):
        pieces.append(pack(value))
        return
    assert isinstance(value, tuple)  # as a list is
    pieces.append(array_head(len(value)))
    for begin in range(0, len(value), ROWS):
        rows = value[begin : begin + ROWS]
        pieces.append(pack(rows)[len(array_head(len(rows))) :])
        yield


def _is_list(value: Value) -> bool:
    return value.__class__ is tuple and len(value) > ROWS
