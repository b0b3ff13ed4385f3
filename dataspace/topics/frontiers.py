"""Counted times: change batches, and the frontier that follows from them.

Several holders may hold the same time, and a time is over only when the last has released it.  So progress is
reported as *changes*, each a time and a change of its count; a ``ChangeBatch`` adds them up, and a
``MutableAntichain`` keeps the minimal times whose count is above zero and returns the *visible* changes;
others need no more.

Always: changes that sum to zero leave no trace; the frontier has the minimal times with positive counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from dataspace.topics.times import Antichain, Time

Change: TypeAlias = tuple[Time, int]


class ChangeBatch:
    """Sums of changes by time.

    >>> batch = ChangeBatch([(3, +1), (4, +2), (3, -1)])
    >>> list(batch)
    [(4, 2)]
    """

    __slots__ = ("_counts",)

    def __init__(self, changes: Iterable[Change] = ()) -> None:
        self._counts: dict[Time, int] = {}
        self.extend(changes)

    def update(self, time: Time, by: int) -> int:
        """Moves one count and returns the new one; O(1)."""
        count = self._counts.get(time, 0) + by
        if count:
            self._counts[time] = count
        else:
            self._counts.pop(time, None)
        return count

    def extend(self, changes: Iterable[Change]) -> None:
        """Moves many counts."""
        for time, by in changes:
            self.update(time, by)

    def count(self, time: Time) -> int:
        """Returns the sum for one time."""
        return self._counts.get(time, 0)

    def copy(self) -> ChangeBatch:
        """Returns another batch with the same sums."""
        return ChangeBatch(self._counts.items())

    def __iter__(self) -> Iterator[Change]:
        """Yields times and their sums, none zero, in the order of times."""
        return iter(sorted(self._counts.items()))

    def __len__(self) -> int:
        return len(self._counts)

    def __repr__(self) -> str:
        return f"ChangeBatch({list(self)})"


class MutableAntichain:
    """The minimal elements of a multiset of times.

    >>> held = MutableAntichain([1])
    >>> held.change([(1, -1), (2, +7)])
    [(1, -1), (2, 1)]
    >>> held.change([(2, -3), (5, +1)])
    []
    """

    __slots__ = ("_counts", "_frontier")

    def __init__(self, times: Iterable[Time] = ()) -> None:
        self._counts = ChangeBatch()
        self._frontier = Antichain()
        self.change([(each, +1) for each in times])

    @property
    def frontier(self) -> Antichain:
        """Returns the minimal elements; the caller must not change them."""
        return self._frontier

    def change(self, changes: Iterable[Change]) -> list[Change]:
        """Moves counts; returns how the frontier changed, each ±1.

        Costs O(changes × frontier), and O(times × frontier) where a count on the frontier went away.
        Counts below zero are allowed, since changes of several holders may overtake each other.
        """
        before = self._frontier
        dirty = False
        for time, by in changes:
            count = self._counts.update(time, by)
            # a new time matters if it is not after the frontier, an old one if it was on it
            dirty = dirty or (time in before if count <= 0 else not before.less_equal(time))
        if not dirty:
            return []
        self._frontier = Antichain(time for time, count in self._counts if count > 0)
        return [(each, -1) for each in before if each not in self._frontier] + [
            (each, +1) for each in self._frontier if each not in before
        ]

    def grown_by(self, changes: Iterable[Change]) -> int:
        """Returns by how many times more would be held after these changes; O(those)."""
        before = self._counts.count
        return sum((before(at) + by > 0) - (before(at) > 0) for at, by in ChangeBatch(changes))

    def __len__(self) -> int:
        """Returns the number of times with a count."""
        return len(self._counts)

    def __iter__(self) -> Iterator[Change]:
        """Yields times and their counts."""
        return iter(self._counts)

    def __repr__(self) -> str:
        return f"MutableAntichain({list(self._counts)}, frontier={list(self._frontier)})"
