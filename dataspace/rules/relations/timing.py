"""Timing: the rows of a rule as they are shown over time.

It stands where ``Grouping`` stands: it takes the solutions of a body, and once its stratum runs passes to the
head what is shown of them now.  It waits for all of its inputs, so that nothing comes and goes within a tick.
Its ``PastRows`` have the state from tick to tick, and a later engine goes on from them.

Always: the shown rows follow from the form, the solutions and the time of the tick.  The form
changes only when the tick is concluded.
"""

from __future__ import annotations

from collections.abc import Iterable

from dataspace.instants import NEVER, instant_of
from dataspace.rules.language.arithmetic import time_of
from dataspace.rules.language.syntax import TimeKind
from dataspace.rules.relations.past_rows import PastRows, bounds_of, next_change, shown_at
from dataspace.rules.relations.relations import STEP, Relation
from dataspace.rules.relations.terms import Row
from dataspace.rules.relations.times import Times
from dataspace.steps import Steps, batched


class Timing:
    """The rows of one head that depends on time.

    ``change(row, taken, by)`` says that there is a solution more, or less; ``settle()`` passes on what is
    shown.  O(1) for a row.
    """

    __slots__ = (
        "_head",
        "_bounds",
        "_compares",
        "_moved",
        "_seen",
        "_shown",
        "_times",
        "counts",
        "form",
        "owner",
        "pending",
    )

    def __init__(self, form: PastRows, times: Times, head: Relation, owner: object) -> None:
        """``owner`` is the engine that it belongs to, which is to settle when a row was noted."""
        self.owner = owner
        self.form = form
        self.pending: dict[Row | None, None] = {}
        """Rows of the body to be looked at; None if rows that are kept by themselves are."""
        self.counts: dict[Row, int] = {}
        self._times = times
        self._head = head
        self._shown: dict[Row, Row] = {}
        self._moved: dict[Row, None] = {}
        self._bounds: dict[Row, tuple[int, int]] = {}
        """From when until when rows that have just come compare with the present as they must."""
        self._seen: dict[Row, None] = {}
        """The rows of the body that were looked at in this tick."""
        self._compares = form.of.kind is TimeKind.NOW
        form.showing = self
        self.pending.update(dict.fromkeys(form.since))
        for row in form.kept:
            if self._is_each_alone:
                self.note_kept(row)
            else:
                self.note(row)

    def __len__(self) -> int:
        return len(self.counts) + len(self._shown)

    @property
    def _is_each_alone(self) -> bool:
        return self.form.of.kind in (TimeKind.OCCURRENCES, TimeKind.FINAL)

    def note(self, row: Row) -> None:
        """Notes a row that has to be looked at."""
        self.pending[row] = None
        self._times.noted[self] = None

    def note_kept(self, row: Row) -> None:
        """Notes a row of one occurrence, which is kept by itself."""
        self._moved[row] = None
        self.pending[None] = None
        self._times.noted[self] = None

    def change(self, row: Row, _taken: Row, by: int) -> None:
        """Takes a solution more, or less."""
        count = self.counts.get(row, 0) + by
        if count:
            self.counts[row] = count
        else:
            del self.counts[row]
        self.pending[row] = None

    def settle(self) -> None:
        """Passes to the head what has changed."""
        self._settle(self.pending, self._moved)
        self._moved.clear()
        self.pending.clear()

    def settling(self) -> Steps[None]:
        """Does ``settle`` in steps."""
        for rows in batched(self.pending, STEP):
            self._settle(rows, ())
            yield
        for kept in batched(self._moved, STEP):
            self._settle((), kept)
            yield
        self._moved.clear()
        self.pending.clear()

    def _settle(self, rows: Iterable[Row | None], kept: Iterable[Row]) -> None:
        support, shown = self._head.support, self._shown
        self._times.touched[self] = None
        for row in rows:
            if row is None:
                continue
            self._seen[row] = None
            now, before = self._row(row), shown.get(row)
            if now == before:
                continue
            if before is not None:
                support(before, -1)
                del shown[row]
            if now is not None:
                support(now, +1)
                shown[row] = now
        states, shows = self._head.states, self._times.shows
        for row in kept:
            state = states.get(row)
            is_shown = state is not None and state[0] > 0  # nothing else derives rows of this head
            if shows(self.form, row) != is_shown:
                support(row, -1 if is_shown else +1)

    def _row(self, row: Row) -> Row | None:
        """Returns what is shown for a row of the body; None for nothing."""
        form, times = self.form, self._times
        is_there, since = row in self.counts, form.since.get(row)
        if self._compares:
            if not is_there:
                return None
            begins, ends = bounds = bounds_of(form.of.operators, row)
            if since is None:
                self._bounds[row] = bounds
            return row if begins <= times.now < ends else None
        match form.of.kind:
            case TimeKind.CLOCK:
                values = shown_at(form.of, times.now) if is_there else None
                return None if values is None else times.terms.row(values)
            case TimeKind.WITHIN:
                return row if is_there or since is not None or form.kept.get(row, 0) > times.now else None
            case TimeKind.AT:
                begun = times.time if since is None else since
                return (*row[:-1], times.terms.of(time_of(begun))) if is_there else None
            case TimeKind.FOR:
                is_old = is_there and since is not None and since + form.of.span <= times.now
                return row if is_old else None
            case TimeKind.OCCURRENCES:
                if since is not None:
                    return form.open[row]
                if not is_there or (times.is_hearing and row in form.heard and row not in self._shown):
                    return None  # a message is kept by itself
                return self._shown.get(row) or times.occurrence(form, row, times.time)
        return None

    def conclude(self) -> None:
        """Notes in the form which rows are there at the end of the tick."""
        self._conclude(self._seen)
        self._seen.clear()
        self._bounds.clear()

    def concluding(self) -> Steps[None]:
        """Does ``conclude`` in steps."""
        for rows in batched(self._seen, STEP):
            self._conclude(rows)
            yield
        self._seen.clear()
        self._bounds.clear()

    def _conclude(self, rows: Iterable[Row]) -> None:
        form, times = self.form, self._times
        if form.showing is not self:
            return  # its engine has gone in this tick
        for row in rows:
            is_there, since = row in self.counts, form.since.get(row)
            if is_there and since is None:
                times.put(form.since, row, times.time)
                self._begin(row)
            elif since is not None and not is_there:
                times.drop(form.since, row)
                self._end(row)

    def _begin(self, row: Row) -> None:
        form, times = self.form, self._times
        match form.of.kind:
            case TimeKind.FOR:
                times.plan(form, row, times.time + form.of.span)
            case TimeKind.NOW:
                for instant in self._bounds[row]:
                    if -NEVER < instant < NEVER:
                        times.plan_at(form, row, instant)
            case TimeKind.CLOCK:
                times.plan_at(form, row, instant_of(next_change(form.of, times.now)))
            case TimeKind.OCCURRENCES:
                times.put(form.open, row, self._shown[row])
            case TimeKind.FINAL:
                times.end(form, times.occurrence(form, row, times.time), times.time)

    def _end(self, row: Row) -> None:
        form, times = self.form, self._times
        if form.of.kind is TimeKind.WITHIN:
            times.end(form, row, times.time)
        elif form.of.kind is TimeKind.OCCURRENCES:
            ended = form.open[row]
            times.drop(form.open, row)
            times.end(form, ended, times.time)
            self._shown.pop(row, None)
