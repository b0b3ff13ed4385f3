"""Budgets and costs: how much may one rule, and how much may all of them use up in one tick?

A rule can multiply what it finds: by a product of three sets, a value that doubles, a fact about every fact.
To count the resulting rows would be too late, since most of the work is to find them.  So the generated
functions pay in advance: for each row that they are about to look at (*steps*), for each value that they make
and each row that they derive (*bytes*), and for rows that are inserted (*rows*).  All of it is work that can
be counted, and nothing is a time: the same facts and rules have the same result on a slow machine and on a
quick one, in a turn and at a start.

Rows looked at, rows inserted and bytes together are *work*.  A tick that clients wait for may do as much of
it as its cause allows: a base, and some for each fact that comes or goes.  A start may do all work that
``Bounds`` allow.

Always: a rule that pays more than its limit in a tick raises ``RuleFailed``; all rules together use no more
than ``Bounds`` allow, or ``LimitReached`` is raised.  Units are handed out in parts, and compared only then:
the rest of a part is carried on into the next tick.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from dataspace.rules.language.functions import BYTES_OF_WORK
from dataspace.rules.relations.failures import LimitReached, RuleFailed, Unit
from dataspace.rules.relations.relations import Relation, State
from dataspace.rules.relations.terms import MAX_DEPTH, TEXT_FACTOR
from index.patterns.text import unparse
from index.values.freezing import bounded
from index.values.values import Record, Value, text_of

STEPS_FOR_EACH_ROW: Final = 5
"""Rows that one rule may look at in a tick, for each that may be inserted in it."""

SHARED_STEPS_FOR_EACH_ROW: Final = 10
"""Rows that all rules together may look at in a tick, for each that may be inserted in it."""

MAX_TEXT: Final = 128 * 1024 * 1024
"""Characters, as text, of the values that one rule may make in a tick."""

CALCULATION: Final = 128
"""What a calculated value counts for beside its text, in bytes: as long as a few rows take."""

MAX_VALUE: Final = 1024 * 1024
"""Characters, as text, of one value that a rule makes."""

FACT_BYTES: Final = 64
"""What a derived fact counts for beside its text."""

PART: Final = 256
"""Units that are handed out at once, at most; and an eighth of the limit.

A thousand rules that each have a part left may use all of these in one tick, beside what that tick allows.
"""

PARTS: Final = 64
"""Into so many parts at least the work of a turn is divided."""

WORK_PER_ACTION: Final = 20
"""Units of work that a tick may do for each fact that comes or goes."""

READS_OF_AN_ACTION: Final = 4
"""Facts read by rules that are made anew allow as much work as one fact that comes."""

AGAIN: Final = 4
"""Rows that a tick may insert further for each fact that is read, or derived, anew in it."""

REBUILDS: Final = 64
"""How many times ``Bounds.work`` rules that are made anew may do again of the work that they have done."""

WORK_PER_REMOVAL: Final = 8
"""Units of work that a tick may do further for each derived fact that goes.

It was paid for when it came; and to suspend the rule would remove it as well.
"""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The allowance of all rules of a space in one tick, and the bound on the facts that they hold.

    ``rows`` are inserted in one tick; ``made`` are the bytes of facts that are derived and calculated in it,
    ``held`` the bytes of all derived facts there are, both estimated by texts.  ``work`` are the units of a
    tick with a single fact as its cause, and ``work_per_action`` the units for each further fact; without
    ``work`` only the other bounds count.  ``reads`` are the facts that rules which come may have to read in
    one tick, for views that are not there yet.  ``window`` are the microseconds for which a rule may look
    back, ``time_rows`` the rows of the past that all rules over time may keep.
    """

    rows: int = 2_000_000
    made: int = 128 * 1024 * 1024
    held: int = 128 * 1024 * 1024
    work: int | None = None
    work_per_action: int = WORK_PER_ACTION
    reads: int | None = None
    window: int | None = None
    time_rows: int = 200_000

    @property
    def part(self) -> int:
        """Units of work that are handed out at once, at most."""
        return PART if self.work is None else max(1, min(PART, self.work // PARTS))

    @property
    def steps(self) -> int:
        """Rows that may be looked at in one tick."""
        return SHARED_STEPS_FOR_EACH_ROW * self.rows


class Again:
    """What a tick may use beyond its bounds, since it reads or derives at once what came in many ticks.

    After a start, and where engines are made anew, the same facts have the same consequences as before, and
    each of these was within the bounds of its own tick.
    """

    __slots__ = ("bytes", "rows", "work")

    def __init__(self) -> None:
        self.rows = self.bytes = self.work = 0

    def allow(self, facts: int, size: int, work: int = 0) -> None:
        """Allows it for so many facts that are read or derived anew.

        ``size`` are the bytes of the latter, and ``work`` the units that they have cost.
        """
        self.work += work
        self.rows += AGAIN * facts
        self.bytes += AGAIN * (size + CALCULATION * facts)


class TickBudget:
    """What all rules together may use in a tick; ``inserted`` has the rows of each relation so far."""

    __slots__ = (
        "_left",
        "_looked",
        "_made",
        "actions",
        "again",
        "bounds",
        "few",
        "gone",
        "held",
        "inserted",
        "is_used",
        "tick",
        "total",
        "work",
    )

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.few = bounds.rows >> 16
        """So many rows of one relation, outside of any cycle, are not worth being counted."""
        self.tick = [0]  # its number, for budgets
        self.inserted: dict[Relation, int] = {}
        self.held = 0
        """Bytes of the facts that are derived, as of the last tick."""
        self.gone: Callable[[], int] = int
        """Gives the number of derived rows that have gone in this tick."""
        self.work = 0
        """Units of work of this tick so far."""
        self.total = 0
        """Units of all ticks before."""
        self.actions: int | None = None
        """By how many actions the work of this tick is bounded; None at a start."""
        self.again: Final = Again()
        self._left = self._looked = self._made = 0
        self.is_used = True
        """False if nothing was counted since the last tick began: most turns use up no part of any rule."""

    def begin(self, actions: int | None = None) -> None:
        """Begins a tick, or another attempt at it.

        It may do the work that so many ``actions`` allow; at a start, where they are None, all within bounds.
        """
        self.tick[0] += 1
        self.actions = actions
        self.is_used = False
        self.again.rows = self.again.bytes = self.again.work = 0
        self._left = min(PART, self.bounds.rows)
        self.total += self.work
        self._looked = self._made = self.work = 0
        self.inserted.clear()

    def allow(self, actions: int, facts: int, size: int, work: int = 0) -> None:
        """Allows the tick the work of further actions, and, for so many facts that it reads or derives anew,
        what ``Again`` says."""
        self.is_used = True
        if self.actions is not None:
            self.actions += actions
        self.again.allow(facts, size, min(work, REBUILDS * (self.bounds.work or 0)))

    def spend(self, relation: Relation, count: int) -> None:
        """Counts insertions before they happen; ``LimitReached`` if there are too many."""
        if count:
            self.is_used = True
            self.inserted[relation] = self.inserted.get(relation, 0) + count
            self._work(count)
            self._left -= count
            if self._left < 0:
                most = self.bounds.rows + self.again.rows
                left = most - sum(self.inserted.values())
                if left < 0:
                    raise LimitReached(f"more than {most} new facts in one tick", Unit.ROWS)
                self._left = min(PART, left)

    def look(self, steps: int) -> None:
        """Counts rows that rules are about to look at; ``LimitReached`` if all together are too many."""
        self.is_used = True
        self._looked += steps
        self._work(steps)
        if self._looked > (most := self.bounds.steps + SHARED_STEPS_FOR_EACH_ROW * self.again.rows):
            raise LimitReached(f"more than {most} rows were looked at in one tick", Unit.STEPS)

    def make(self, size: int) -> None:
        """Counts bytes that rules are about to derive or make; ``LimitReached`` if they are too many."""
        self.is_used = True
        self._made += size
        self._work(size // BYTES_OF_WORK)
        limit, held, again = self.bounds.made, self.bounds.held, self.again.bytes
        if self._made > limit + again:
            raise LimitReached(f"more than {limit + again} bytes were derived in one tick", Unit.BYTES)
        if self._made > held - self.held + again:
            raise LimitReached(f"more than {held} bytes of derived facts in the space", Unit.BYTES)

    def _work(self, units: int) -> None:
        """Counts work that is about to be done; or raises ``LimitReached``, and does not count it."""
        work, bounds = self.work + units, self.bounds
        if bounds.work is not None and self.actions is not None:
            most = bounds.work + bounds.work_per_action * self.actions + self.again.work
            if work > most and work > (most := most + WORK_PER_REMOVAL * self.gone()):
                limits = f"derive_work={bounds.work}, derive_work_per_action={bounds.work_per_action}"
                raise LimitReached(f"more than {most} units of work in one turn, limits {limits}", Unit.WORK)
        self.work = work

    def hold(self, added: Iterable[Value], removed: Iterable[Value]) -> None:
        """Notes what has become of the derived facts.  O(those).

        It has ``size_of`` written out: each turn comes here, mostly with one fact.
        """
        held = self.held
        for fact in added:
            text = fact._text or fact.text if fact.__class__ is Record else ""
            held += FACT_BYTES + (len(text) if text.isascii() else TEXT_FACTOR * len(text))
        for fact in removed:
            text = fact._text or fact.text if fact.__class__ is Record else ""
            held -= FACT_BYTES + (len(text) if text.isascii() else TEXT_FACTOR * len(text))
        self.held = held


def size_of(facts: Iterable[Value]) -> int:
    """Returns what derived facts count for, in bytes; O(facts)."""
    total = 0
    for fact in facts:
        if fact.__class__ is Record:  # as all are
            text = fact.text
            total += FACT_BYTES + (len(text) if text.isascii() else TEXT_FACTOR * len(text))
    return total


class Budget:
    """The rest of one rule's allowance of one unit; ``ticks`` holds the number of the tick.

    ``share`` counts each part for all rules together.  ``more`` gives what the tick allows further.
    ``waiting`` are the rows of the rule's head that are
    to be inserted: of those there may be ``most``.  Since no row can be made without looking at one, it is
    enough to count them whenever a part is used up.
    """

    __slots__ = (
        "_again",
        "_limit",
        "_more",
        "_most",
        "_part",
        "_rule",
        "_share",
        "_tick",
        "_ticks",
        "_used",
        "_waiting",
        "_what",
        "_total",
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
        share: Callable[[int], None],
        again: Again,
        more: Callable[[Again], int],
        part: int = PART,
    ) -> None:
        self.left = self._total = 0
        self._rule = rule
        self._limit = limit
        self._again = again
        self._more = more
        self._part = max(1, min(part, limit // 8))
        self._what = what
        self._ticks = ticks
        self._tick = -1
        self._used = 0
        self._waiting = waiting
        self._most = most
        self._share = share

    def refill(self, left: int) -> int:
        """Hands out another part where ``left`` is less than nothing; returns what is left then."""
        tick = self._ticks[0]
        if tick != self._tick:
            self._tick, self._used = tick, 0
        part = max(self._part, -left)
        self._used += part
        self._total += part
        if self._used > (limit := self._limit + self._more(self._again)):
            reason = f"more than {limit} {self._what} in one tick"
        elif len(self._waiting) > (most := self._most + self._again.rows):
            last = unparse(tuple([term.value for term in self._waiting[-1][4]]))[:60]
            reason = f"more than {most} new facts in one tick, the last one of {last}"
        else:
            self._share(part)
            return left + part
        raise RuleFailed(self._rule, {}, reason, overran=True)

    @property
    def used(self) -> int:
        """Returns what was used up in this tick, to within a part."""
        return self._used if self._tick == self._ticks[0] else 0

    @property
    def paid(self) -> int:
        """Returns what was used up in the ticks before this one."""
        return self._total - self.used

    def pay(self, cost: int) -> None:
        """Pays for a function that is about to read or to make so many bytes."""
        self.left -= cost + CALCULATION
        if self.left < 0:
            self.left = self.refill(self.left)

    def pay_for(self, value: Value) -> None:
        """Pays for a value that was made; ``RuleFailed`` if it is too large, ``UsageError`` if too deep.

        O(size) unless it is a number.
        """
        kind = value.__class__
        if kind is int or kind is float:
            self.left -= CALCULATION
            if self.left < 0:
                self.left = self.refill(self.left)
            return
        size = len(value.text if isinstance(value, Record) else text_of(value))
        if size > MAX_VALUE:
            raise RuleFailed(self._rule, {}, f"a value of {size} characters, limit {MAX_VALUE}")
        bounded(value, depth=MAX_DEPTH - 1)  # since a fact is around it
        self.left -= size + CALCULATION
        if self.left < 0:
            self.left = self.refill(self.left)


def more_steps(again: Again) -> int:
    """Returns how many rows one rule may look at further."""
    return STEPS_FOR_EACH_ROW * again.rows


def more_bytes(again: Again) -> int:
    """Returns how many bytes one rule may make further."""
    return again.bytes


# -- costs -----------------------------------------------------------------------------------------
#
# To read a clock twice for each row would cost more than many rows do. So one in a few of the rows that set a
# rule off is timed, and stands for the others. Rows are counted exactly, time is an estimate; without a clock
# neither is counted, and nothing is slower.


SAMPLED: Final = 16
"""Of so many rows one is timed."""


@dataclass(slots=True)
class Spent:
    """What a rule has cost: rows that set it off, and the time from there on in nanoseconds."""

    calls: int = 0
    nanoseconds: int = 0


@dataclass(frozen=True, slots=True)
class Meter:
    """What the text of a rule counts and times itself with."""

    spent: Spent
    clock: Callable[[], int]


class Costs:
    """What the rules of a program have cost, by their numbers; ``clock`` gives nanoseconds."""

    def __init__(self, clock: Callable[[], int] | None) -> None:
        self._clock = clock
        self._spent: dict[int, Spent] = {}

    def of(self, number: int) -> Spent:
        """Returns what a rule has cost so far."""
        return self._spent.get(number, Spent())

    def forget(self, number: int) -> None:
        """Deletes the costs of a rule."""
        self._spent.pop(number, None)

    def meter(self, number: int) -> Meter | None:
        """Returns what a rule is counted and timed with, if there is a clock."""
        if self._clock is None:
            return None
        return Meter(self._spent.setdefault(number, Spent()), self._clock)
