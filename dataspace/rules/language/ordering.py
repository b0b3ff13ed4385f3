"""Ordering: which of two values comes first, as ``order_key`` has them, and paid for as it is found out.

To make the key of a value takes long if the value is large, also where the first parts of two values differ.
Here parts are compared one by one, and the caller pays for them: a rule that compares large values does that
work, and its budget counts it.

Always: the result has the sign of a comparison of the keys; it is 0 exactly if both values are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from index.errors import UsageError
from index.values.values import DEEPEST, Map, Record, Value, order_key

Pay: TypeAlias = Callable[[int], None]
"""Takes what a calculation is about to cost, in bytes; may raise to stop it."""

PART_BYTES: Final = 16
"""What a part of a value counts for that is looked at, in bytes: four are a unit of work."""

AT_ONCE: Final = 64
"""Parts that are paid for at once; values with fewer cost no more than the row that has them."""

_RANKS: Final[dict[type, tuple[int]]] = {tuple: (7,), Record: (8,), Map: (9,)}
"""The ranks of compounds among all values, as in ``order_key``."""


def ordered(pay: Pay, one: Value, other: Value) -> int:
    """Returns a number below, above or equal to 0, as one value comes before another, after it, or is the
    same.

    O(parts that are alike), which is paid for.  ``UsageError`` for values that are nested too deeply.
    """
    return _Comparing(pay).order(one, other, DEEPEST)


def free(_cost: int) -> None:
    """Takes no pay, where little is evaluated: for constants of a text that is being read."""


class _Comparing:
    """One comparison, and how many parts it has looked at since it has paid."""

    __slots__ = ("_count", "_pay")

    def __init__(self, pay: Pay) -> None:
        self._pay = pay
        self._count = 0

    def order(self, one: Value, other: Value, depth: int) -> int:
        if one is other:
            return 0
        kind = one.__class__
        if kind is not other.__class__ or kind not in _RANKS:
            return self._of_atoms(one, other)
        if depth <= 0:
            raise UsageError("a value is nested too deeply to be put in order")
        if isinstance(one, Record) and isinstance(other, Record):
            by_label = self.order(one.label, other.label, depth - 1)
            return by_label or self._of_parts(one.fields, other.fields, depth - 1)
        if isinstance(one, Map) and isinstance(other, Map):
            return self._of_parts(_entries(one), _entries(other), depth - 1)
        assert isinstance(one, tuple) and isinstance(other, tuple)  # the only further class
        return self._of_parts(one, other, depth - 1)

    def _of_parts(self, one: Sequence[Value], other: Sequence[Value], depth: int) -> int:
        for left, right in zip(one, other, strict=False):
            self._count += 1
            if self._count >= AT_ONCE:
                self._pay(PART_BYTES * self._count)
                self._count = 0
            if left is not right and (sign := self.order(left, right, depth)):
                return sign
        return len(one) - len(other)

    def _of_atoms(self, one: Value, other: Value) -> int:
        kind = one.__class__
        if kind is other.__class__ and (kind is str or kind is bytes):
            shorter = min(len(one), len(other))  # type: ignore[arg-type]  # as their class says
            if shorter > AT_ONCE:
                self._pay(shorter)
        left = _RANKS.get(kind) or order_key(one)
        right = _RANKS.get(other.__class__) or order_key(other)
        return 0 if left == right else -1 if left < right else 1


def _entries(value: Map) -> tuple[Value, ...]:
    """Returns the keys and values of a map in turn, in their order."""
    return tuple([part for pair in value.pairs() for part in pair])
