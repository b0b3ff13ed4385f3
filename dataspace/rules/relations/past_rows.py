"""Past rows: since when rows of one head have been there, and until when ended ones count.

A form is apart from the agenda (``times``), since questions and snapshots read it as well.

Always: a form knows only its own rows; their times are microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

from dataspace.instants import GRID, NEVER, instant_of
from dataspace.rules.language.arithmetic import EPOCH, MICROSECOND, micros_of, time_of
from dataspace.rules.language.evaluating import evaluate, holds
from dataspace.rules.language.ordering import free
from dataspace.rules.language.syntax import (
    Comparison,
    Expression,
    FunctionCall,
    Now,
    Structure,
    TimeForm,
    TimeKind,
    maker,
    with_operands,
)
from dataspace.rules.language.zones import HOUR, floor_of, next_of
from dataspace.rules.relations.terms import MAX_FACT, Row
from index.patterns.patterns import matcher, skeleton
from index.values.positions import Class
from index.values.values import Value


class KeptRows(dict[Row, int]):
    """Rows with a time, and ``value_bytes``, the bytes of the values in them."""

    __slots__ = ("value_bytes",)

    def __init__(self) -> None:
        super().__init__()
        self.value_bytes = 0

    def weigh(self) -> None:
        """Adds up these bytes anew; O(rows)."""
        self.value_bytes = sum([min(term.size, MAX_FACT) for row in self for term in row])


class PastRows:
    """The past of the rows of one head.

    ``since`` has the rows of its body that are there, with the microsecond from which on; ``kept`` the rows
    that have ended, or were messages, with the time until which they count; ``open`` the rows that are shown
    for the occurrences that are still there.
    """

    __slots__ = (
        "_counted",
        "_counted_at",
        "heard",
        "kept",
        "of",
        "open",
        "places",
        "reader",
        "root",
        "showing",
        "since",
    )

    def __init__(self, of: TimeForm) -> None:
        self.of: Final = of
        self.since: Final = KeptRows()
        self.kept: Final = KeptRows()
        self.open: Final[dict[Row, Row]] = {}
        self.heard: Final[set[Row]] = set()
        """The rows of messages of the present tick, where each occurrence is kept by itself."""
        self._counted: Final[dict[Row, int]] = {}  # occurrences of this time, by what they are shown as
        self._counted_at = 0
        self.showing: Any = None
        """The ``Timing`` that shows these rows to rules, and gets the rows that may have changed."""
        self.reader: Callable[[Value], Sequence[Value] | None] | None = None
        self.places: tuple[int, ...] = ()
        self.root: Class | None = None
        if of.pattern is not None:
            read = skeleton(of.pattern)
            self.reader = matcher(of.pattern)
            first = {name: at for at, name in reversed([*enumerate(read.names)]) if name is not None}
            self.places = tuple(sorted(first.values()))
            self.root = read.shape[0][1] if read.shape and read.shape[0][0] == () else None

    @property
    def value_bytes(self) -> int:
        """Bytes of the values in its rows."""
        return self.since.value_bytes + self.kept.value_bytes

    def __len__(self) -> int:
        """Returns how many rows it keeps."""
        return len(self.since) + len(self.kept)

    def rows(self) -> Iterator[Row]:
        """Yields the rows that it keeps, as they are in bodies or as they are shown."""
        yield from self.since
        yield from self.kept

    @property
    def is_old(self) -> bool:
        """True if rules read beginnings of rows that may be older than the span."""
        kind = self.of.kind
        return kind in (TimeKind.AT, TimeKind.FOR) or (kind is TimeKind.OCCURRENCES and self.of.is_exact)

    def number(self, base: Row, time: int) -> int:
        """Returns how many occurrences that are shown alike have begun at this time before; O(1)."""
        if time != self._counted_at:
            self._counted.clear()
            self._counted_at = time
        number = self._counted.get(base, 0)
        self._counted[base] = number + 1
        return number

    def until(self, time: int) -> int:
        """Returns until when a row counts that has ended at a time, or, for ``FINAL``, begun."""
        of = self.of
        return (self.begins(time) if of.kind is TimeKind.FINAL else time) + of.span

    def begins(self, time: int) -> int:
        """Returns when the window of a time begins, for ``FINAL``."""
        of = self.of
        return time // of.window * of.window if of.calendar is None else _window(time, *of.calendar)[0]

    def ends(self, begin: int) -> int:
        """Returns when a window ends that begins at a time, for ``FINAL``."""
        of = self.of
        return begin + of.window if of.calendar is None else _window(begin, *of.calendar)[1]

    def instants(self, time: int) -> tuple[int, ...]:
        """Returns the instants at which such a row is looked at."""
        of, last = self.of, instant_of(self.until(time))
        if of.kind is not TimeKind.FINAL:
            return (last,)
        return instant_of(self.ends(self.begins(time))), last

    def read(self, message: Value) -> tuple[Value, ...] | None:
        """Returns what the pattern captures of a message; None if it does not match."""
        assert self.reader is not None  # only windows are asked
        found = self.reader(message)
        return None if found is None else tuple([found[at] for at in self.places])


def is_fresh(form: PastRows, row: Row, instant: int) -> bool:
    """True if a row has to be looked at, at an instant of the agenda."""
    of, since, until = form.of, form.since.get(row), form.kept.get(row)
    match of.kind:
        case TimeKind.FOR:
            return since is not None and instant_of(since + of.span) == instant
        case TimeKind.NOW:
            return since is not None and instant in bounds_of(of.operators, row)
        case TimeKind.CLOCK:
            return since is not None
        case TimeKind.FINAL:
            return until is not None and instant in (
                instant_of(until),
                instant_of(form.ends(until - of.span)),
            )
        case _:
            return until is not None


@dataclass(frozen=True, slots=True)
class RowTimes:
    """Since when a row counts, and until when by time alone, in microseconds; None where that is not known.

    ``is_there`` is False for a row that has ended and is only kept.
    """

    since: int | None = None
    until: int | None = None
    is_there: bool = False


def row_times(past: PastRows, row: Row) -> RowTimes:
    """Returns since when a row that is shown counts; O(1)."""
    of, since, until = past.of, past.since.get(row), past.kept.get(row)
    match of.kind:
        case TimeKind.WITHIN:
            if since is None and until is not None:
                return RowTimes(until - of.span, until)
            return RowTimes(since, None, since is not None)
        case TimeKind.OCCURRENCES | TimeKind.FINAL:
            return RowTimes(time_in(row[-2]), until, until is None)
        case TimeKind.AT:
            return RowTimes(time_in(row[-1]), None, is_there=True)
        case TimeKind.FOR:
            return RowTimes(since, None, is_there=True)
        case TimeKind.CLOCK:
            return RowTimes(None, None, is_there=True)
        case TimeKind.NOW:
            begins, ends = bounds_of(of.operators, row)
            return RowTimes(
                begins if begins > -NEVER else since, ends if ends < NEVER else None, is_there=True
            )


def time_in(term: Any) -> int | None:
    """Returns the time that a column has, in microseconds."""
    value = term.value
    if value.__class__ is datetime:
        return micros_of(value)
    return value if value.__class__ is int else None


@lru_cache(maxsize=1024)
def _window(time: int, unit: str, zone: str) -> tuple[int, int]:
    """Returns when the window of a calendar begins and ends in which a time is."""
    begin = floor_of(time_of(time), unit, zone)
    return micros_of(begin), micros_of(next_of(begin, unit, zone))


def shown_at(form: TimeForm, time: int) -> tuple[Value, ...] | None:
    """Returns what clocks show at a time, for ``CLOCK``; None if that does not compare as it must."""
    now = time_of(time)
    for literal in form.literals:
        assert isinstance(literal, Comparison)  # as lowering makes them
        if not holds(replace(literal, left=_at(literal.left, now), right=_at(literal.right, now)), {}, free):
            return None
    return tuple([evaluate(_at(each, now), {}, free) for each in form.shows])


def next_change(form: TimeForm, time: int) -> int:
    """Returns the first time after another one at which clocks may show something else, for ``CLOCK``."""
    found = NEVER
    for call in _calls_of(form):
        *units, zone = [str(maker(each)[1]()) for each in call.arguments[1:] if isinstance(each, Structure)]
        found = min(found, micros_of(next_of(time_of(time), units[0] if units else HOUR, zone)))
    return found


def next_showing(form: TimeForm, time: int) -> int | None:
    """Returns the first instant after a time from which on clocks compare as they must; None if that is not
    found within some days."""
    for _ in range(MOST_CHANGES):
        time = instant_of(next_change(form, time))
        if shown_at(form, time) is not None:
            return time
    return None


MOST_CHANGES: Final = 400
"""Hours, or other windows, in which a question looks ahead."""


def _calls_of(form: TimeForm) -> Iterator[FunctionCall]:
    yield from form.shows
    for literal in form.literals:
        assert isinstance(literal, Comparison)  # as above
        yield from [each for each in (literal.left, literal.right) if isinstance(each, FunctionCall)]


def _at(expression: Expression, now: datetime) -> Expression:
    """Returns an expression with the present time in it."""
    if isinstance(expression, Now):
        return Structure(now)
    return with_operands(expression, lambda part: _at(part, now))


def bounds_of(operators: Sequence[str], row: Row) -> tuple[int, int]:
    """Returns from when until when a row compares with the present time as its last columns say.

    ``<=`` stands for a column that is not after the present time.  Both are instants; a value that is no time
    never compares.
    """
    since, until = -NEVER, NEVER
    if len(operators) == 1:  # as mostly: the same without loops and calls
        value = row[-1].value
        if value.__class__ is not datetime:
            return NEVER, -NEVER
        micros = (value - EPOCH) // MICROSECOND
        operator = operators[0]
        if operator == "<=":
            return -(-micros // GRID) * GRID, NEVER
        if operator == ">":
            return -NEVER, -(-micros // GRID) * GRID
    for operator, term in zip(operators, row[-len(operators) :], strict=True):
        value = term.value
        if value.__class__ is not datetime:
            return NEVER, -NEVER
        micros = micros_of(value)
        if operator in ("<", "<="):
            since = max(since, instant_of(micros + (operator == "<")))
        else:
            until = min(until, instant_of(micros + (operator == ">=")))
    return since, until
