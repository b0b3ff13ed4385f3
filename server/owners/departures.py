"""Departures: owners whose claims are to be retracted, those of one moment in one turn.

When a switch fails or a program is killed, a thousand sessions end at once.  An epoch for each, and a write
to each observer for each epoch, costs several times what the retractions cost.  So ``soon`` only notes an
owner, and ``now`` retracts all that were noted, in as few turns as possible.

Always: what was noted is retracted before any turn that is committed later, so that the order is as if each
owner had ended at once; owners that were noted together end together; the claims that end together are
bounded, unless one such group alone has more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

MOST: Final = 4_096
"""Claims that one turn retracts, unless owners that were noted together have more: others would wait."""


class Departures:
    """The owners that have ended and still claim facts.

    ``end`` retracts together all that some owners claim, and raises nothing; ``count`` returns the number of
    claims of an owner.
    """

    __slots__ = ("_count", "_end", "noted")

    def __init__(self, end: Callable[[Sequence[str]], None], count: Callable[[str], int]) -> None:
        self._end = end
        self._count = count
        self.noted: list[Sequence[str]] = []
        """Groups of owners that wait for their end; read by every turn."""

    def soon(self, owners: Sequence[str]) -> None:
        """Notes that these owners end, together; O(1)."""
        self.noted.append(owners)

    def now(self) -> None:
        """Ends all owners that were noted, in that order; O(their claims)."""
        noted, self.noted = self.noted, []
        together: list[str] = []
        size = 0
        for owners in noted:
            more = sum(map(self._count, owners))
            if together and size + more > MOST:
                self._end(together)
                together, size = [], 0
            together += owners
            size += more
        if together:
            self._end(together)
