"""Departures: owners whose claims are to be retracted, all of one moment in one turn.

When a switch fails or a program is killed, a thousand sessions end at once.  An epoch for each, and a write
to each observer for each epoch, costs several times what the retractions cost.  So ``soon`` only notes an
owner, and ``due`` retracts all noted owners, in as few turns as possible.  Where those are so many that
others would wait, they go one turn after another in the lane.

Always: noted owners are retracted in order, and before any turn that is committed later, unless they have
more facts than one turn; an owner that is written to again has lost its earlier facts; owners that were noted
together end together; the claims that end together are bounded, unless one such group alone has more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Final

import trio

from server.lane import Lane

MOST: Final = 4_096
"""Claims that one turn retracts, unless owners that were noted together have more: others would wait."""


class Departures:
    """The owners that have ended and still claim facts.

    ``end`` retracts together all claims of some owners, and raises nothing; ``count`` returns the number of
    claims of an owner.
    """

    __slots__ = ("_arrived", "_count", "_end", "_owners", "_size", "noted")

    def __init__(self, end: Callable[[Sequence[str]], None], count: Callable[[str], int]) -> None:
        self._end = end
        self._count = count
        self._arrived = trio.Event()
        self._owners: set[str] = set()
        self._size = 0
        self.noted: deque[Sequence[str]] = deque()
        """Groups of owners that wait for their end; read by every turn."""

    def soon(self, owners: Sequence[str]) -> None:
        """Notes that these owners end, together; O(owners)."""
        self.noted.append(owners)
        self._owners.update(owners)
        self._size += sum(map(self._count, owners))

    def due(self) -> None:
        """Ends all owners that were noted, in that order, unless they claim more than one turn retracts; then
        ``run`` does."""
        if self._size <= MOST or len(self.noted) == 1:
            self.now()
        else:
            self._arrived.set()

    def due_before(self, owner: str) -> None:
        """Does ``due`` before a turn of an owner, which ends at once if it was noted."""
        if owner in self._owners:
            self._owners.discard(owner)
            self._end([owner])
        if self.noted:
            self.due()

    def now(self) -> None:
        """Ends all owners that were noted, in that order; O(their claims)."""
        while self.noted:
            self.some()

    def some(self) -> None:
        """Ends the first of the owners that were noted, as many as one turn retracts."""
        together: list[str] = []
        size = 0
        while self.noted:
            owners = [each for each in self.noted[0] if each in self._owners]
            more = sum(map(self._count, owners))
            if together and size + more > MOST:
                break
            self.noted.popleft()
            self._owners.difference_update(owners)
            together += owners
            size += more
        if not self.noted:
            self._size = 0
        if together:
            self._end(together)

    async def in_turns(self, lane: Lane, asker: Hashable) -> None:
        """Ends all owners that were noted: at once if they are few, else one turn in each slice."""
        if self.noted:
            self.due()
        while self.noted:
            async with lane.work(asker) as work:
                self.some()
                await work.finish()

    async def run(self, lane: Lane, asker: Hashable, flush: Callable[[], None]) -> None:
        """Ends in the lane the owners that were too many for ``due``, until cancelled."""
        while True:
            await self._arrived.wait()
            self._arrived = trio.Event()
            await self.in_turns(lane, asker)
            flush()
