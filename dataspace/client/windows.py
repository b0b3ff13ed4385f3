"""Windows: how much may each stream be sent before the application has taken what came?

There is no credit for a connection as a whole, which is where others stall: a stream that nobody reads would
use it up.  Instead the receiver divides a budget of memory among its streams, and each gets a window of its
own.  A window begins small and grows as long as it *runs dry*, that is, as the application has taken all that
came and waits, although the sender had used up its credit; it shrinks when more streams want a share.

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


class Budget:
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


class Window:
    """The credit of one stream; ``items`` fixes how many values it is, instead of letting it grow."""

    __slots__ = ("_asked", "_before", "_budget", "_came", "_fixed", "_taken", "size")

    def __init__(self, budget: Budget, items: int | None = None) -> None:
        self._budget = budget
        self._fixed = items
        self.size = START if items is None else MOST
        """What the window would be in bytes if it had not to share."""
        self._asked = self._before = self._came = self._taken = (0, 0)

    @property
    def limits(self) -> tuple[int, int]:
        """How many items and bytes the window is now."""
        size = min(self.size, self._budget.share)
        return (max(1, size // ITEM) if self._fixed is None else self._fixed, size)

    def open(self, held: tuple[int, int] = (0, 0)) -> tuple[int, int]:
        """The first credit of a new stream; what is ``held`` of the one before counts against it."""
        self._asked = self._came = (0, 0)
        self._taken = (-held[0], -held[1])
        self._asked = self._before = self._totals((0, 0))
        return self._asked

    def arrive(self, items: int, size: int) -> None:
        """Values have come."""
        self._came = (self._came[0] + items, self._came[1] + size)

    def take(self, items: int, size: int) -> None:
        """The application has taken what these were."""
        self._taken = (self._taken[0] + items, self._taken[1] + size)

    def ask(self, parts: tuple[int, int] = (0, 0)) -> tuple[int, int] | None:
        """The totals to ask for now, or None while half the window is left.

        ``parts`` is what has come of an epoch that is not whole, and that nobody can take.
        """
        taken = (self._taken[0] + parts[0], self._taken[1] + parts[1])
        if self._fixed is None and self._is_dry(taken):
            self.size = min(2 * min(self.size, self._budget.share), MOST)
        items, size = self.limits
        if 2 * (self._asked[0] - taken[0]) > items and 2 * (self._asked[1] - taken[1]) > size:
            return None
        totals = self._totals(parts)
        if totals == self._asked:
            return None
        self._before, self._asked = self._asked, totals
        return totals

    def _is_dry(self, taken: tuple[int, int]) -> bool:
        """Whether all that came is taken, and the sender had used up all that it knew to be asked for."""
        came, before = self._came, self._before
        return came[0] <= taken[0] and (came[0] >= before[0] or came[1] >= before[1])

    def _totals(self, parts: tuple[int, int]) -> tuple[int, int]:
        items, size = self.limits
        return (
            max(1, self._asked[0], self._taken[0] + parts[0] + items),
            max(1, self._asked[1], self._taken[1] + parts[1] + size),
        )
