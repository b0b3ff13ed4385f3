"""Times: since when rows have been there, which are kept after their end, and at which instant that changes.

What rules derive over time depends on the past, which facts do not show.  So for each head that depends on
time (``lowering``) its *form* keeps since when its rows have been there, and the occurrences that have ended
and still count.  Engines come and go with their rules; the forms stay, and a new engine goes on from them.
The *agenda* has the instants, multiples of ``GRID``, at which something comes or goes by time alone.

Always: between ticks no instant up to the present is on the agenda; ``undo`` makes all as it was at the
``mark``; times never go back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import heapify, heappop, heappush
from typing import Any, Final, TypeAlias

from dataspace.instants import GRID, NEVER, instant_of
from dataspace.rules.language.syntax import (
    EPOCH,
    MICROSECOND,
    TimeForm,
    TimeKind,
    micros_of,
    time_of,
)
from dataspace.rules.relations.relations import STEP
from dataspace.rules.relations.terms import Row, Terms
from dataspace.steps import Steps, batched
from index.patterns.patterns import matcher, skeleton
from index.values.positions import Class, class_of
from index.values.values import Value, key

logger = logging.getLogger("dataspace")

STALE_FROM: Final = 1_000
"""Stale entries are removed from an agenda only if it has more entries than this."""

MUCH: Final = 512
"""Entries of one instant, for which a turn is made in steps: it takes a millisecond or more."""

_GONE: Final = object()
"""The former value of an entry that was not there."""


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
        self.since: Final[dict[Row, int]] = {}
        self.kept: Final[dict[Row, int]] = {}
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

    def __len__(self) -> int:
        """Returns how many rows it keeps."""
        return len(self.since) + len(self.kept)

    def rows(self) -> Iterator[Row]:
        """Yields the rows that it keeps, as they are in bodies or as they are shown."""
        yield from self.since
        yield from self.kept

    @property
    def is_old(self) -> bool:
        """True if the beginning of what is there may be older than the span, and rules show it, or use it."""
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

    def read(self, message: Value) -> tuple[Value, ...] | None:
        """Returns what the pattern captures of a message; None if it does not match."""
        assert self.reader is not None  # only windows are asked
        found = self.reader(message)
        return None if found is None else tuple([found[at] for at in self.places])


_Entry: TypeAlias = tuple[PastRows, Row]


class Times:
    """The forms of the rules of a space, and the agenda.

    ``time`` is the time of the tick, in microseconds, and ``now`` the same rounded down to the grid.
    """

    def __init__(self) -> None:
        self.terms: Final = Terms()
        self.time = self.now = 0
        self.ahead = 0
        """The time of the turn that is being made."""
        self.next = NEVER
        """The earliest instant on the agenda; a turn at or after it has to wait for a tick at it."""
        self.forms: dict[Hashable, PastRows] = {}
        self.sent: tuple[Sequence[Value], int] = ((), 0)
        """Messages of the last turn in which rules or flows sent some, and how many at the end are theirs."""
        self.touched: Final[dict[Any, None]] = {}
        """The ``Timing`` objects with changes in this tick."""
        self.noted: Final[dict[Any, None]] = {}
        """The ``Timing`` objects with rows to look at."""
        self.failed: dict[PastRows, Exception] = {}
        """Forms whose rows cannot be kept any more, since a defect came of it in this tick."""
        self._agenda: dict[int, list[_Entry]] = {}
        self._instants: list[int] = []
        self._journal: list[tuple[Any, Any, Any]] = []
        self._hearing: dict[Class | None, list[PastRows]] | None = None
        self.pending = 0
        """How many entries the agenda has."""
        self.has_heard = False
        """True if a message of this tick is an occurrence that is kept by itself."""
        self.is_hearing = False
        """True in such a tick while rules see its messages."""
        self.came_due = 0
        """Entries that have come due in this tick: each allows as much work as a fact that comes."""
        self._tidied = STALE_FROM

    @property
    def rows(self) -> int:
        """Returns how many rows are kept; O(forms)."""
        return sum(map(len, self.forms.values()))

    # -- forms ----------------------------------------------------------------------------------------

    def form(self, label: Value, of: TimeForm) -> PastRows:
        """Returns the form of a head, which begins now if it is new."""
        at = key(label)
        known = self.forms.get(at)
        if known is None:
            known = PastRows(of)
            self.put(self.forms, at, known)
            self._hearing = None
        return known

    def keep(self, labels: Iterable[Value]) -> None:
        """Forgets the forms of all other labels."""
        wanted = set(map(key, labels))
        for at in [at for at in self.forms if at not in wanted]:
            self.drop(self.forms, at)
            self._hearing, self._tidied = None, 0

    def sizes(self, messages: Iterable[Value] = ()) -> dict[Hashable, int]:
        """Returns how many rows each form keeps, by its head, and will keep for some messages."""
        found = {at: len(form) for at, form in self.forms.items()}
        for message in messages:
            for at, form in self.forms.items():
                if form.root in (None, class_of(message)) and form.reader is not None:
                    found[at] += form.read(message) is not None
        return found

    # -- ticks ----------------------------------------------------------------------------------------

    def begin(self, messages: Iterable[Value]) -> None:
        """Begins a tick at the time ``ahead``: takes what is due from the agenda, and notes the messages that
        windows keep."""
        if self.ahead > self.time:
            self.time, self.now = self.ahead, self.ahead // GRID * GRID
        while self._instants and self._instants[0] <= self.now:
            due = self._taken(heappop(self._instants))
            self.came_due += len(due)
            self._come_due(due)
        if messages and self.forms:
            self._hear(messages)
        self._look_ahead()

    def beginning(self) -> Steps[None]:
        """Begins a tick without messages, in steps; ``next`` stays until the tick is concluded."""
        if self.ahead > self.time:
            self.time, self.now = self.ahead, self.ahead // GRID * GRID
        while self._instants and self._instants[0] <= self.now:
            due = self._taken(heappop(self._instants))
            self.came_due += len(due)
            for some in batched(due, STEP):
                self._come_due(some)
                yield

    def _come_due(self, due: Iterable[_Entry]) -> None:
        for form, row in due:
            try:
                self._look_at(form, row)
            except Exception as error:  # noqa: BLE001  # a fence: one form fails, and ends neither the turn nor others
                self.fail(form, error)

    def fail(self, form: PastRows, error: Exception) -> None:
        """Notes a defect; the program suspends the text of the form."""
        logger.error("rows of the past of %.200s cannot be kept", form.of.shown, exc_info=error)
        self.failed.setdefault(form, error)

    def give_up_failed(self) -> dict[Hashable, Exception]:
        """Forgets the forms that have failed; returns the errors by their heads."""
        found = {at: self.failed[form] for at, form in self.forms.items() if form in self.failed}
        for at in found:
            self.forms[at].showing = None
            self.drop(self.forms, at)
        self.failed.clear()
        self._hearing, self._tidied = None, 0
        self._count()  # it may have been interrupted there
        return found

    def _look_at(self, form: PastRows, row: Row) -> None:
        """Looks at a row whose instant has come."""
        until = form.kept.get(row)
        each_alone = form.of.kind in (TimeKind.OCCURRENCES, TimeKind.FINAL)
        if until is not None:
            if until <= self.now:
                self.drop(form.kept, row)
            elif not each_alone:  # it has come again in the meantime
                self.plan(form, row, until)
        if form.showing is not None:
            if each_alone:
                form.showing.note_kept(row)
            else:
                form.showing.note(row)

    def _hear(self, messages: Iterable[Value]) -> None:
        if self._hearing is None:
            self._hearing = {}
            for form in self.forms.values():
                if form.reader is not None:
                    self._hearing.setdefault(form.root, []).append(form)
        if not self._hearing:
            return
        for message in messages:
            for form in self._hearing.get(class_of(message), ()):
                try:
                    values = form.read(message)
                    if values is not None:
                        self._keep_message(form, self.terms.row(values), message)
                except Exception as error:  # noqa: BLE001  # the same fence
                    self.fail(form, error)

    def _keep_message(self, form: PastRows, row: Row, message: Value) -> None:
        if form.of.kind is TimeKind.WITHIN:
            self.end(form, row, self.time)
            if form.showing is not None:
                form.showing.note(row)
            return
        row = (*row, self.placeholder, self.terms.of(message))
        form.heard.add(row)
        self.has_heard = True
        shown = self.occurrence(form, row, self.time)
        self.end(form, shown, self.time)
        if form.showing is not None:
            form.showing.note_kept(shown)

    @property
    def placeholder(self) -> Any:
        """Returns the term that stands in rows of bodies for columns that time fills."""
        return self.terms.of(0)

    def occurrence(self, form: PastRows, row: Row, time: int) -> Row:
        """Returns the row that shows an occurrence that began at a time: with a number of its own.

        Where no rule reads the time it is a number, whose term takes 200 bytes less.
        """
        is_read = form.of.is_exact or form.of.kind is TimeKind.FINAL
        at = self.terms.of(time_of(time) if is_read else time)
        base = (*row[:-2], at)
        while True:
            made = (*base, self.terms.of(form.number(base, time)))
            if made not in form.kept:
                return made  # else it has been kept since before a restart at this time

    def end(self, form: PastRows, row: Row, time: int) -> None:
        """Keeps a row that has ended at a time, until a span later.

        For ``FINAL`` the time is the beginning, and the row counts until its window leaves.
        """
        of = form.of
        if of.kind is TimeKind.FINAL:
            start = time // of.window * of.window
            self.plan(form, row, start + of.window)
            until = start + of.span
        else:
            until = time + of.span
        before = form.kept.get(row)
        if before is None or of.kind is TimeKind.FINAL:
            self.plan(form, row, until)
        if before is None or before < until:
            self.put(form.kept, row, until)

    def shows(self, form: PastRows, row: Row) -> bool:
        """True if a row that is kept counts now."""
        until = form.kept.get(row)
        if until is None or until <= self.now:
            return False
        return form.of.kind is not TimeKind.FINAL or until - form.of.span + form.of.window <= self.now

    def withdraw(self) -> None:
        """Ends the messages of a tick: rows that stand without them are occurrences of their own."""
        if not self.is_hearing:
            return
        self.is_hearing = False
        for form in self.forms.values():
            if form.showing is not None:
                for row in form.heard & form.showing.counts.keys():
                    form.showing.note(row)

    def conclude(self) -> None:
        """Ends a tick: notes the rows that are there from now on."""
        self.came_due = 0
        self.has_heard = self.is_hearing = False
        for each in self.touched:
            try:
                each.conclude()
            except Exception as error:  # noqa: BLE001  # the same fence
                self.fail(each.form, error)
        self.touched.clear()
        for form in self.forms.values() if self._hearing else ():
            if form.heard:
                form.heard.clear()
        self._look_ahead()

    def concluding(self) -> Steps[None]:
        """Does ``conclude`` in steps."""
        for each in self.touched:
            try:
                yield from each.concluding()
            except Exception as error:  # noqa: BLE001  # the same fence
                self.fail(each.form, error)
        self.touched.clear()
        self.conclude()

    # -- the agenda -----------------------------------------------------------------------------------

    @property
    def is_much_due(self) -> bool:
        """True if the turn of the earliest instant takes so long that it is made in steps."""
        return self.pending >= MUCH and len(self._agenda.get(self.next, ())) >= MUCH

    def plan(self, form: PastRows, row: Row, time: int) -> None:
        """Has a row looked at in the first tick at or after a time; not if that is past."""
        self.plan_at(form, row, instant_of(time))

    def plan_at(self, form: PastRows, row: Row, instant: int) -> None:
        """As ``plan``, for an instant."""
        if instant <= self.now or instant >= NEVER:
            return
        bucket = self._agenda.get(instant)
        if bucket is None:
            self._agenda[instant] = bucket = []
            heappush(self._instants, instant)
        bucket.append((form, row))
        self.pending += 1
        self._journal.append((bucket, instant, None))

    def _taken(self, instant: int) -> list[_Entry]:
        bucket = self._agenda.get(instant)
        if bucket is None:
            return []
        self._journal.append((self._agenda, instant, bucket))
        del self._agenda[instant]
        self.pending -= len(bucket)
        return bucket

    def _tidy(self) -> None:
        """Drops the stale entries of the agenda, if more than half are; O(forms), or O(entries) then.

        A condition that comes and goes leaves one each time.
        """
        if self._tidied and self.pending <= 2 * self.rows + STALE_FROM:
            self._tidied = 2 * self.rows + STALE_FROM
            return
        alive = set(map(id, self.forms.values()))
        for instant, bucket in list(self._agenda.items()):
            fresh = [
                each for each in dict.fromkeys(bucket) if id(each[0]) in alive and is_fresh(*each, instant)
            ]
            if fresh:
                self._agenda[instant] = fresh
            else:
                del self._agenda[instant]
        self._count()
        self._tidied = 2 * self.rows + STALE_FROM

    def _count(self) -> None:
        """Makes what is known of the agenda anew."""
        self.pending = sum(map(len, self._agenda.values()))
        self._instants = list(self._agenda)
        heapify(self._instants)
        self._look_ahead()

    def _look_ahead(self) -> None:
        while self._instants and self._instants[0] not in self._agenda:
            heappop(self._instants)
        self.next = self._instants[0] if self._instants else NEVER

    def due(self, time: int, most: int) -> list[int]:
        """Returns the instants up to a time at which there have to be ticks; evenly chosen if too many.

        The last of them is always there.  Further ones may come of the ticks at these.
        """
        found = sorted(each for each in self._agenda if each <= time)
        if len(found) <= most:
            return found
        return [found[(at + 1) * len(found) // most - 1] for at in range(most)]

    # -- over restarts --------------------------------------------------------------------------------

    def past(self, *, is_half: bool = False) -> Iterator[tuple[Value, ...]]:
        """Yields what epochs of the last spans do not say: since when rows have been there, and the ended
        stays of windows that show times.

        What it yields is from now on, also if it goes on later.  If a tick is half done, from before it.
        O(rows) at once, without their values.
        """
        tables = {
            id(table): table.copy()
            for form in self.forms.values()
            for table in (form.since, form.kept, form.open)
            if form.is_old
        }
        for table, at, value in reversed(self._journal) if is_half else ():
            if (copy := tables.get(id(table))) is not None:
                if value is _GONE:
                    copy.pop(at, None)
                else:
                    copy[at] = value
        return self._past_of([form for form in self.forms.items() if form[1].is_old], tables)

    def _past_of(
        self, forms: Sequence[tuple[Hashable, PastRows]], tables: Mapping[int, dict[Row, Any]]
    ) -> Iterator[tuple[Value, ...]]:
        for label, form in forms:
            open_, span = tables[id(form.open)], form.of.span
            assert isinstance(label, str)  # as ``lowering`` calls them; and a text is its own key
            yield label, None
            for row, since in tables[id(form.since)].items():
                shown = open_.get(row)
                number = 0 if shown is None else shown[-1].value
                yield label, tuple([term.value for term in row]), since, None, number
            if form.of.kind is TimeKind.OCCURRENCES:
                for row, until in tables[id(form.kept)].items():
                    since = _time_in(row[-2])
                    if since is not None and since < until - span:  # the stay of a fact, not a message
                        values = tuple([term.value for term in row[:-2]])
                        yield label, values, since, until, row[-1].value

    def load(self, past: Iterable[Sequence[Value]]) -> None:
        """Takes over what ``past`` has given, for forms that have read the epochs up to that time."""
        found: dict[Hashable, list[Sequence[Value]]] = {}
        for label, *entry in past:
            rows = found.setdefault(key(label), [])
            if entry[0] is not None:
                rows.append(entry)
        for at, form in list(self.forms.items()):
            if form.is_old and at in found:
                try:
                    self._load(form, found[at])
                except Exception as error:  # noqa: BLE001  # the same fence
                    self.fail(form, error)

    def _load(self, form: PastRows, entries: Iterable[Sequence[Any]]) -> None:
        of, terms = form.of, self.terms
        if of.kind is TimeKind.OCCURRENCES:
            for row, until in list(form.kept.items()):
                since = _time_in(row[-2])
                if since is not None and since < until - of.span:
                    self.drop(form.kept, row)
                    self._note(form, row)
        for values, since, until, number in entries:
            row = terms.row(tuple(values))
            if until is not None:
                row = (*row, terms.of(time_of(since)), terms.of(number))
                self.plan(form, row, until)
                self.put(form.kept, row, until)
                self._note(form, row)
            elif row in form.since:
                self.put(form.since, row, since)
                if of.kind is TimeKind.FOR:
                    self.plan(form, row, since + of.span)
                if row in form.open:
                    shown = (*row[:-2], terms.of(time_of(since)), terms.of(number))
                    self.put(form.open, row, shown)
                if form.showing is not None:
                    form.showing.note(row)

    def _note(self, form: PastRows, row: Row) -> None:
        if form.showing is not None:
            form.showing.note_kept(row)

    # -- undoing --------------------------------------------------------------------------------------

    def put(self, table: dict[Any, Any], at: Any, value: Any) -> None:
        """Changes an entry of a table of forms; ``undo`` takes it back."""
        self._journal.append((table, at, table.get(at, _GONE)))
        table[at] = value

    def drop(self, table: dict[Any, Any], at: Any) -> None:
        """Removes an entry, if there is one."""
        if at in table:
            self._journal.append((table, at, table[at]))
            del table[at]

    def mark(self) -> None:
        """Begins a turn, which ``undo`` takes back."""
        if self._journal:
            self._journal.clear()
        if self.pending > self._tidied:
            self._tidy()

    def clear(self) -> None:
        """Forgets all forms; programs that show them must be made anew."""
        self.forms.clear()
        self._agenda.clear()
        self._journal.clear()
        self.undo()

    def due_labels(self) -> list[Hashable]:
        """Returns the heads of which rows are due at the earliest instant."""
        due = {id(form) for form, _ in self._agenda.get(self.next, ())}
        return [at for at, form in self.forms.items() if id(form) in due]

    def undo(self) -> None:
        """Makes everything as it was at the ``mark``; programs that show it must be made anew."""
        for table, at, value in reversed(self._journal):
            if isinstance(table, list):
                table.pop()
                if not table and self._agenda.get(at) is table:
                    del self._agenda[at]
            elif value is _GONE:
                table.pop(at, None)
            else:
                table[at] = value
        self._journal.clear()
        self.touched.clear()
        self.noted.clear()
        self.failed.clear()
        self.came_due = 0
        self.has_heard = self.is_hearing = False
        for form in self.forms.values():
            form.heard.clear()
            form.showing = None
        self._hearing = None
        self._count()


def is_fresh(form: PastRows, row: Row, instant: int) -> bool:
    """True if a row has to be looked at, at an instant of the agenda."""
    of, since, until = form.of, form.since.get(row), form.kept.get(row)
    match of.kind:
        case TimeKind.FOR:
            return since is not None and instant_of(since + of.span) == instant
        case TimeKind.NOW:
            return since is not None and instant in bounds_of(of.operators, row)
        case TimeKind.FINAL:
            return until is not None and instant in (
                instant_of(until),
                instant_of(until - of.span + of.window),
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
            return RowTimes(_time_in(row[-2]), until, until is None)
        case TimeKind.AT:
            return RowTimes(_time_in(row[-1]), None, is_there=True)
        case TimeKind.FOR:
            return RowTimes(since, None, is_there=True)
        case TimeKind.NOW:
            begins, ends = bounds_of(of.operators, row)
            return RowTimes(
                begins if begins > -NEVER else since, ends if ends < NEVER else None, is_there=True
            )


def _time_in(term: Any) -> int | None:
    """Returns the time that a column has, in microseconds."""
    value = term.value
    if value.__class__ is datetime:
        return micros_of(value)
    return value if value.__class__ is int else None


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
