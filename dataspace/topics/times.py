"""Times: which epoch comes before which?

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

from collections.abc import Iterable
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
