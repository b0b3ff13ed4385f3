"""Times: which epoch comes before which, and which times are over?

A time is an integer or a tuple of integers; tuples are compared in every coordinate at once (the *product
order*), so that neither ``(1, 2)`` nor ``(2, 1)`` comes before the other.  The order is the only thing that
the rest of this package knows about times.

Always: the times of one topic have one ``Order``, which ``check`` enforces at the border, so that the
comparisons here need not.

>>> less_equal((1, 1), (1, 2)), less_equal((1, 2), (2, 1))
(True, False)
>>> join((1, 2), (2, 1)), meet((1, 2), (2, 1))
((2, 2), (1, 1))
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import le
from typing import Final, TypeAlias

from dataspace.errors import UsageError
from index.values.values import Value

Time: TypeAlias = int | tuple[int, ...]

MAX_DIMENSIONS: Final = 8
END: Final = 1 << 63
"""Coordinates are below this."""


def less_equal(a: Time, b: Time) -> bool:
    """True if ``a`` is ``b`` or comes before it; O(coordinates)."""
    if isinstance(a, tuple):
        assert isinstance(b, tuple)  # one order for a topic
        return all(map(le, a, b))
    assert isinstance(b, int)  # as above
    return a <= b


def less(a: Time, b: Time) -> bool:
    """True if ``a`` comes before ``b``."""
    return a != b and less_equal(a, b)


def join(a: Time, b: Time) -> Time:
    """Returns the least time that neither ``a`` nor ``b`` comes after."""
    if isinstance(a, tuple):
        assert isinstance(b, tuple)  # one order for a topic
        return tuple(map(max, a, b))
    assert isinstance(b, int)  # as above
    return max(a, b)


def meet(a: Time, b: Time) -> Time:
    """Returns the greatest time that comes after neither ``a`` nor ``b``."""
    if isinstance(a, tuple):
        assert isinstance(b, tuple)  # one order for a topic
        return tuple(map(min, a, b))
    assert isinstance(b, int)  # as above
    return min(a, b)


@dataclass(frozen=True, slots=True)
class Order:
    """The order of a topic's times: integers (0 dimensions) or tuples of so many integers.

    >>> Order(2).bottom, Order(0).after([3, 7])
    ((0, 0), 8)
    """

    dimensions: int = 0

    def __post_init__(self) -> None:
        if self.dimensions.__class__ is not int or not 0 <= self.dimensions <= MAX_DIMENSIONS:
            raise UsageError(f"dimensions must be from 0 to {MAX_DIMENSIONS}, got {self.dimensions!r:.60}")

    @property
    def bottom(self) -> Time:
        """Returns the time that comes before all others."""
        return (0,) * self.dimensions if self.dimensions else 0

    def check(self, value: Value) -> Time:
        """Returns the value as a time of this order; ``UsageError`` if it is none."""
        if self.dimensions == 0:
            if _is_coordinate(value):
                return value  # type: ignore[return-value]  # just checked
        elif value.__class__ is tuple and len(value) == self.dimensions and all(map(_is_coordinate, value)):
            return value  # type: ignore[return-value]  # just checked
        raise UsageError(f"a time of this topic is {self}, got {value!r:.60}")

    def after(self, times: Iterable[Time]) -> Time:
        """Returns a time that comes after all of these, or ``bottom`` if there are none."""
        some = list(times)
        return _next(reduce(join, some)) if some else self.bottom

    def __str__(self) -> str:
        if self.dimensions == 0:
            return "an integer from 0 to 2^63-1"
        return f"a tuple of {self.dimensions} integers from 0 to 2^63-1"


def _is_coordinate(value: Value) -> bool:
    return value.__class__ is int and 0 <= value < END


def _next(time: Time) -> Time:
    return tuple(each + 1 for each in time) if isinstance(time, tuple) else time + 1


# -- antichains ------------------------------------------------------------------------------------
#
# ``Antichain`` keeps the *minimal* elements of the inserted times, and so stands for all times at or after
# one of them: a *lower frontier*. ``Maxima`` is its mirror image, which keeps the maximal elements and stands
# for all times at or before one of them: an *upper frontier*. No element of either is less than or equal to
# another. In a total order there is one at most.


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

    def retain(self, times: Iterable[Time]) -> None:
        """Leaves only these elements of it."""
        kept = set(times)
        self._elements = [each for each in self._elements if each in kept]


# -- Counted times ---------------------------------------------------------------------------------
# Several holders may hold the same time, and a time is over only when the last has released it. So
# progress is reported as *changes*, each a time and a change of its count; a ``ChangeBatch`` adds
# them up, and a ``MutableAntichain`` keeps the minimal times whose count is above zero and returns
# the *visible* changes; others need no more.
#
# Always: changes that sum to zero leave no trace; the frontier has the minimal times with positive
# counts.


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
