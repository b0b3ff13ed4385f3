"""Batches: frames of values that are not decoded yet.

Many event streams observe the same pattern, and the daemon packs what they have in common once.  A route that
has written those bytes as text before need not decode them again; so a frame of values stays bytes until its
values are wanted.

Always: ``content`` is the same bytes for all streams that are sent the same values, and as many remaining.
"""

from __future__ import annotations

from typing import Final

from dataspace.codec import unpack_own
from dataspace.wire.packets import NUMBERS, Values
from index.values.values import Value

HEAD: Final = bytes([0x95, NUMBERS[Values]])
"""What the body of a frame of values begins with: an array of five, and the number of the packet."""

_INTEGERS: Final = {0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9}
"""Bytes of an integer in msgpack, by its first byte; 1 for first bytes that are not here."""

_ARRAYS: Final = {0xDC: 2, 0xDD: 4}
"""The same for the count of an array; a count of up to 15 is in the first byte."""


class EventBatch:
    """The values of one frame, which costs ``size`` bytes of credit."""

    __slots__ = ("content", "count", "size", "stream")

    def __init__(self, body: bytes) -> None:
        self.size = len(body)
        self.stream, at = _integer(body, len(HEAD))
        _, at = _integer(body, at)
        self.content = body[at:]
        first = self.content[0]
        count = self.content[1 : 1 + _ARRAYS.get(first, 0)]
        self.count = int.from_bytes(count, "big") if count else first & 0x0F

    @property
    def values(self) -> tuple[Value, ...]:
        """The values; O(size)."""
        return decoded(self.content)


def decoded(content: bytes) -> tuple[Value, ...]:
    """Returns the values in the content of a batch."""
    packet = unpack_own(HEAD + b"\0\0" + content)
    assert isinstance(packet, tuple) and isinstance(packet[3], tuple)  # as the daemon has written it
    return packet[3]


def _integer(body: bytes, at: int) -> tuple[int, int]:
    """Returns an integer of msgpack from 0 on, and where it ends."""
    size = _INTEGERS.get(body[at], 1)
    return (body[at] if size == 1 else int.from_bytes(body[at + 1 : at + size], "big")), at + size
