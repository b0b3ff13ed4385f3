"""A history: the batches of a topic that are kept for later subscribers.

The source's publishers keep nothing.  With a budget of bytes, a topic keeps its latest batches, so that a
subscriber can ask for all epochs *as of* some times, or take up a broken subscription where it was.  What
is beyond the budget is forgotten from the oldest, and a time that was is remembered as such: no
subscriber begins at or before it, because it would see that epoch by half.

Always: the batches at a time are all kept, or the time is covered by ``forgotten``; no more than the budget
is kept, counting ``OVERHEAD`` bytes for each batch beside its size.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from dataspace.errors import Refused, UsageError
from dataspace.topics.antichains import Antichain, Maxima
from dataspace.topics.frontiers import Change
from dataspace.topics.messages import Batch, Message, Progress, Snapshot
from dataspace.topics.times import Time
from relay.topics.publisher import Publisher

OVERHEAD: Final = 128
"""Bytes that a batch costs beside its items."""


class History:
    """Keeps the latest batches of all partitions, within a budget of bytes; with 0, none."""

    __slots__ = ("_batches", "_forgotten", "_size", "budget")

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self._batches: deque[tuple[int, Batch]] = deque()
        self._forgotten = Maxima()
        self._size = 0

    @property
    def size(self) -> int:
        """Returns how many bytes are kept."""
        return self._size

    @property
    def forgotten(self) -> Maxima:
        """Returns the maximal times of which something was deleted here."""
        return self._forgotten

    def add(self, partition: int, time: Time, items: object, size: int) -> None:
        """Keeps a batch, and deletes the oldest beyond the budget.

        O(1) on average, since an eighth is deleted at once.
        """
        if self._forgotten.covers(time):
            return
        cost = size + OVERHEAD
        if not self.budget:
            self._forgotten.insert(time)
            return
        self._batches.append((cost, Batch(partition, time, items)))
        self._size += cost
        if self._size > self.budget:
            self._forget()

    def _forget(self) -> None:
        """Deletes the oldest eighth, each time with all before it: no subscriber may see half an epoch."""
        freed = 0
        for cost, batch in self._batches:
            self._forgotten.insert(batch.time)
            freed += cost
            if self._size - freed <= self.budget - self.budget // 8:
                break
        kept = [each for each in self._batches if not self._forgotten.covers(each[1].time)]
        self._batches = deque(kept)
        self._size = sum(cost for cost, _ in kept)

    def check(self, times: Sequence[Time], publishers: Sequence[Publisher]) -> None:
        """Raises ``Refused`` unless everything at or after these times is here or still to come."""
        if not times:
            raise UsageError("as of no time at all")
        for time in times:
            if self._forgotten.covers(time):
                gone = f"time {time} is gone: times to {list(self._forgotten)} are not retained"
                raise Refused("epoch-gone", gone)
        since = Antichain(times)
        for each in publishers:
            if not since.dominates(each.lower):
                ahead = f"{list(since)} is yet to come: the frontier is {list(each.lower)}"
                raise Refused("epoch-ahead", ahead)

    def replay(self, publisher: Publisher, times: Sequence[Time]) -> Iterator[Message]:
        """Yields a snapshot as of these times, the batches since, and progress to the present; O(batches)."""
        since = Antichain(times)
        yield Snapshot(publisher.partition, tuple(since), ())
        for _, batch in self._batches:
            if batch.partition == publisher.partition and since.less_equal(batch.time):
                yield batch
        present = publisher.lower
        changes: list[Change] = [(each, -1) for each in since if each not in present]
        changes += [(each, +1) for each in present if each not in since]
        yield Progress(publisher.partition, tuple(changes))
