"""Deadlines: owners whose time runs out unless it is renewed.

A suspended session and a lease that is not renewed both end at a certain time, and both are renewed far more
often than they end.  So a renewal writes one number, and the heap is corrected only when the earlier time
has come.

Always: ``expired`` is called with each owner once that was not renewed or forgotten, not before its time;
one entry of the heap for each owner that is known.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence

import trio


class Deadlines:
    """Owners by the time at which they end; ``run`` calls ``expired`` with the owners that are due
    together."""

    __slots__ = ("_changed", "_deadlines", "_expired", "_heap", "_queued")

    def __init__(self, expired: Callable[[Sequence[str]], None]) -> None:
        self._expired = expired
        self._deadlines: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        self._queued: set[str] = set()
        self._changed = trio.Event()

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, owner: str) -> bool:
        return owner in self._deadlines

    def renew(self, owner: str, deadline: float) -> None:
        """Sets the deadline of an owner, in trio's time; O(1) for a known one, else O(log owners)."""
        self._deadlines[owner] = deadline
        if owner not in self._queued:
            self._queued.add(owner)
            heapq.heappush(self._heap, (deadline, owner))
            self._changed.set()

    def forget(self, owner: str) -> None:
        """Removes the deadline of an owner."""
        self._deadlines.pop(owner, None)

    async def run(self) -> None:
        """Ends owners in time, until cancelled."""
        while True:
            self._changed = trio.Event()
            with trio.move_on_at(self._heap[0][0] if self._heap else math.inf):
                await self._changed.wait()
            self._end_those_due(trio.current_time())

    def _end_those_due(self, now: float) -> None:
        due: list[str] = []
        while self._heap and self._heap[0][0] <= now:
            _, owner = heapq.heappop(self._heap)
            deadline = self._deadlines.get(owner)
            if deadline is not None and deadline > now:
                heapq.heappush(self._heap, (deadline, owner))
                continue
            self._queued.discard(owner)
            if deadline is not None:
                del self._deadlines[owner]
                due.append(owner)
        if due:
            self._expired(due)
