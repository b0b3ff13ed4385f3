"""Hearing: the messages of one turn, as the windows of one form keep them.

A turn may have thousands of messages for one window.  The time of the turn, until when its messages count
and where that stands in the agenda are the same for all of them, so they are found once; a message that
equals the one before is read once.

Always: the kept rows and their order are as if each message were kept by itself.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

from dataspace.rules.language.syntax import TimeKind
from dataspace.rules.relations.past_rows import PastRows
from dataspace.rules.relations.terms import MAX_FACT, Row, RuleTerm
from index.values.values import Value

GONE: Final = object()
"""In the journal of ``Times``: the former value of an entry that was not there."""


class Hearing:
    """Keeps the messages of one turn that a form reads; 4 to 8 µs for each."""

    __slots__ = (
        "_at",
        "_base",
        "_form",
        "_is_alone",
        "_key",
        "_planned",
        "_row",
        "_size",
        "_times",
        "_until",
    )

    def __init__(self, form: PastRows, times: Any) -> None:
        """``times`` are the ``Times`` that the form is in, which make this."""
        self._form = form
        self._times = times
        self._key: Hashable = self  # of the last message; no key of any
        self._row: Row | None = None
        self._base: Row = ()
        self._size = 0
        self._planned: list[tuple[list[Any], int]] = []
        """The lists of the agenda that rows are put on, with their instants; once the first row is kept."""
        self._is_alone = form.of.kind is not TimeKind.WITHIN
        if self._is_alone:
            self._at: RuleTerm = times.shown_time(form, times.time)
            self._until = form.until(times.time)

    def hear(self, message: Value, at: Hashable) -> None:
        """Keeps a message with this key, if the form reads it."""
        if at != self._key:
            self._key = self
            values = self._form.read(message)
            self._row = None if values is None else self._times.terms.row(values)
            if self._row is not None:
                self._begin(self._row, message)
            self._key = at
        elif not self._is_alone:
            return  # equal messages are one row
        if self._row is not None and self._is_alone:
            self._keep()

    def _begin(self, row: Row, message: Value) -> None:
        """Begins with messages that are read as this row."""
        form, times = self._form, self._times
        if not self._is_alone:
            times.end(form, row, times.time)
            if form.showing is not None:
                form.showing.note(row)
            return
        form.heard.add((*row, times.placeholder, times.terms.of(message)))
        times.has_heard = True
        self._base = (*row, self._at)
        self._size = sum([min(term.size, MAX_FACT) for term in self._base])

    def _keep(self) -> None:
        """Keeps one occurrence of that row, with a number of its own.

        As ``Times.end`` and ``put``, without their calls: a row comes here once and is not kept yet.
        """
        form, times, base = self._form, self._times, self._base
        kept, time = form.kept, times.time
        while True:
            number = times.terms.of(form.number(base, time))
            row = (*base, number)
            if row not in kept:
                break  # else it has been kept since before a restart at this time
        if self._planned:
            for entries, instant in self._planned:
                entries.append((form, row))
                times.pending += 1
                times.journal.append((entries, instant, None))
        else:
            for instant in form.instants(time):
                if (begun := times.plan_at(form, row, instant)) is not None:
                    self._planned.append((begun, instant))
        times.journal.append((kept, row, GONE))
        size = self._size + number.size
        kept.value_bytes += size
        times.value_bytes += size
        kept[row] = self._until
        if form.showing is not None:
            form.showing.note_kept(row)
