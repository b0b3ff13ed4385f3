"""Endings: the claims of owners that have ended are retracted, together where they are few, else in steps.

Owners that end in one moment share a turn (``Departures``).  An owner with more claims than one turn may
retract loses them in several turns (``Endings``).

Always: an owner that has ended loses all its facts, in the end by the next start of the daemon; an owner with
no more facts than a turn may have loses them in one epoch.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Final

import trio

from dataspace.kernel.space import Space
from server.lane import Lane

logger = logging.getLogger("dataspace")

MOST: Final = 4_096
"""Claims that one turn retracts, unless owners that were noted together have more: others would wait."""


class Departures:
    """The owners that have ended and still claim facts.

    ``end`` retracts together all claims of some owners, and raises nothing; ``count`` returns the number of
    claims of an owner.

    When a switch fails or a program is killed, a thousand sessions end at once.  An epoch for each, and a
    write to each observer for each epoch, costs several times what the retractions cost.  So ``soon`` only
    notes an owner, and ``due`` retracts all noted owners, in as few turns as possible.  Where those are so
    many that others would wait, they go one turn after another in the lane.

    Always: noted owners are retracted in order, and before any turn that is committed later, unless they have
    more facts than one turn; an owner that is written to again has lost its earlier facts; owners that were
    noted together end together; the claims that end together are bounded, unless one such group alone has
    more.
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


STEP: Final = 1024
"""Facts that go in one epoch, in some 5 to 10 ms."""


class Endings:
    """The owners that have ended and still claim something.

    ``step`` retracts some of what an owner claims, at most so many facts, and returns True if any are left;
    ``wait_room`` waits while the log is far behind.

    A turn cannot be interrupted: to retract a million facts in one would be seconds in which no client is
    served.  An owner with more facts than one turn may have got them in several, so it loses them in several,
    the oldest first.  Meanwhile it is no owner any more: when another one of its name comes, what is left
    goes at once.
    """

    def __init__(
        self,
        lane: Lane,
        wait_room: Callable[[], Awaitable[None]],
        *,
        step: Callable[[str, int], bool],
        flush: Callable[[], None],
    ) -> None:
        self._lane = lane
        self._wait_room = wait_room
        self._step = step
        self._flush = flush
        self.left: Final[dict[str, None]] = {}
        """These owners; read by every turn."""
        self._came = trio.Event()

    def __len__(self) -> int:
        return len(self.left)

    def begin(self, owner: str) -> None:
        """Begins to retract what an owner claims; ``run`` does the rest."""
        if self._step(owner, STEP):
            self.left[owner] = None
            self._came.set()

    def finish(self, owner: str) -> None:
        """Retracts at once what an owner still claims."""
        while owner in self.left:
            self._take_step(owner)

    async def run(self) -> None:
        """Retracts what ended owners claim, in the lane, until cancelled."""
        while True:
            while self.left:
                for owner in list(self.left):
                    await self._wait_room()
                    async with self._lane.work(owner) as work:
                        self.turn(owner)
                        await work.finish()
            self._came = trio.Event()
            await self._came.wait()

    def turn(self, owner: str) -> None:
        """Does what one slice of the lane is for: one epoch."""
        if owner in self.left:
            self._take_step(owner)
            self._flush()

    def _take_step(self, owner: str) -> None:
        if not self._step(owner, STEP):
            self.left.pop(owner, None)


def note_unended(
    owners: Sequence[str], space: Space, end: Callable[[Sequence[str]], None] | None = None
) -> None:
    """Ends owners singly that could not be ended, the second time; without ``end`` only says so.

    Called while the exception is handled.
    """
    if not owners or space.damage is not None:
        return
    if end is not None:
        logger.exception(
            "%d owners, %s first, could not be ended together: this is a defect, please report it",
            len(owners),
            owners[0],
        )
        for owner in owners:
            end([owner])
    else:
        logger.exception(
            "%s could not be ended: this is a defect, please report it; its %d facts in space %s stay "
            "until the daemon is started again",
            owners[0],
            len(space.claims(owners[0])),
            space.name,
        )
