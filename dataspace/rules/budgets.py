"""Budgets: how much may one rule, and how much may all of them use up in one tick?

Anyone who may assert a rule can write one that multiplies what it finds: a product of three sets, a value
that doubles.  Counting the rows that come of it would be too late, since they are counted while they are
made.  So the generated functions pay in advance, for each row that they are about to look at, and for each
value that they make.

Always: a rule that pays more than its limit in a tick, or still pays when the time for it is over, raises
``RuleFailed``.  What it may use is handed out in parts, and only then is anything compared, or a clock asked:
what is left of one is carried on into the next tick.
All rules together insert no more rows in a tick than they are allowed, whatever engines carry them out; a few
of each relation are not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from dataspace.rules.failures import RanAway, RuleFailed
from dataspace.rules.relations import Relation, State
from index.text import unparse
from index.values import MAX_DEPTH, Record, Value, bounded, text_of

STEPS_FOR_EACH_ROW = 5
"""Rows that one rule may look at in a tick, for each that may be inserted in it."""

MAX_TEXT = 128 * 1024 * 1024
"""Characters, as text, of the values that one rule may make in a tick."""

TEXT_OF_A_ROW = 32
"""Characters of made values that take about as long as a row that is looked at."""

MAX_VALUE = 1024 * 1024
"""Characters, as text, of one value that a rule makes."""


PART = 4096
"""What is handed out at once, at most; and an eighth of the limit."""


MAX_INSERTED: Final = 2_000_000
"""Rows that may be inserted in one tick, unless the program is told otherwise."""


class TickBudget:
    """What all rules together may insert in a tick, and until when; ``inserted`` says what they have so far.

    ``clock`` gives nanoseconds, ``deadline`` by it until when the tick may last in which it is asked: when a
    part has been used up for the first time, so that a tick as most are asks for nothing.
    """

    __slots__ = (
        "_clock",
        "_deadline",
        "_left",
        "_part",
        "_timed",
        "_until",
        "few",
        "inserted",
        "most",
        "tick",
    )

    def __init__(
        self, most: int, clock: Callable[[], int] | None, deadline: Callable[[], int | None]
    ) -> None:
        self.most = most
        self.few = most >> 16
        """So many rows of one relation, outside of any cycle, are not worth being counted."""
        self.tick = [0]  # its number, for budgets
        self.inserted: dict[Relation, int] = {}
        self._clock = clock
        self._deadline = deadline
        self._part = min(PART, most)
        self._left = 0
        self._timed = 0  # the tick in which the clock was last asked
        self._until: int | None = None

    def begin(self) -> None:
        """Begins a tick."""
        self.tick[0] += 1
        self._left = self._part
        if self.inserted:
            self.inserted.clear()

    def spend(self, relation: Relation, count: int) -> None:
        """Is told of insertions before they happen; ``RanAway`` if there are too many."""
        if count:
            self.inserted[relation] = self.inserted.get(relation, 0) + count
            self._left -= count
            if self._left < 0:
                self._refill()

    def _refill(self) -> None:
        left = self.most - sum(self.inserted.values())
        if left < 0:
            raise RanAway(f"more than {self.most} new facts in one tick")
        if self.is_late():
            raise RanAway("still new facts when the time for one tick was over")
        self._left = min(PART, left)

    def is_late(self) -> bool:
        """Whether the time for this tick is over, which begins when this is first asked in it."""
        if self._clock is None:
            return False
        if self._timed != self.tick[0]:
            self._timed, self._until = self.tick[0], self._deadline()
        return self._until is not None and self._clock() > self._until


class Budget:
    """What a rule may still use; ``ticks`` holds the number of the tick.

    ``waiting`` are the rows of its head that are to be inserted: of those there may be ``most``.  Since no
    row can be made without looking at one, it is enough to count them whenever a part is used up.
    ``is_late`` says whether the time for this tick is over.
    """

    __slots__ = (
        "_is_late",
        "_limit",
        "_most",
        "_part",
        "_rule",
        "_tick",
        "_ticks",
        "_used",
        "_waiting",
        "_what",
        "left",
    )

    def __init__(
        self,
        rule: int,
        limit: int,
        what: str,
        ticks: list[int],
        waiting: Sequence[State] = (),
        most: int = 0,
        *,
        is_late: Callable[[], bool] = lambda: False,
    ) -> None:
        self._is_late = is_late
        self.left = 0
        self._rule = rule
        self._limit = limit
        self._part = max(1, min(PART, limit // 8))
        self._what = what
        self._ticks = ticks
        self._tick = -1
        self._used = 0
        self._waiting = waiting
        self._most = most

    def refill(self, left: int) -> int:
        """Hands out another part to who has ``left`` less than nothing; what is left then."""
        tick = self._ticks[0]
        if tick != self._tick:
            self._tick, self._used = tick, 0
        part = max(self._part, -left)
        self._used += part
        if self._used > self._limit:
            reason = f"more than {self._limit} {self._what} in one tick"
        elif self._is_late():
            reason = f"{self._what} when the time for one tick was over"
        elif len(self._waiting) > self._most:
            last = unparse(tuple([term.value for term in self._waiting[-1][4]]))[:60]
            reason = f"more than {self._most} new facts in one tick, the last one of {last}"
        else:
            return left + part
        raise RuleFailed(self._rule, {}, reason, overran=True)

    @property
    def used(self) -> int:
        """What was used up in this tick, to within a part."""
        return self._used if self._tick == self._ticks[0] else 0

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
            self.left = self.refill(self.left)
