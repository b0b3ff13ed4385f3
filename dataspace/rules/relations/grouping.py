"""Grouping: the rules whose heads have aggregates, such as counts, sums and extremes.

The solutions of the body are sorted into groups by the other fields of the head; each group keeps an
accumulator for each aggregate.  A group changes its row of the head once, when its stratum runs, however
often it has changed before.

An accumulator keeps just enough to take one solution more or less: a count, an exact sum, or a sorted
container.  Sums of floats are kept exactly, as integers scaled by the smallest float, so that the order of
changes makes no difference and an added value can be subtracted again.

What is ``maybe`` there has inputs of its own: the solutions without it keep the group, those with it change
its aggregates.

Always: a group that has solutions supports at most one row of the head, and one unless an aggregate has no
value; a group without solutions is not kept; the value of an aggregate depends on what is in it, not on the
order of changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Final, Protocol, TypeAlias

from sortedcontainers import SortedDict, SortedList

from dataspace.rules.language.groups import part_of
from dataspace.rules.language.syntax import CHOOSING, DEVIATION, Aggregate, Rule, maker, parts_of
from dataspace.rules.relations.budgets import FACT_BYTES, Budget
from dataspace.rules.relations.failures import RuleFailed
from dataspace.rules.relations.relations import Relation, State
from dataspace.rules.relations.terms import MAX_FACT, Row, RuleTerm, Terms, size_in_facts, too_large
from index.emitter import Script, tuple_of
from index.errors import UsageError
from index.values.values import Value, order_key


class _Group:
    """How many solutions there are, what aggregates make of them, and the state of the row that was said.

    ``further`` has the numbers of solutions with each atom that is ``maybe``.
    """

    __slots__ = ("accumulators", "count", "further", "state")

    def __init__(self, accumulators: tuple[Accumulator | _Chosen, ...], maybes: int) -> None:
        self.accumulators = accumulators
        self.count = 0
        self.further = [0] * maybes
        self.state: State | None = None


Change: TypeAlias = Callable[[Row, Row, int], None]


class Grouping:
    """The groups of one rule.  ``change(at, taken, by)`` says that there is a solution more, or less.

    ``at`` are its fields to group by, ``taken`` the fields that aggregates take.  O(log group).  ``changes``
    has the same for the solutions of each of ``groups.parts_of_maybe``; ``change`` is the first of them.
    ``settle()`` passes to the head what has changed.
    """

    __slots__ = (
        "_groups",
        "_is_aggregate",
        "_kinds",
        "_names",
        "_number",
        "_otherwise",
        "_paid",
        "_parts",
        "_takes",
        "_width",
        "change",
        "changes",
        "name",
        "pending",
        "settle",
    )

    def __init__(
        self, name: str, number: int, rule: Rule, head: Relation, terms: Terms, paid: Budget
    ) -> None:
        self._number = number
        self._paid = paid
        self._width = FACT_BYTES + size_in_facts(rule.head.label)
        self.name = name
        self.pending: dict[Row, None] = {}
        self._kinds = [
            None if each.name == COUNT and not each.distinct else _accumulator(each)
            for each in rule.head.aggregates
        ]
        self._names = [each.name for each in rule.head.aggregates]
        self._otherwise = [each.otherwise for each in rule.head.aggregates]
        self._parts = [part_of(rule, each) for each in rule.head.aggregates]
        self._takes = [len(parts_of(each)) for each in rule.head.aggregates]
        maybes = sum(each.maybe for each in rule.atoms)
        self._is_aggregate = [isinstance(each, Aggregate) for each in rule.head.arguments]
        self._groups: dict[Row, _Group] = {}
        self.changes: list[Change] = [self._changer(part, maybes) for part in range(maybes + 1)]
        self.change: Change = self.changes[0]
        self.settle: Callable[[], None] = self._settler(head, terms)

    def __len__(self) -> int:
        return len(self._groups)

    def _group(self, maybes: int, at: Row) -> _Group:
        made = _Group(tuple([make() for make in self._kinds if make is not None]), maybes)
        self._groups[at] = made
        return made

    def _changer(self, part: int, maybes: int) -> Change:
        """Returns what takes a solution of a part, written out; their number needs no accumulator."""
        script = Script()
        script.line("def change(at, taken, by):")
        script.depth = 1
        make = script.bind(partial(self._group, maybes))
        script.line(f"group = {script.bind(self._groups)}.get(at) or {make}(at)")
        script.line(f"{self._size_of(part)} += by")
        pay, at = script.bind(self._pay_for), 0
        for n in [n for n, of in enumerate(self._parts) if of == part]:
            taken = [f"taken[{place}]" for place in range(at, at + self._takes[n])]
            at += len(taken)
            if self._kinds[n] is not None:
                for each in taken:
                    script.line(f"if {each}.size > {SMALL_TERM}: {pay}({each}, group)")
                script.line(f"{self._accumulator(n)}.change({', '.join(taken)}, by)")
        script.line(f"{script.bind(self.pending)}[at] = None")
        return script.functions("change")["change"]  # type: ignore[no-any-return]  # defined by the text

    @staticmethod
    def _size_of(part: int) -> str:
        """Returns the text for how many solutions of a part a group has."""
        return f"group.further[{part - 1}]" if part else "group.count"

    def _accumulator(self, n: int) -> str:
        """Returns the text for the accumulator of an aggregate, which has one."""
        return f"group.accumulators[{sum(make is not None for make in self._kinds[:n])}]"

    def _has_value(self, n: int) -> str:
        """Returns the text for whether an aggregate has a value."""
        if self._names[n] == DEVIATION:
            return f"{self._accumulator(n)}.has_value()"
        return self._size_of(self._parts[n])

    def _settler(self, head: Relation, terms: Terms) -> Callable[[], None]:
        """Returns what passes changed groups to the head, written out.

        For ``hub($x, count($y))``, where ``k`` is the state of the row that is said now, if any:

            for at in pending:
                group = groups[at]
                k = None
                if group.count:
                    v = group.count
                    t0 = (the term of v)
                    h = (at[0], t0,)
                    (a derivation more of h, as in ``compiling``)
                (one less of the row that was said before, which may be the same)
        """
        script, parts = Script(), []
        write = script.lines
        groups, touch = script.bind(self._groups), f"{script.bind(head.pending)}.append"
        states = script.bind(head.states)
        write("def settle():")
        write(f"    for at in {script.bind(self.pending)}:", f"        group = {groups}[at]")
        needed = [
            self._has_value(n)
            for n, (name, otherwise) in enumerate(zip(self._names, self._otherwise, strict=True))
            if name == DEVIATION and otherwise is None
        ]
        write("        was = group.state", f"        if {' and '.join(['group.count', *needed])}:")
        script.depth = 3
        for at, is_one in enumerate(self._is_aggregate):
            n = self._is_aggregate[:at].count(True)
            if not is_one:
                parts.append(f"at[{at - n}]")
                continue
            otherwise = self._otherwise[n]
            kind, size = self._kinds[n], self._size_of(self._parts[n])
            value = size if kind is None else f"{self._accumulator(n)}.value()"
            if otherwise is not None:
                value = f"{value} if {self._has_value(n)} else {script.bind(maker(otherwise)[1]())}"
            write(f"v = {value}")
            terms.write(script, f"t{n}", "v")
            parts.append(f"t{n}")
        write(f"h = {tuple_of(parts)}", "if was and h == was[4]: continue", f"k = {states}.get(h)")
        paid = script.bind(self._paid)
        size = " + ".join([str(self._width), *[f"{each}.size" for each in parts]])
        write("if k is None:", f"    {paid}.left -= {size}")
        write(f"    if {paid}.left < 0: {script.bind(self._pay)}({size}, at)")
        write(f"    {states}[h] = k = [1, 0, 0, False, h, None]; {touch}(k)", "else:")
        write(f"    if not k[0]: {touch}(k)", "    k[0] += 1", "    k[1] += 1", "group.state = k")
        script.depth = 2
        write(
            "else:",
            f"    if not group.count: del {groups}[at]",
            "    group.state = None",
            "if was:",
            "    was[0] -= 1",
            "    if was[2]:",
        )
        write("        was[1] -= 1", f"        if not was[1]: {touch}(was)")
        script.depth = 1
        write(f"{script.bind(self.pending)}.clear()")  # in place, since the steps of the engine refer to it
        return script.functions("settle")["settle"]  # type: ignore[no-any-return]  # defined by the text

    def _pay_for(self, term: RuleTerm, group: _Group) -> None:
        """Pays for a large value that an aggregate is about to put in order, or to take out."""
        self._paid.pay(min(term.size, MAX_FACT) * (ORDER_FACTOR + group.count.bit_length()))

    def _pay(self, size: int, at: Row) -> None:
        """Hands out another part, unless a fact is too large."""
        if size > MAX_FACT:
            values = {f"{n + 1}": term.value for n, term in enumerate(at)}
            raise RuleFailed(self._number, values, f"UsageError: {too_large(size)}")
        self._paid.left = self._paid.refill(self._paid.left)

    def group(self, row: Row) -> Row:
        """Returns the fields by which a row of the head was grouped."""
        return tuple([term for term, is_one in zip(row, self._is_aggregate, strict=True) if not is_one])


# -- aggregates ------------------------------------------------------------------------------------


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
                self._scaled += by * top << _SCALE.bit_length() - bottom.bit_length()
            else:
                self._odd[2 if math.isnan(number) else int(number < 0)] += by
        else:
            raise UsageError(f"a sum of numbers, not of {number!r:.60}")
        self._count += by

    def value(self) -> Value:
        return self._whole if not self._floats else self._rounded(1)

    def mean(self) -> float:
        """Returns the mean, correctly rounded."""
        return self._rounded(self._count)

    def _rounded(self, count: int) -> float:
        """Returns the sum ÷ a count; the division of two integers is exact and rounded once."""
        more, less, none = self._odd
        if none or (more and less):
            return math.nan
        if more or less:
            return math.inf if more else -math.inf
        if self._floats:
            over, under = self._whole * _SCALE + self._scaled, _SCALE * count
        else:
            over, under = self._whole, count
        try:
            return over / under
        except OverflowError:
            return math.inf if over > 0 else -math.inf


class Average(Sum):
    """The mean as a float, correctly rounded.  O(1)."""

    __slots__ = ()

    def value(self) -> Value:
        return self.mean()


MAX_SQUARED: Final = 4096
"""Bits of an integer that ``stddev`` takes, since it squares it."""


class Deviation:
    """The standard deviation of a sample, √(Σ(x - mean)² ÷ (n - 1)), correctly rounded; of one value there is
    none.

    O(1) for a change, from exact sums of the values and of their squares; some microseconds to read.
    """

    __slots__ = ("_count", "_odd", "_squares", "_squares_scaled", "_sum", "_sum_scaled")

    def __init__(self) -> None:
        self._count = 0
        self._odd = 0
        self._sum = self._squares = 0  # of integers
        self._sum_scaled = self._squares_scaled = 0  # of floats

    def change(self, term: RuleTerm, by: int) -> None:
        number = term.value
        if number.__class__ is int:
            if number.bit_length() > MAX_SQUARED:
                raise UsageError(f"stddev of a number of {number.bit_length()} bits, limit {MAX_SQUARED}")
            self._sum += by * number
            self._squares += by * number * number
        elif isinstance(number, float):
            if math.isfinite(number):
                top, bottom = number.as_integer_ratio()
                shift = _SCALE.bit_length() - bottom.bit_length()
                self._sum_scaled += by * top << shift
                self._squares_scaled += by * top * top << 2 * shift
            else:
                self._odd += by
        else:
            raise UsageError(f"stddev of numbers, not of {number!r:.60}")
        self._count += by

    def has_value(self) -> bool:
        """True if there are two values at least."""
        return self._count > 1

    def value(self) -> Value:
        if self._odd:
            return math.nan
        scale = _SCALE if self._squares_scaled else 1
        total = self._sum * scale + self._sum_scaled
        squares = self._squares * scale * scale + self._squares_scaled
        count = self._count
        return _root(count * squares - total * total, count * (count - 1) * scale * scale)


def _root(top: int, bottom: int) -> float:
    """Returns the square root of a fraction, correctly rounded; infinity if that is too large.

    The root of a number of some 109 bits is rounded to an odd one, which a division then rounds once.
    """
    if not top:
        return 0.0
    shift = (top.bit_length() - bottom.bit_length() - 109) // 2
    over, under = (top, bottom << 2 * shift) if shift >= 0 else (top << -2 * shift, bottom)
    root = math.isqrt(over // under)
    root |= root * root * under != over
    try:
        return float(root << shift) if shift >= 0 else root / (1 << -shift)
    except OverflowError:
        return math.inf


class _Counted:
    """Values in an order, with how often each is there.  O(log n) for a change."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries = SortedDict()

    def _count(self, at: tuple[object, ...], term: RuleTerm, by: int) -> None:
        """Takes a value in (+1) or out (-1), at its place in the order."""
        entry = self._entries.get(at)
        if entry is None:
            self._entries[at] = [by, term]
            return
        entry[0] += by
        if not entry[0]:
            del self._entries[at]

    def _value_at(self, index: int) -> Value:
        """Returns the value at a place in the order; -1 is the last."""
        term: RuleTerm = self._entries.peekitem(index)[1][1]
        return term.value


class _Sorted(_Counted):
    """All values in their total order."""

    __slots__ = ()

    def change(self, term: RuleTerm, by: int) -> None:
        self._count(order_key(term.value), term, by)


class Least(_Sorted):
    """The first in the total order."""

    __slots__ = ()

    def value(self) -> Value:
        return self._value_at(0)


class Greatest(_Sorted):
    """The last in the total order."""

    __slots__ = ()

    def value(self) -> Value:
        return self._value_at(-1)


class Percentile:
    """The value below or at which so many percent of all are, by the nearest rank: always one that is there.

    O(log n) for a change and to read; an entry for each value, equal ones too.
    """

    __slots__ = ("_entries", "_over", "_under")

    def __init__(self, percent: Fraction) -> None:
        self._over, self._under = percent.numerator, 100 * percent.denominator
        self._entries = SortedList()

    def change(self, term: RuleTerm, by: int) -> None:
        entry = order_key(term.value), term  # where keys are equal, terms are one object
        if by > 0:
            self._entries.add(entry)
        else:
            self._entries.remove(entry)

    def value(self) -> Value:
        rank = -(-self._over * len(self._entries) // self._under)
        term: RuleTerm = self._entries[rank - 1][1]
        return term.value


class _Chosen(_Counted):
    """All values in the order of others, and in their total order where these are the same."""

    __slots__ = ()

    def change(self, term: RuleTerm, order: RuleTerm, by: int) -> None:
        """Takes a value in (+1) or out (-1)."""
        self._count((order_key(order.value), order_key(term.value)), term, by)


class FirstOf(_Chosen):
    """The value with the first in the total order of what it is ordered by."""

    __slots__ = ()

    def value(self) -> Value:
        return self._value_at(0)


class LastOf(_Chosen):
    """The value with the last."""

    __slots__ = ()

    def value(self) -> Value:
        return self._value_at(-1)


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


SMALL_TERM: Final = 256
"""Bytes of a value that an aggregate takes for the cost of the row that has it."""

ORDER_FACTOR: Final = 4
"""How often a value is gone through to put it in order, beside the comparisons."""

COUNT: Final = "count"
"""The number of solutions, which each group has anyway."""

_KINDS: Final[dict[str, Callable[[], Accumulator]]] = {
    "sum": Sum,
    "avg": Average,
    "stddev": Deviation,
    "min": Least,
    "max": Greatest,
    "collect": Collection,
}


class Distinct:
    """Another aggregate over the different values, or their number where there is none.  O(1) beside that."""

    __slots__ = ("_counts", "_of")

    def __init__(self, of: Accumulator | None) -> None:
        self._of = of
        self._counts: dict[RuleTerm, int] = {}

    def change(self, term: RuleTerm, by: int) -> None:
        before = self._counts.get(term, 0)
        now = before + by
        if self._of is not None and not (before and now):
            self._of.change(term, by)
        if now:
            self._counts[term] = now
        else:
            del self._counts[term]

    def has_value(self) -> bool:
        """True if there are two different values at least."""
        return len(self._counts) > 1

    def value(self) -> Value:
        return len(self._counts) if self._of is None else self._of.value()


def _accumulator(aggregate: Aggregate) -> Callable[[], Accumulator | _Chosen]:
    """Returns what makes an empty aggregate, which is not a plain ``COUNT``."""
    name, n = aggregate.name, aggregate.n
    if name in CHOOSING:
        return FirstOf if name == "first" else LastOf
    make = _KINDS.get(name)
    if name == "top":
        make = partial(Best, int(n))
    elif name == "percentile":
        make = partial(Percentile, Fraction(str(n)))
    if not aggregate.distinct:
        assert make is not None  # by the caller
        return make
    return lambda: Distinct(None if make is None else make())
