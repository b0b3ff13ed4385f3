"""Antichains: sets of times in which no time comes before another.

``Antichain`` keeps the *minimal* elements of the inserted times, and so stands for all times at or after one
of them: a *lower frontier*.  ``Maxima`` is its mirror image, which keeps the maximal elements and stands for
all times at or before one of them: an *upper frontier*.

Always: no element of either is less than or equal to another.  In a total order there is one at most.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator

from dataspace.topics.times import Time, join, less_equal


class _Incomparable:
    """The common part of both: elements in which none comes before another."""

    __slots__ = ("_elements",)

    def __init__(self, times: Iterable[Time] = ()) -> None:
        self._elements: list[Time] = []
        for each in times:
            self.insert(each)

    @abstractmethod
    def insert(self, time: Time) -> bool:
        """Adds a time unless an element makes it superfluous; drops the elements that it makes
        superfluous."""

    def __iter__(self) -> Iterator[Time]:
        return iter(sorted(self._elements))

    def __len__(self) -> int:
        return len(self._elements)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and set(self._elements) == set(other._elements)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self)})"


class Antichain(_Incomparable):
    """Minimal times: later items lie at or after one of them.

    >>> lower = Antichain([(2, 1), (1, 2), (3, 3)])
    >>> lower, lower.less_equal((2, 2)), lower.less_equal((1, 1))
    (Antichain([(1, 2), (2, 1)]), True, False)
    """

    __slots__ = ()

    def insert(self, time: Time) -> bool:
        """Adds a time unless one at or before it is there; drops those after it.  O(elements)."""
        if self.less_equal(time):
            return False
        self._elements = [each for each in self._elements if not less_equal(time, each)]
        self._elements.append(time)
        return True

    def less_equal(self, time: Time) -> bool:
        """True if some element is at or before this time; never if empty, since nothing more will come."""
        return any(less_equal(each, time) for each in self._elements)

    def dominates(self, other: Iterable[Time]) -> bool:
        """True if each of these times is at or after some element."""
        return all(self.less_equal(each) for each in other)

    def __contains__(self, time: Time) -> bool:
        return time in self._elements


class Maxima(_Incomparable):
    """Maximal times: seen items lie at or before one of them.

    >>> upper = Maxima([(2, 1), (1, 2), (1, 1)])
    >>> upper, upper.covers((1, 1)), upper.covers((2, 2))
    (Maxima([(1, 2), (2, 1)]), True, False)
    >>> upper.grows((2, 2)), upper.grows((0, 3)), upper.coarsen(1), upper
    (False, True, None, Maxima([(2, 2)]))
    """

    __slots__ = ()

    def insert(self, time: Time) -> bool:
        """Adds a time unless one at or after it is there; drops those before it.  O(elements)."""
        if self.covers(time):
            return False
        self._elements = [each for each in self._elements if not less_equal(each, time)]
        self._elements.append(time)
        return True

    def covers(self, time: Time) -> bool:
        """True if this time is at or before some element."""
        return any(less_equal(time, each) for each in self._elements)

    def grows(self, time: Time) -> bool:
        """True if to insert this time would add an element and drop none."""
        return not any(less_equal(time, each) or less_equal(each, time) for each in self._elements)

    def coarsen(self, most: int) -> None:
        """Joins elements until there are ``most``: it then covers the same times, and times between them."""
        while len(self._elements) > most:
            first, second, *rest = self
            self._elements = rest
            self.insert(join(first, second))

    def keep(self, times: Iterable[Time]) -> None:
        """Leaves only these elements of it."""
        kept = set(times)
        self._elements = [each for each in self._elements if each in kept]
