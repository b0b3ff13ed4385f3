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
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, Final, TypeAlias

from dataspace.instants import GRID, NEVER, instant_of
from dataspace.rules.language.arithmetic import time_of
from dataspace.rules.language.syntax import TimeForm, TimeKind
from dataspace.rules.relations.hearing import GONE, Hearing
from dataspace.rules.relations.past_rows import KeptRows, PastRows, is_fresh, next_change, time_in
from dataspace.rules.relations.relations import STEP
from dataspace.rules.relations.terms import MAX_FACT, Row, RuleTerm, Terms
from dataspace.steps import Steps, batched
from index.values.positions import Class, class_of
from index.values.values import Record, Value, key

logger = logging.getLogger("dataspace")

STALE_FROM: Final = 1_000
"""Stale entries are removed from an agenda only if it has more entries than this."""

ROW_BYTES: Final = 700
ENTRY_BYTES: Final = 120
"""About the memory of a kept row beside its values, in engines too, and of an entry of the agenda."""

MUCH: Final = 512
"""Entries of one instant, for which a turn is made in steps: it takes a millisecond or more."""

_Entry: TypeAlias = tuple[PastRows, Row]


class Times:
    """The forms of the rules of a space, and the agenda.

    ``time`` is the time of the tick, in microseconds, and ``now`` the same rounded down to the grid.
    """

    def __init__(self) -> None:
        self.terms: Final = Terms()
        self.time = self.now = 0
        self.ahead = 0
        """The time of the latest turn, made or being made: the next one is not before it."""
        self.next = NEVER
        """The earliest instant on the agenda; a turn at or after it has to wait for a tick at it."""
        self.forms: dict[Hashable, PastRows] = {}
        self.value_bytes = 0
        """Bytes of the values in the rows that are kept, estimated by their texts."""
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
        self.journal: Final[list[tuple[Any, Any, Any]]] = []
        """What ``undo`` takes back: tables or lists, places in them, and former values."""
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

    @property
    def bytes(self) -> int:
        """Returns about how many bytes of memory the rows and the agenda take; O(forms)."""
        return self.value_bytes + ROW_BYTES * self.rows + ENTRY_BYTES * self.pending

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
            self.value_bytes -= self.forms[at].value_bytes
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
        self.look_ahead()

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
            self.value_bytes -= self.forms[at].value_bytes
            self.drop(self.forms, at)
        self.failed.clear()
        self._hearing, self._tidied = None, 0
        self._count()  # it may have been interrupted there
        return found

    def _look_at(self, form: PastRows, row: Row) -> None:
        """Looks at a row whose instant has come."""
        if form.of.kind is TimeKind.CLOCK and row in form.since:
            self.plan_at(form, row, instant_of(next_change(form.of, self.now)))
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
        found: dict[PastRows, Hearing] = {}
        forms = self._hearing
        for message in messages:
            root = (  # as ``class_of``, without its call
                message.label
                if message.__class__ is Record and message.label.__class__ is str
                else class_of(message)
            )
            for form in forms.get(root, ()):
                try:
                    hearing = found.get(form)
                    if hearing is None:
                        hearing = found[form] = Hearing(form, self)
                    hearing.hear(message, key(message))
                except Exception as error:  # noqa: BLE001  # the same fence
                    self.fail(form, error)

    @property
    def placeholder(self) -> Any:
        """Returns the term that stands in rows of bodies for columns that time fills."""
        return self.terms.of(0)

    def occurrence(self, form: PastRows, row: Row, time: int) -> Row:
        """Returns the row that shows an occurrence that began at a time: with a number of its own."""
        base = (*row[:-2], self.shown_time(form, time))
        while True:
            made = (*base, self.terms.of(form.number(base, time)))
            if made not in form.kept:
                return made  # else it has been kept since before a restart at this time

    def shown_time(self, form: PastRows, time: int) -> RuleTerm:
        """Returns the term of a time in rows that show occurrences.

        Where no rule reads the time it is a number, whose term takes 200 bytes less.
        """
        is_read = form.of.is_exact or form.of.kind is TimeKind.FINAL
        return self.terms.of(time_of(time) if is_read else time)

    def end(self, form: PastRows, row: Row, time: int) -> None:
        """Keeps a row that has ended at a time, until a span later.

        For ``FINAL`` the time is the beginning, and the row counts until its window leaves.
        """
        until, before = form.until(time), form.kept.get(row)
        if before is None or form.of.kind is TimeKind.FINAL:
            for instant in form.instants(time):
                self.plan_at(form, row, instant)
        if before is None or before < until:
            self.put(form.kept, row, until)

    def shows(self, form: PastRows, row: Row) -> bool:
        """True if a row that is kept counts now."""
        until = form.kept.get(row)
        if until is None or until <= self.now:
            return False
        return form.of.kind is not TimeKind.FINAL or form.ends(until - form.of.span) <= self.now

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
        self._conclude()
        self.look_ahead()

    def _conclude(self) -> None:
        self.came_due = 0
        self.has_heard = self.is_hearing = False
        for timing in self.touched:
            try:
                timing.conclude()
            except Exception as error:  # noqa: BLE001  # the same fence
                self.fail(timing.form, error)
        self.touched.clear()
        for form in self.forms.values() if self._hearing else ():
            if form.heard:
                form.heard.clear()

    def concluding(self) -> Steps[None]:
        """Does ``conclude`` in steps, without ``look_ahead``.

        A turn that is half made is finished once its instant is due, so another one must not be due before.
        """
        for timing in self.touched:
            try:
                yield from timing.concluding()
            except Exception as error:  # noqa: BLE001  # the same fence
                self.fail(timing.form, error)
        self.touched.clear()
        self._conclude()

    # -- the agenda -----------------------------------------------------------------------------------

    @property
    def is_much_due(self) -> bool:
        """True if the turn of the earliest instant takes so long that it is made in steps."""
        return self.pending >= MUCH and len(self._agenda.get(self.next, ())) >= MUCH

    def plan(self, form: PastRows, row: Row, time: int) -> None:
        """Schedules a row for the first tick at or after a time; does nothing for a past time."""
        self.plan_at(form, row, instant_of(time))

    def plan_at(self, form: PastRows, row: Row, instant: int) -> list[_Entry] | None:
        """As ``plan``, for an instant; returns what is to be looked at then, None if nothing is."""
        if instant <= self.now or instant >= NEVER:
            return None
        bucket = self._agenda.get(instant)
        if bucket is None:
            self._agenda[instant] = bucket = []
            heappush(self._instants, instant)
        bucket.append((form, row))
        self.pending += 1
        self.journal.append((bucket, instant, None))
        return bucket

    def _taken(self, instant: int) -> list[_Entry]:
        bucket = self._agenda.get(instant)
        if bucket is None:
            return []
        self.journal.append((self._agenda, instant, bucket))
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
        self.look_ahead()

    def look_ahead(self) -> None:
        """Finds the next instant at which rows are due."""
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

        The rows are copied at once, without their values: O(rows).  ``is_half`` gives the state before a tick
        that is half done.
        """
        tables = {
            id(table): table.copy()
            for form in self.forms.values()
            for table in (form.since, form.kept, form.open)
            if form.is_old
        }
        for table, at, value in reversed(self.journal) if is_half else ():
            if (copy := tables.get(id(table))) is not None:
                if value is GONE:
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
                    since = time_in(row[-2])
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
                since = time_in(row[-2])
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

    def forget_final(self) -> None:
        """Forgets what windows of ``final`` keep: of rows that were there before the first epoch that is read
        the windows are over, whatever the times of these rows."""
        for form in self.forms.values():
            for row in list(form.kept) if form.of.kind is TimeKind.FINAL else ():
                self.drop(form.kept, row)
                self._note(form, row)

    def _note(self, form: PastRows, row: Row) -> None:
        if form.showing is not None:
            form.showing.note_kept(row)

    # -- undoing --------------------------------------------------------------------------------------

    def put(self, table: dict[Any, Any], at: Any, value: Any) -> None:
        """Changes an entry of a table of forms; ``undo`` takes it back."""
        before = table.get(at, GONE)
        self.journal.append((table, at, before))
        if before is GONE and table.__class__ is KeptRows:
            self._weigh(table, at, +1)
        table[at] = value

    def drop(self, table: dict[Any, Any], at: Any) -> None:
        """Removes an entry, if there is one."""
        if at in table:
            self.journal.append((table, at, table[at]))
            if table.__class__ is KeptRows:
                self._weigh(table, at, -1)
            del table[at]

    def _weigh(self, table: KeptRows, row: Row, by: int) -> None:
        """Counts the values of a row that comes or goes."""
        size = by * sum([min(term.size, MAX_FACT) for term in row])
        table.value_bytes += size
        self.value_bytes += size

    def mark(self) -> None:
        """Begins a turn, which ``undo`` takes back."""
        if self.journal:
            self.journal.clear()
        if self.pending > self._tidied:
            self._tidy()

    def clear(self) -> None:
        """Forgets all forms; programs that show them must be made anew."""
        self.forms.clear()
        self._agenda.clear()
        self.journal.clear()
        self.undo()

    def due_labels(self) -> list[Hashable]:
        """Returns the heads whose rows are due at the earliest instant."""
        due = {id(form) for form, _ in self._agenda.get(self.next, ())}
        return [at for at, form in self.forms.items() if id(form) in due]

    def undo(self) -> None:
        """Makes everything as it was at the ``mark``; programs that show it must be made anew."""
        for table, at, value in reversed(self.journal):
            if isinstance(table, list):
                table.pop()
                if not table and self._agenda.get(at) is table:
                    del self._agenda[at]
            elif value is GONE:
                table.pop(at, None)
            else:
                table[at] = value
        for form in self.forms.values():
            form.since.weigh()
            form.kept.weigh()
        self.value_bytes = sum(form.value_bytes for form in self.forms.values())
        self.journal.clear()
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
