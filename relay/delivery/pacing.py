"""Pacing: when is it the turn of each observer that wants changes only now and then?

Every stream with a pace has one turn in each interval of so many seconds, and all streams of one pace have it
in the same moment.  So streams at one place of a queue take one difference, which is computed and packed
once, and one timer serves all: ``run`` sleeps until the next moment at which anything waits.

A stream that has taken something waits for the next such moment that is at least three quarters of its pace
away.  So the first change after a rest leaves at once, and a moment that came late does not cost the next.

Always: an observer is in at most one bucket, until its moment comes or it leaves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

import trio

LEAST_PART: Final = 0.75
"""The part of a pace that is at least between two turns of one observer."""

SLICE: Final = 16
"""Streams that are written in one step where many have their turn, in about half a millisecond."""


class Pacing:
    """The observers that wait for their turn; ``clock`` returns seconds."""

    __slots__ = ("_due", "_heap", "_waiting", "clock")

    def __init__(self, clock: Callable[[], float] = trio.current_time) -> None:
        self.clock: Final = clock
        self._waiting: dict[float, dict[Callable[[], None], None]] = {}
        self._heap: list[float] = []
        self._due: trio.Event | None = None

    def __len__(self) -> int:
        """Returns the number of observers that wait."""
        return sum(map(len, self._waiting.values()))

    def after(self, pace: float) -> float:
        """Returns the time of the next turn of an observer that takes something now.

        >>> now = [10]
        >>> pacing = Pacing(lambda: now[0])
        >>> pacing.after(1)
        11
        >>> now[0] = 10.25  # the next moment is three quarters away
        >>> pacing.after(1)
        11
        >>> now[0] = 10.5
        >>> pacing.after(1)
        12
        """
        return math.ceil(self.clock() / pace + LEAST_PART) * pace

    def wait(self, call: Callable[[], None], due: float) -> None:
        """Calls a function of an observer at a time, unless it is forgotten until then."""
        bucket = self._waiting.get(due)
        if bucket is None:
            bucket = self._waiting[due] = {}
            heappush(self._heap, due)
            if self._due is not None and self._heap[0] == due:
                self._due.set()
        bucket[call] = None

    def forget(self, call: Callable[[], None], due: float) -> None:
        """Calls it no more; does nothing if it does not wait."""
        bucket = self._waiting.get(due)
        if bucket is not None:
            bucket.pop(call, None)

    @property
    def next(self) -> float:
        """Returns the time at which something is to be done; infinite if nothing is."""
        return self._heap[0] if self._heap else math.inf

    def step(self) -> bool:
        """Calls one observer whose turn has come; False if there is none."""
        while self._heap and self._heap[0] <= self.clock():
            bucket = self._waiting[self._heap[0]]
            if bucket:
                call = next(iter(bucket))
                del bucket[call]
                call()
                return True
            del self._waiting[heappop(self._heap)]
        return False

    async def run(self, flush: Callable[[], None]) -> None:
        """Calls each observer when its turn has come, and flushes what leaves then; until cancelled.

        A change between two steps delays nothing: later steps take it as well.
        """
        while True:
            self._due = trio.Event()
            with trio.move_on_at(self.next):
                await self._due.wait()
            called = 0
            while self.step():
                called += 1
                if called % SLICE == 0:
                    flush()
                    await trio.lowlevel.checkpoint()
            flush()
