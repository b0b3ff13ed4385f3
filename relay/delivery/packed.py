"""Packed changes: one stream value that waits as its wire form alone.

The rows of an epoch are values, which take many times the bytes of their wire form where they are small and
nested, and hold memory that nothing else accounts for once their facts are gone.  A queue therefore keeps the
wire form only: what waits takes as many bytes as it says.  ``net_changes.py`` computes with packed rows, so
nothing is decoded on the way to a socket.

Always: ``packed`` is the wire form of changes with this number, time, first epoch and flags.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

from dataspace.codec import array_head, pack, unpack_own
from dataspace.errors import Refused
from dataspace.kernel.actions import MORE
from dataspace.kernel.changes import PART, Changes
from dataspace.steps import Steps

PART_BYTES: Final = 128 << 10
"""Bytes that one stream value holds at most, unless one change alone is larger: frames stay within bounds."""


class PackedChanges:
    """One stream value; ``size`` counts its changes, and ``messages`` the messages among them."""

    __slots__ = ("first", "flags", "messages", "number", "packed", "size", "time")

    def __init__(
        self, number: int, time: int, first: int, flags: int, size: int, messages: int, packed: bytes
    ) -> None:
        self.number = number
        self.time = time
        self.first = first
        self.flags = flags
        self.size = size
        self.messages = messages
        self.packed = packed

    def __len__(self) -> int:
        return self.size

    def changes(self) -> Changes:
        """Returns the value with its rows; O(bytes).

        >>> packed_of(Changes(7, 70, [("a",)], [], [("b",)])).changes()
        Changes(7, +1 !0 -1, flags=0)
        """
        value: Any = unpack_own(self.packed)
        number, time, flags, added, messages, removed, first = value
        return Changes(number, time, list(added), list(messages), list(removed), flags=flags, first=first)


def packed_of(changes: Changes) -> PackedChanges:
    """Returns changes as one value; O(size) unless they are packed already."""
    messages = len(changes.messages) if changes.messages else 0
    return PackedChanges(
        changes.number, changes.time, changes.first, changes.flags, changes.size, messages, changes.packed
    )


def pieces(changes: Changes) -> Sequence[PackedChanges]:
    """Returns the values in which one epoch is sent.

    None is too large, unless one change alone is.
    """
    if changes.size <= PART and (changes.size <= 1 or len(changes.packed) <= PART_BYTES):
        return (packed_of(changes),)
    values: list[PackedChanges] = []
    for part in changes.parts():
        if part.size > 1 and len(part.packed) > PART_BYTES:
            for each in part.parts(max(1, part.size * PART_BYTES // len(part.packed))):
                values += pieces(each)
        else:
            values.append(packed_of(part))
    return values


def packing(
    head: tuple[int, int, int, int], kinds: Sequence[Sequence[bytes]], most: int = PART
) -> Steps[list[PackedChanges]]:
    """Returns packed rows that were added, sent and removed as stream values, at least one; O(bytes).

    ``head`` has the number, the time, the first epoch and the flags.  All values but the last are flagged as
    parts; none has more than ``most`` rows, and none is too large unless one row alone is.  Yields before
    each part.
    """
    values: list[PackedChanges] = []
    part: tuple[list[bytes], list[bytes], list[bytes]] = ([], [], [])
    count = size = 0
    for at, kind in enumerate(kinds):
        for start in range(0, len(kind), most):
            for some, length in _bounded(kind[start : start + most]):
                if count and (count + len(some) > most or size + length > _MOST):
                    yield
                    values.append(_value(head, part, MORE))
                    part = ([], [], [])
                    count = size = 0
                part[at].extend(some)
                count += len(some)
                size += length
    values.append(_value(head, part, 0))
    return values


def _value(head: tuple[int, int, int, int], rows: Sequence[Sequence[bytes]], more: int) -> PackedChanges:
    number, time, first, flags = head
    flags |= more
    parts = [_SEVEN, pack(number), pack(time), pack(flags)]
    for each in rows:
        parts.append(array_head(len(each)))
        parts += each
    parts.append(pack(first))
    return PackedChanges(number, time, first, flags, sum(map(len, rows)), len(rows[1]), b"".join(parts))


_SEVEN: Final = array_head(7)
_HEADS: Final = 64
"""What a value has beside its rows, at most."""

_MOST: Final = PART_BYTES - _HEADS


def _bounded(rows: Sequence[bytes]) -> Iterator[tuple[Sequence[bytes], int]]:
    """Yields rows in groups that fit into one value, or have one row, and the bytes of each group."""
    length = sum(map(len, rows))
    if length <= _MOST or len(rows) == 1:
        yield rows, length
    else:
        half = len(rows) // 2
        yield from _bounded(rows[:half])
        yield from _bounded(rows[half:])


# -- what waits behind a stream --------------------------------------------------------------------


class StreamValue(Protocol):
    """One stream value, ready to be sent."""

    @property
    def packed(self) -> bytes:
        """Returns the value in its wire form."""


class Backlog(Protocol):
    """What waits behind one stream: changes of a space, blocks of a log, or messages of a topic."""

    @property
    def failure(self) -> Refused | None:
        """Returns the error that ends the stream; None while it goes on."""

    @property
    def used(self) -> int:
        """Returns the bytes of memory that the values take, about."""

    def __len__(self) -> int:
        """Returns the number of values that wait."""

    def take_packed(self, count: int, size: int) -> tuple[int, bytes]:
        """Removes up to ``count`` values of about ``size`` bytes; returns how many, and their wire form.

        The last value may exceed ``size``, so that a large value is sent in the end.  The stream is woken by
        the next value that comes after a call.
        """


def joined(values: Sequence[StreamValue]) -> tuple[int, bytes]:
    """Returns how many values these are, and their wire form."""
    if len(values) == 1:
        return 1, values[0].packed
    return len(values), b"".join([each.packed for each in values])
