"""Aggregates: counts, sums and extremes of what a body gives, under additions and removals.

Each keeps just enough to take one solution more or less: a count, an exact sum, or a sorted container.  Sums
of floats are kept exactly, as integers scaled by the smallest float, so that the order of changes makes no
difference and an added value can be subtracted again.

Always: the value of an aggregate depends on what is in it, not on the order of changes; an empty one has no
value and is not kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Final, Protocol

from sortedcontainers import SortedDict

from dataspace.rules.relations.terms import RuleTerm
from index.errors import UsageError
from index.values.values import Value, order_key

_SCALE: Final = 1 << 1074
"""Every float is a whole multiple of 1 ÷ this."""


class Accumulator(Protocol):
    """One aggregate of one group."""

    def change(self, term: RuleTerm, by: int) -> None:
        """Takes a value in (+1) or out (-1); ``UsageError`` for a value that it cannot take."""

    def value(self) -> Value:
        """Returns its value."""


class Sum:
    """The sum: an integer of integers, else a float, correctly rounded once.  O(1)."""

    __slots__ = ("_count", "_floats", "_odd", "_scaled", "_whole")

    def __init__(self) -> None:
        self._count = 0
        self._whole = 0
        self._floats = 0
        self._scaled = 0
        self._odd = [0, 0, 0]  # of inf, of -inf, of nan

    def change(self, term: RuleTerm, by: int) -> None:
        number = term.value
        if number.__class__ is int:
            self._whole += by * number
        elif isinstance(number, float):
            self._floats += by
            if math.isfinite(number):
                top, bottom = number.as_integer_ratio()
                self._scaled += by * top * (_SCALE // bottom)
            else:
                self._odd[2 if math.isnan(number) else int(number < 0)] += by
        else:
            raise UsageError(f"a sum of numbers, not of {number!r:.60}")
        self._count += by

    def value(self) -> Value:
        return self._whole if not self._floats else self._rounded(self._exact())

    def mean(self) -> float:
        """Returns the mean, correctly rounded."""
        return self._rounded(self._exact() / self._count)

    def _exact(self) -> Fraction:
        return self._whole + Fraction(self._scaled, _SCALE)

    def _rounded(self, exact: Fraction) -> float:
        more, less, none = self._odd
        if none or (more and less):
            return math.nan
        if more or less:
            return math.inf if more else -math.inf
        try:
            return float(exact)
        except OverflowError:
            return math.inf if exact > 0 else -math.inf


class Average(Sum):
    """The mean as a float, correctly rounded.  O(1)."""

    __slots__ = ()

    def value(self) -> Value:
        return self.mean()


class _Sorted:
    """All values in their total order, with how often each is there.  O(log n) for a change."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries = SortedDict()

    def change(self, term: RuleTerm, by: int) -> None:
        at = order_key(term.value)
        entry = self._entries.get(at)
        if entry is None:
            self._entries[at] = [by, term]
            return
        entry[0] += by
        if not entry[0]:
            del self._entries[at]


class Least(_Sorted):
    """The first in the total order."""

    __slots__ = ()

    def value(self) -> Value:
        term: RuleTerm = self._entries.peekitem(0)[1][1]
        return term.value


class Greatest(_Sorted):
    """The last in the total order."""

    __slots__ = ()

    def value(self) -> Value:
        term: RuleTerm = self._entries.peekitem(-1)[1][1]
        return term.value


class Collection(_Sorted):
    """All of them as a sequence in the total order, each as often as it is there.  O(n) to read."""

    __slots__ = ()

    def value(self) -> Value:
        return tuple([term.value for count, term in self._entries.values() for _ in range(count)])


class Best(_Sorted):
    """The ``n`` last in the total order, the last first.  O(n) to read."""

    __slots__ = ("_n",)

    def __init__(self, n: int) -> None:
        super().__init__()
        self._n = n

    def value(self) -> Value:
        best: list[Value] = []
        for count, term in reversed(self._entries.values()):
            best.extend([term.value] * min(count, self._n - len(best)))
            if len(best) == self._n:
                break
        return tuple(best)


COUNT: Final = "count"
"""The number of solutions, which each group has anyway."""

_KINDS: Final[dict[str, Callable[[], Accumulator]]] = {
    "sum": Sum,
    "avg": Average,
    "min": Least,
    "max": Greatest,
    "collect": Collection,
}


def accumulator(name: str, n: int) -> Callable[[], Accumulator]:
    """Returns what makes an empty aggregate of a name, which is not ``COUNT``."""
    return (lambda: Best(n)) if name == "top" else _KINDS[name]
