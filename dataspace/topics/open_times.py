"""Open times: times at which something was sent, until the frontier has passed them.

Many may be open while the frontier moves in small steps, so a step must not look at all of them.  Whatever
is at or after an element of the frontier is no less than its least one in the plain order of integers and
tuples either; so times that are kept in that order are passed from the front.

Always: after ``passed`` each time is at or after an element of the frontier that was given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush

from dataspace.topics.times import Time, less_equal


class OpenTimes:
    """A set of times that a frontier passes.

    >>> times = OpenTimes([5, 3, 4])
    >>> times.passed([5]), list(times), times.passed([])
    ([3, 4], [5], [5])
    """

    __slots__ = ("_times", "_waiting")

    def __init__(self, times: Iterable[Time] = ()) -> None:
        self._times = set(times)
        self._waiting = list(self._times)
        heapify(self._waiting)

    def __contains__(self, time: Time) -> bool:
        return time in self._times

    def __len__(self) -> int:
        return len(self._times)

    def __iter__(self) -> Iterator[Time]:
        return iter(self._times)

    def add(self, time: Time) -> None:
        """Adds a time, if it is not there; O(log times)."""
        if time not in self._times:
            self._times.add(time)
            heappush(self._waiting, time)

    def passed(self, frontier: Iterable[Time]) -> list[Time]:
        """Removes and returns, in order, the times that are at or after no element of a frontier.

        O(those × log times) for integers; for tuples O(times × frontier), since each may be one of them.
        """
        gone: list[Time] = []
        waiting, elements = self._waiting, tuple(frontier)
        least = min(elements, default=None)
        while waiting and (least is None or waiting[0] < least):  # type: ignore[operator]  # one order
            gone.append(heappop(waiting))
        if waiting and isinstance(least, tuple):
            kept = [time for time in waiting if any(less_equal(each, time) for each in elements)]
            if len(kept) < len(waiting):
                gone = sorted({*gone, *waiting} - set(kept))
                heapify(kept)
                self._waiting = kept
        self._times.difference_update(gone)
        return gone
