"""Pauses between attempts that fail, such as restarts of a process: each is twice as long as the one before.

Not for clients that would all come back at once: their pauses need jitter (``client/session/uplink.py``).
"""

from __future__ import annotations

import math


class Pauses:
    """Pauses that double, up to the longest one.

    >>> pauses = Pauses(first=1.0, longest=5.0, forget_after=60.0)
    >>> [pauses.next() for _ in range(4)]
    [1.0, 2.0, 4.0, 5.0]
    >>> pauses.next(lasted=61.0)
    1.0
    """

    __slots__ = ("_first", "_forget_after", "_longest", "_next")

    def __init__(self, first: float, longest: float, forget_after: float = math.inf) -> None:
        """All are in seconds; an attempt that went well for more than ``forget_after`` begins them anew."""
        self._first = self._next = first
        self._longest = longest
        self._forget_after = forget_after

    def next(self, lasted: float = 0.0) -> float:
        """Returns how long to wait now; the attempt since the last pause went well for ``lasted`` seconds."""
        if lasted > self._forget_after:
            self.forget()
        pause, self._next = self._next, min(2 * self._next, self._longest)
        return pause

    def forget(self) -> None:
        """Begins with the first pause again."""
        self._next = self._first
