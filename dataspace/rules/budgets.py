"""Budgets: how much may one rule use up in one tick?

Anyone who may assert a rule can write one that multiplies what it finds: a product of three sets, a value
that doubles.  Counting the rows that come of it would be too late, since they are counted while they are
made.  So the generated functions pay in advance, for each row that they are about to look at, and for each
value that they make.

Always: a rule that pays more than its limit in a tick raises ``RuleFailed``, at the latest at twice the
limit: refilling in each tick would cost each tick, so what is left is only looked at when it is used up.
"""

from __future__ import annotations

from dataspace.rules.failures import RuleFailed
from index.values import MAX_DEPTH, Record, Value, bounded, text_of

STEPS_FOR_EACH_ROW = 5
"""Rows that one rule may look at in a tick, for each that may be inserted in it."""

MAX_TEXT = 128 * 1024 * 1024
"""Characters, as text, of the values that one rule may make in a tick."""

MAX_VALUE = 1024 * 1024
"""Characters, as text, of one value that a rule makes."""


class Budget:
    """What a rule may still use; ``ticks`` holds the number of the tick."""

    __slots__ = ("_limit", "_rule", "_tick", "_ticks", "_what", "left")

    def __init__(self, rule: int, limit: int, what: str, ticks: list[int]) -> None:
        self.left = 0
        self._rule = rule
        self._limit = limit
        self._what = what
        self._ticks = ticks
        self._tick = -1

    def refill(self, paid: int) -> None:
        """Is called when nothing is left, for what was to be ``paid``."""
        tick = self._ticks[0]
        if tick == self._tick or paid > self._limit:
            raise RuleFailed(self._rule, {}, f"more than {self._limit} {self._what} in one tick")
        self._tick = tick
        self.left = self._limit - paid

    def pay_for(self, value: Value) -> None:
        """Pays for a value that was made; ``RuleFailed`` if it is too large, ``UsageError`` if too deep.

        O(size) unless it is a number.
        """
        kind = value.__class__
        if kind is int or kind is float:
            return
        size = len(value.text if isinstance(value, Record) else text_of(value))
        if size > MAX_VALUE:
            raise RuleFailed(self._rule, {}, f"a value of {size} characters, limit {MAX_VALUE}")
        bounded(value, depth=MAX_DEPTH - 1)  # since a fact is around it
        self.left -= size
        if self.left < 0:
            self.refill(size)
