"""Waiting: values in a row that wait for observers, as their wire form in one buffer.

Observers that share a queue stand at different places in it, and each takes from there as much as its credit
allows.  An observer takes a part of the buffer, found by its end and copied in one step, however many values
that is; observers that take the same part in a row share one copy.  Beside the buffer there are a few numbers
for each value: the rows themselves are not kept (``packed.py`` says why).

Always: the buffer holds the wire form of exactly these values, in their order; ``used`` is at least the
memory of all values, without the one copy, which is small.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, TypeAlias

from dataspace.kernel.actions import MORE
from dataspace.kernel.changes import Changes
from relay.delivery.memory import LEAST, OVERHEAD
from relay.delivery.net_changes import net_of
from relay.delivery.packed import PackedChanges

Head: TypeAlias = tuple[int, int, int, int, int, int]
"""The number, the time, the first epoch and the flags of a value; its changes, and the messages of these."""

_FLAGS: Final = 3
_SIZE: Final = 4
_MESSAGES: Final = 5


class Waiting:
    """Values that wait, the oldest first; ``size`` counts their changes, and ``messages`` their messages.

    >>> waiting = Waiting()
    >>> for number in range(3):
    ...     waiting.append(Changes(number, 0), b"<%d>" % number)
    >>> waiting.cut(1, 10, 100), waiting.cut(0, 10, 4), waiting.cut(0, 1, 100)
    ((2, b'<1><2>', False), (2, b'<0><1>', False), (1, b'<0>', False))
    """

    __slots__ = ("_begin", "_ends", "_last", "_merged", "heads", "messages", "size", "wire")

    def __init__(self) -> None:
        self.heads: list[Head] = []
        self.size = self.messages = 0
        self.wire = bytearray()
        """The wire form of all waiting values; only to be looked at."""
        self._ends: list[
            int
        ] = []  # where each value ends, counted from the first that ever was in the buffer
        self._begin = 0  # where the buffer begins, so counted
        self._last = 0, 0, b""  # what was cut last, and where: the next one is often the same
        self._merged: tuple[int, int, list[PackedChanges]] | None = None  # what was merged last, and where

    def append(self, value: Changes, packed: bytes) -> None:
        """Takes in a value by its wire form; O(bytes)."""
        messages = len(value.messages) if value.messages else 0
        self._add((value.number, value.time, value.first, value.flags, value.size, messages), packed)

    def append_packed(self, value: PackedChanges) -> None:
        """The same for a packed value."""
        self._add(
            (value.number, value.time, value.first, value.flags, value.size, value.messages), value.packed
        )

    def _add(self, head: Head, packed: bytes) -> None:
        self.heads.append(head)
        self.size += head[_SIZE]
        self.messages += head[_MESSAGES]
        self._merged = None
        wire = self.wire
        wire += packed
        self._ends.append(self._begin + len(wire))

    def cut(self, at: int, count: int, size: int) -> tuple[int, bytes, bool]:
        """Returns how many values are taken from a place on, their wire form, and whether the last epoch goes
        on.

        They are up to ``count``, and about ``size`` bytes: the last may go beyond.  O(bytes).
        """
        ends = self._ends
        begin = ends[at - 1] if at else self._begin
        stop = at + count
        if stop > len(ends):
            stop = len(ends)
        if ends[stop - 1] - begin > size:
            stop = bisect_left(ends, begin + size, at, stop) + 1
        end = ends[stop - 1]
        more = bool(self.heads[stop - 1][_FLAGS] & MORE)
        if self._last[0] != begin or self._last[1] != end:
            wire = bytes(memoryview(self.wire)[begin - self._begin : end - self._begin])
            if end - begin > LEAST:  # it is not counted, so it must be small to be kept
                return stop - at, wire, more
            self._last = begin, end, wire
        return stop - at, self._last[2], more

    def merged(self, at: int) -> list[PackedChanges] | None:
        """Returns the net difference of the values from a place on; None if they are one epoch.

        It is computed once for all observers at that place; O(bytes).
        """
        begin, end = self._ends[at - 1] if at else self._begin, self._ends[-1]
        known = self._merged
        if known is not None and known[0] == begin and known[1] == end:
            return known[2]
        if self.heads[at][0] == self.heads[-1][0]:
            return None
        changes = net_of(self.packed_from(at))
        self._merged = begin, end, changes
        return changes

    def packed_from(self, at: int) -> list[PackedChanges]:
        """Returns a copy of the values from a place on; O(bytes)."""
        values: list[PackedChanges] = []
        begin = (self._ends[at - 1] if at else self._begin) - self._begin
        for (number, time, first, flags, size, messages), until in zip(
            self.heads[at:], self._ends[at:], strict=True
        ):
            end = until - self._begin
            packed = bytes(memoryview(self.wire)[begin:end])
            values.append(PackedChanges(number, time, first, flags, size, messages, packed))
            begin = end
        return values

    def bytes_from(self, at: int) -> int:
        """Returns the bytes of the values from a place on."""
        begin = self._ends[at - 1] if at else self._begin
        return self._begin + len(self.wire) - begin

    def used(self, at: int) -> int:
        """Returns how many bytes of memory the values from a place on take, at most; O(1)."""
        return (len(self.heads) - at) * OVERHEAD + self.bytes_from(at)

    def drop(self, count: int) -> Sequence[Head]:
        """Deletes the oldest values, but not all, and returns their heads; O(those)."""
        gone = self.heads[:count]
        begin = self._ends[count - 1]
        del self.heads[:count], self._ends[:count], self.wire[: begin - self._begin]
        if self.wire.__sizeof__() > 2 * len(self.wire) + LEAST:
            self.wire = bytearray(self.wire)  # what is deleted at the beginning would stay allocated
        self._begin = begin
        self.size -= sum([head[_SIZE] for head in gone])
        if self.messages:
            self.messages -= sum([head[_MESSAGES] for head in gone])
        return gone
