"""Waiting: values in a row that wait for observers, with their wire form in one buffer.

Observers that share a queue stand at different places in it, and each takes from there as much as its credit
allows.  An observer takes a part of the buffer, found by its end and copied in one step, however many values
that is; observers that take the same part in a row share one copy.  The values themselves stay without a wire
form of their own, since they are rarely looked at again.

Always: the buffer holds the wire form of exactly these values, in their order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from dataspace.kernel.actions import MORE
from dataspace.kernel.changes import Changes
from relay.delivery.memory import OVERHEAD
from relay.delivery.net_changes import net_of


class Waiting:
    """Values that wait, the oldest first; ``size`` counts their changes, and ``messages`` their messages.

    >>> waiting = Waiting()
    >>> for number in range(3):
    ...     waiting.append(Changes(number, 0), b"<%d>" % number)
    >>> waiting.cut(1, 10, 100), waiting.cut(0, 10, 4), waiting.cut(0, 1, 100)
    ((2, b'<1><2>', False), (2, b'<0><1>', False), (1, b'<0>', False))
    """

    __slots__ = ("_begin", "_ends", "_last", "_merged", "messages", "size", "values", "wire")

    def __init__(self) -> None:
        self.values: list[Changes] = []
        self.size = self.messages = 0
        self.wire = bytearray()
        """The wire form of all waiting values; only to be looked at."""
        self._ends: list[
            int
        ] = []  # where each value ends, counted from the first that ever was in the buffer
        self._begin = 0  # where the buffer begins, so counted
        self._last = 0, 0, b""  # what was cut last, and where: the next one is often the same
        self._merged: tuple[int, int, Changes] | None = None  # what was merged last, and where

    def append(self, value: Changes, packed: bytes) -> None:
        """Takes in a value and its wire form; O(bytes)."""
        self.values.append(value)
        self.size += value.size
        if value.messages:
            self.messages += len(value.messages)
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
        if self._last[0] != begin or self._last[1] != end:
            wire = bytes(memoryview(self.wire)[begin - self._begin : end - self._begin])
            self._last = begin, end, wire
        return stop - at, self._last[2], bool(self.values[stop - 1].flags & MORE)

    def merged(self, at: int) -> Changes | None:
        """Returns the net difference of the values from a place on; None if they are one epoch.

        It is computed once for all observers at that place; O(changes).
        """
        values = self.values
        begin, end = self._ends[at - 1] if at else self._begin, self._ends[-1]
        known = self._merged
        if known is not None and known[0] == begin and known[1] == end:
            return known[2]
        if values[at].number == values[-1].number:
            return None
        changes = net_of(values[at:])
        self._merged = begin, end, changes
        return changes

    def bytes_from(self, at: int) -> int:
        """Returns the bytes of the values from a place on."""
        begin = self._ends[at - 1] if at else self._begin
        return self._begin + len(self.wire) - begin

    def used(self, at: int) -> int:
        """Returns about how many bytes of memory the values from a place on take; O(those)."""
        return sum([each.size for each in self.values[at:]]) * OVERHEAD + self.bytes_from(at)

    def drop(self, count: int) -> Sequence[Changes]:
        """Deletes the oldest values, but not all, and returns them; O(those)."""
        gone = self.values[:count]
        begin = self._ends[count - 1]
        del self.values[:count], self._ends[:count], self.wire[: begin - self._begin]
        self._begin = begin
        self.size -= sum([each.size for each in gone])
        if self.messages:
            self.messages -= sum([len(each.messages) for each in gone])
        return gone
