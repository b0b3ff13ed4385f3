"""Endings: owners that have ended with so many facts that these go a few at a time.

What an owner claims is retracted in one turn when it ends, and a turn cannot be interrupted: a million facts
would be seconds in which nobody else is served.  An owner with more facts than one turn may have got them in
several, so it loses them in several, the oldest first.  Meanwhile it is no owner any more: when another one
of its name comes, what is left goes at once.

Always: an owner that has ended loses all its facts, in the end by the next start of the daemon; one with no
more facts than a turn may have loses them in one epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import trio

from server.lane import Lane

if TYPE_CHECKING:
    from relay.log.writer import GroupCommit

STEP: Final = 1024
"""Facts that go in one epoch, in some 5 to 10 ms."""


class Endings:
    """The owners that have ended and still claim something.

    ``step`` retracts some of what an owner claims, at most so many facts, and returns True if any are left.
    """

    def __init__(
        self,
        lane: Lane,
        commits: GroupCommit,
        *,
        step: Callable[[str, int], bool],
        flush: Callable[[], None],
    ) -> None:
        self._lane = lane
        self._commits = commits
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
                    await self._commits.wait_room()
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
