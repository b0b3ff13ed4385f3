"""Timers: what a facet wants done at a time.

They know no clock: they are asked for what is due at a time, and when the next one is.

Always: a timer belongs to a facet and ends with it; one that repeats keeps to its beat.
"""

from __future__ import annotations

import heapq
from itertools import count

from dataspace.actors.engine.events import Call
from dataspace.actors.engine.facets import Facet, FacetResource, Handler


class Timer(FacetResource):
    """One timer; ``period`` is in seconds, None for once."""

    __slots__ = ("at", "closed", "facet", "function", "period", "timers")

    def __init__(
        self, timers: Timers, facet: Facet, at: float, period: float | None, function: Handler
    ) -> None:
        self.timers = timers
        self.facet = facet
        self.at = at
        self.period = period
        self.function = function
        self.closed = False

    def fire(self) -> None:
        """It is due: calls its function in a turn of its own."""
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
        """It will not fire."""
        self.closed = True


class Timers:
    """All timers of an engine, the next one first."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = count()

    def add(self, timer: Timer) -> None:
        """Takes one in; O(log timers)."""
        heapq.heappush(self._heap, (timer.at, next(self._order), timer))

    def due(self, now: float) -> list[Timer]:
        """Takes out what is due, in order of time."""
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
