"""Changes: the effect of one epoch on the observers of one pattern.

One ``Changes`` is made per touched pattern and epoch, and shared by all observers of that pattern, so that
its wire form is packed once however many they are.  It is apart from ``Epoch``, which speaks of facts
and owners; this speaks of captures only.

Always: the order within is additions, messages, removals; it never changes after it is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from dataspace.codec import pack
from dataspace.kernel.actions import MORE, SNAPSHOT
from index.patterns.events import Captures as Captures
from index.values.values import Record

PART: Final = 2048
"""Changes in one stream value; an epoch with more of them travels in several."""


class Changes:
    """The additions, messages and removals of one pattern in one epoch, as rows of captures.

    ``number`` is the epoch, ``time`` in microseconds since 1970 UTC; ``first`` is the epoch where a conflated
    difference begins, else the same as ``number``; ``flags`` are the flags on the wire.
    """

    __slots__ = ("_packed", "added", "first", "flags", "messages", "number", "removed", "size", "time")

    def __init__(
        self,
        number: int,
        time: int,
        added: Sequence[Captures] = (),
        messages: Sequence[Captures] = (),
        removed: Sequence[Captures] = (),
        *,
        flags: int = 0,
        first: int | None = None,
    ) -> None:
        self.number = number
        self.time = time
        self.added = added
        self.messages = messages
        self.removed = removed
        self.size: Final = len(added) + len(messages) + len(removed)
        """Changes; the same as ``len``, which costs a call where every value counts."""
        self.flags = flags
        self.first = number if first is None else first
        self._packed: bytes | None = None

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return (
            f"Changes({self.number}, +{len(self.added)} !{len(self.messages)} -{len(self.removed)},"
            f" flags={self.flags})"
        )

    @property
    def snapshot(self) -> bool:
        """True if these additions are a state, not changes."""
        return bool(self.flags & SNAPSHOT)

    @property
    def packed(self) -> bytes:
        """Returns the stream value that carries these changes; O(size) once."""
        known = self._packed
        if known is None:
            known = self._packed = self.pack()
        return known

    def pack(self) -> bytes:
        """Returns the same without keeping it, for callers that keep it themselves."""
        return self._packed or pack(
            (self.number, self.time, self.flags, self.added, self.messages, self.removed, self.first)
        )

    def parts(self, size: int = PART) -> Sequence[Changes]:
        """Yields these changes in values of at most ``size`` changes, all but the last flagged ``MORE``."""
        return (self,) if self.size <= size else list(self._cut(size))

    def _cut(self, size: int) -> Iterator[Changes]:
        for start in range(0, self.size, size):
            lists, begin, end = [], start, start + size
            for rows in (self.added, self.messages, self.removed):
                lists.append(rows[max(0, begin) : max(0, end)])
                begin, end = begin - len(rows), end - len(rows)
            more = MORE if start + size < self.size else 0
            yield Changes(self.number, self.time, *lists, flags=self.flags | more, first=self.first)


class Lost(Changes):
    """A mark among the changes of an observer with the policy ``drop``: so many were dropped here.

    It waits and is taken like the changes whose place it has, and grows while it waits.
    """

    __slots__ = ("count",)

    def __init__(self, first: int) -> None:
        super().__init__(first, 0)
        self.count = 0

    def add(self, number: int, count: int) -> None:
        """Adds one more lost epoch, of so many changes."""
        self.count += count
        self.number = number

    @property
    def packed(self) -> bytes:
        """Returns the stream value: ``lost(changes, first epoch, last epoch)``."""
        return self.pack()

    def pack(self) -> bytes:
        """Returns the same."""
        return pack(Record("lost", self.count, self.first, self.number))
