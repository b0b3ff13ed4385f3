"""Timers: functions that are called in a facet at a time.

Timers read no clock: ``due`` returns the timers that are due at a given time, ``next`` the time of the next
one.

Always: a timer belongs to a facet and ends with it; a repeating timer keeps to multiples of its period.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING

from dataspace.actors.engine.actors import Call, Facet, FacetResource

if TYPE_CHECKING:
    from dataspace.actors.engine.ports import Alarm, Handler, TimerQueue


class Timer(FacetResource):
    """One timer; ``period`` is in seconds, None for once."""

    __slots__ = ("at", "closed", "facet", "function", "period", "timers")

    def __init__(
        self, timers: TimerQueue, facet: Facet, at: float, period: float | None, function: Handler
    ) -> None:
        self.timers = timers
        self.facet = facet
        self.at = at
        self.period = period
        self.function = function
        self.closed = False

    def fire(self) -> None:
        """Queues a call of its function, unless it is closed; adds it again if it repeats."""
        if self.closed:
            return
        engine = self.facet.actor.engine
        if self.period is None:
            self.close()
            engine.enqueue(Call(self.facet, "timer", self._last))
        else:
            engine.enqueue(Call(self.facet, "timer", self.function))
            now = engine.clock()
            self.at += self.period * max(1, -(-(now - self.at) // self.period))
            self.timers.add(self)

    def _last(self, turn: object) -> None:
        self.facet.release(self)
        self.function(turn)

    def close(self) -> None:
        """Ends it: it does not fire any more."""
        self.closed = True


class Timers:
    """All timers of an engine, the next one first."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Alarm]] = []
        self._order = count()

    def add(self, timer: Alarm) -> None:
        """Adds a timer; O(log timers)."""
        heapq.heappush(self._heap, (timer.at, next(self._order), timer))

    def due(self, now: float) -> list[Alarm]:
        """Removes the timers that are due and returns them in order of time."""
        due = []
        while self._heap and self._heap[0][0] <= now:
            due.append(heapq.heappop(self._heap)[2])
        return due

    @property
    def next(self) -> float | None:
        """When the next one is due, None if none waits."""
        while self._heap and self._heap[0][2].closed:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None
