"""Windows: how much may each stream be sent before the application has taken what came?

There is no credit for a connection as a whole, which is where others stall: a stream that is not read would
use it up.  Instead the receiver divides a budget of memory among its streams, and each gets a window of its
own.  A window begins small and grows as long as it *runs dry*, that is, as the application has taken all
received values and waits, although the sender had used up its credit; it shrinks when more streams want a
share.

Always: what a stream has been asked for and the application has not taken is at most its window, beside one
value that may overdraw it and one epoch that is coming in parts; the windows together are at most the
budget, unless there are so many streams that the least of each exceed it.
"""

from __future__ import annotations

from typing import Final

BUDGET: Final = 64 << 20
"""Bytes that the streams of one connection may have under way or waiting."""

LEAST: Final = 4 << 10
START: Final = 256 << 10
MOST: Final = 8 << 20
"""Bytes in a window: always, at first, at last."""

ITEM: Final = 64
"""Bytes that stand for an item: a window has as many items as it has these."""


class ReceiveBudget:
    """The memory that the streams of one receiver share."""

    __slots__ = ("_streams", "bytes")

    def __init__(self, size: int = BUDGET) -> None:
        self.bytes = size
        self._streams = 0

    @property
    def share(self) -> int:
        """The bytes that one stream may have in its window."""
        return max(LEAST, min(MOST, self.bytes // max(1, self._streams)))

    def join(self) -> None:
        """One more stream wants a share."""
        self._streams += 1

    def leave(self) -> None:
        """One less."""
        self._streams -= 1


class ReceiveWindow:
    """The credit of one stream; ``items`` fixes how many values it is, instead of letting it grow.

    With ``items`` 0 nothing is asked for ahead, but as much as is ``wanted`` at the moment.

    Counts are totals since the stream was opened, of values and of bytes.  ``consume`` is called for each
    value, so that it does no more than add and compare.
    """

    __slots__ = (
        "_asked",
        "_asked_size",
        "_before",
        "_before_size",
        "_budget",
        "_came",
        "_came_size",
        "_due",
        "_due_size",
        "_fixed",
        "_taken",
        "_taken_size",
        "size",
        "wanted",
    )

    def __init__(self, budget: ReceiveBudget, items: int | None = None) -> None:
        self._budget = budget
        self._fixed = items
        self.size = START if items is None else MOST
        """What the window would be in bytes if it had not to share."""
        self.wanted = 0
        """Reads that wait, where nothing is asked for ahead of them."""
        self.open()

    @property
    def limits(self) -> tuple[int, int]:
        """How many items and bytes the window is now."""
        size = min(self.size, self._budget.share)
        return (max(1, size // ITEM) if self._fixed is None else self._fixed or self.wanted, size)

    @property
    def spent(self) -> bool:
        """Whether nothing more will come before more is asked for."""
        return self._came >= self._asked or self._came_size >= self._asked_size

    @property
    def came(self) -> int:
        """Values that have come since the stream was opened."""
        return self._came

    def open(self, held: tuple[int, int] = (0, 0)) -> tuple[int, int]:
        """The first credit of a new stream; values ``held`` of the stream before count against it."""
        self._asked = self._asked_size = self._came = self._came_size = 0
        self._taken, self._taken_size = -held[0], -held[1]
        self._raise(self._taken, self._taken_size)
        self._before, self._before_size = self._asked, self._asked_size
        return self._asked, self._asked_size

    def allows(self, items: int) -> bool:
        """True if so many more values were asked for; the last may overdraw the bytes."""
        return self._came + items <= self._asked and self._came_size < self._asked_size

    def arrive(self, items: int, size: int) -> None:
        """Values have come."""
        self._came += items
        self._came_size += size

    def consume(self, items: int, size: int) -> bool:
        """The application has taken what these were; whether there may be something to ask for."""
        self._taken += items
        self._taken_size += size
        return self._taken >= self._due or self._taken_size >= self._due_size or self._taken >= self._came

    def ask(self, parts: tuple[int, int] = (0, 0)) -> tuple[int, int] | None:
        """The totals to ask for now, or None while half the window is left.

        ``parts`` are the received parts of an epoch that is not whole, and that cannot be taken yet.
        """
        taken, size = self._taken + parts[0], self._taken_size + parts[1]
        grows = self._fixed is None and self._is_dry(taken)
        if grows:
            self.size = min(2 * min(self.size, self._budget.share), MOST)
        elif taken < self._due and size < self._due_size:
            return None
        before = self._asked, self._asked_size
        self._raise(taken, size)
        if (self._asked, self._asked_size) == before:
            return None
        self._before, self._before_size = before
        return self._asked, self._asked_size

    def _is_dry(self, taken: int) -> bool:
        """True if all received values are taken, and the sender had used up all credit that it knew of."""
        return self._came <= taken and (self._came >= self._before or self._came_size >= self._before_size)

    def _raise(self, taken: int, taken_size: int) -> None:
        """Asks for a whole window beyond what is taken, and sets when to ask again."""
        items, size = self.limits
        self._asked = max(1 if items else 0, self._asked, taken + items)
        self._asked_size = max(1, self._asked_size, taken_size + size)
        self._due = self._asked - items // 2
        self._due_size = self._asked_size - size // 2
