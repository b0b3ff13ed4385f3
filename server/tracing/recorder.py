"""The recorder: which turns are traced, and when they are over.

A turn with a parent is traced if its parent is recorded; of the others a share is, by chance.  It is over
when its answer was written to the socket, and every observer that keeps up was sent its epoch.

Always: no more than ``MOST`` turns are begun in a second, whatever clients state as parents, and none while
as many spans wait for the collector as may; a turn is written once, at the latest ``LONGEST`` after its end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import random
from time import time_ns
from typing import TYPE_CHECKING, Final, Protocol

import trio

from server.tracing.traces import Trace, Turner

if TYPE_CHECKING:
    from dataspace.wire.traceparents import Parent

MOST: Final = 500
"""Turns that are traced in a second."""

LONGEST: Final = 10.0
"""Seconds for which observers are followed, and an answer that a peer does not read."""

LOOKED_AT: Final = 64
"""Turns at which one flush looks whether their observers were sent their epochs; and as many whose peers do
not read, whether they do again."""

SPANS: Final = 4
"""Spans that a turn has at most."""


class Outlet(Protocol):
    """What makes spans, and sends them."""

    @property
    def is_full(self) -> bool:
        """True while as many spans wait as may."""

    def write(self, trace: Trace) -> None:
        """Makes the spans of a turn that is over."""


class Recorder:
    """The turns that are traced now."""

    def __init__(self, outlet: Outlet, ratio: float, *, chance: Callable[[], float] = random) -> None:
        self.ratio: Final = ratio
        self.chance: Final = chance
        self.left_out = 0
        """Turns that were to be traced, and were too many."""
        self._outlet: Final = outlet
        self._begun = 0
        self._leaving: list[Trace] = []
        """Turns whose answers are ready, and not known to be written."""
        self._blocked: deque[Trace] = deque()
        """Turns whose answers wait for a peer that does not read."""
        self._delivering: deque[Trace] = deque()
        """Turns that have observers which have yet to be sent the epoch."""

    # -- turns ----------------------------------------------------------------------------------------

    def wants(self, parent: Parent | None) -> bool:
        """True if a turn with this parent is to be traced."""
        return parent.sampled if parent is not None else self.chance() < self.ratio

    def begin(
        self, kind: str, peer: Turner, actions: int, parent: Parent | None, arrived: int
    ) -> Trace | None:
        """Returns a turn that is traced from now on; None where that would be too many."""
        if self._begun >= MOST or self._outlet.is_full:
            self.left_out += 1
            return None
        self._begun += 1
        return Trace(kind, peer, actions, parent, arrived)

    def refused(self, trace: Trace, code: str) -> None:
        """Notes that a turn has changed nothing, and why; an empty code is that it was carried out before."""
        trace.code = code
        trace.ended = time_ns()
        self._outlet.write(trace)

    def follow(self, trace: Trace) -> None:
        """Looks from now on for the observers of a turn that was committed."""
        if not trace.delivered:
            self._delivering.append(trace)

    def answered(self, trace: Trace) -> None:
        """Notes that the answer of a turn is ready: it ends when that was written."""
        trace.accepted = True
        self._leaving.append(trace)

    def flushed(self) -> None:
        """Looks at what was just written; O(turns whose answers were ready and could be sent)."""
        if not self._leaving and not self._delivering and not self._blocked:
            return
        now = time_ns()
        for _ in range(min(LOOKED_AT, len(self._delivering))):
            trace = self._delivering.popleft()
            if not trace.look(now):
                self._delivering.append(trace)
            elif trace.ended:
                self._outlet.write(trace)
        leaving, self._leaving = self._leaving, []
        leaving += [self._blocked.popleft() for _ in range(min(LOOKED_AT, len(self._blocked)))]
        for trace in leaving:
            self._look(trace, now)

    def _look(self, trace: Trace, now: int) -> None:
        """Ends a turn whose answer was written."""
        if trace.peer.sending.is_blocked():
            self._blocked.append(trace)
        elif trace.peer.sending.is_touched:
            self._leaving.append(trace)
        else:
            trace.ended = now
            if trace.delivered:
                self._outlet.write(trace)

    # -- life -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Ends in time what does not end by itself, until cancelled."""
        while True:
            await trio.sleep(1.0)
            self._begun = 0
            self.flushed()
            self.give_up(time_ns() - round(LONGEST * 1e9))

    def end(self) -> None:
        """Writes all turns as they are: the daemon ends."""
        self.flushed()
        self.give_up(1 << 63)

    def give_up(self, before: int) -> None:
        """Writes as they are the turns that arrived before a time."""
        left = [each for each in self._delivering if each.arrived < before]
        self._delivering = deque([each for each in self._delivering if each.arrived >= before])
        for trace in left:
            trace.give_up()
        stale = [each for each in [*self._leaving, *self._blocked] if each.arrived < before]
        self._leaving = [each for each in self._leaving if each.arrived >= before]
        self._blocked = deque([each for each in self._blocked if each.arrived >= before])
        for trace in [*stale, *[each for each in left if each.ended]]:
            self._outlet.write(trace)
