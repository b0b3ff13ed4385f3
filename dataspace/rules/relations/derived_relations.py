"""Heads: the relations that rules derive, and how their rows become facts, messages, or rows of others.

A row of a head is not a fact by itself: owners may claim that fact as well, and within a tick rows come and
go.  So a row keeps the fact that was published for it, and at the end of a tick only the rows are looked at
that differ from their published facts.

Always: after ``publish`` the published facts are the facts of the present rows that no owner claims.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Final

from dataspace.flows.results import Derived
from dataspace.rules.language.syntax import Verb
from dataspace.rules.relations.relations import Called, Relation, State
from dataspace.rules.relations.terms import Row, Terms, term_text
from dataspace.rules.relations.views import View
from index.emitter import Script, tuple_of
from index.patterns.text import unparse
from index.values.columns import record_frame
from index.values.values import Record, Value, key

MAX_RETIRED: Final = 10_000
MAX_MAKERS: Final = 4096
"""Labels, with numbers of fields, for which the function that makes their facts is kept."""

MAX_RETIRED_TEXT: Final = 1024 * 1024
"""Rows that are gone and whose states are kept, for each head; and characters of their facts."""


class HeadRelation(Relation):
    """The rows that rules derive under one label, with one number of fields."""

    __slots__ = ("_most", "held", "is_shown", "make", "of", "retired", "verb")

    def __init__(self, label: Value, arity: int, verb: Verb) -> None:
        name = unparse(Record.of(label, ())).removesuffix("()")
        shown = name if verb in (Verb.ASSERT, Verb.HIDDEN) else f"{verb}({name})"
        super().__init__(shown, arity, publishes=verb is not Verb.HIDDEN)
        self.of = label
        self.verb = verb
        self.is_shown = False  # True where a view of all its fields is this relation itself
        self.make: Final = maker(label, arity)
        self.retired: list[State] = []  # of rows that have gone and may be in no table but ``states``
        self._most = MAX_RETIRED  # fewer once large facts have been made
        self.held: dict[Row, None] = {}  # of ``next``: what holds in this tick because of the one before

    def fact(self, row: Row) -> Record:
        """Returns the fact that a row stands for."""
        return self.make(row)

    def said(self) -> Iterator[Value]:
        """Yields the facts that followed when the last tick was published."""
        for state in self.states.values():
            if state[3]:
                yield state[5]

    def publish(self, derived: Derived) -> None:
        """Says what has changed since it was last said, and makes the facts of it.

        Keeps the states of deleted rows for when they come back, which many do, and soon: no more than a
        quarter of all rows, since a kept state goes with its causes.
        """
        came, went = self.news.came, self.news.went
        if came:
            base, say = self.base, derived.added.append
            for state in came:
                if state[2] and not state[3] and not (base and state[4] in base):
                    fact = state[5] or self._make(state)
                    state[3] = True
                    say(fact)
            came.clear()  # in place, here and below: the table of the relation has it as well
        if went:
            is_kept, say = True, derived.removed.append
            for state in went:
                if state[3]:
                    if not state[2]:
                        state[3] = False
                        say(state[5])
                elif state[5] is None:  # what has not been a fact may be of any size
                    is_kept = False
            retired = self.retired
            retired += went
            went.clear()
            if not is_kept or 4 * len(retired) > len(self.states) or len(retired) > self._most:
                self.forget(retired)
        if self.news.noted:
            self._publish_noted(derived)

    def _make(self, state: State) -> Record:
        """Returns the fact of a row that is published for the first time."""
        state[5] = fact = self.make(state[4])
        if len(fact.text) * self._most > MAX_RETIRED_TEXT:
            self._most = MAX_RETIRED_TEXT // len(fact.text)
        return fact

    def _publish_noted(self, derived: Derived) -> None:
        """Does the same for rows whose facts others have begun to claim, or do no longer."""
        for row in self.news.noted:
            state = self.states.get(row)
            if state is None or not state[2]:
                continue
            if row in self.base:
                if state[3]:
                    derived.removed.append(state[5])
                    state[3] = False
            elif not state[3]:
                state[5] = state[5] or self.make(row)
                state[3] = True
                derived.added.append(state[5])
        self.news.noted.clear()

    def count(self) -> int:
        kept = {id(state): state for state in self.retired}.values()
        return super().count() - sum(not state[0] for state in kept)

    def size(self) -> int:
        kept = {id(state): state for state in self.retired}.values()
        return super().size() - sum(not state[0] for state in kept)

    def forget(self, states: list[State]) -> None:
        """Drops the states of rows that are not there."""
        mine = self.states
        for state in states:
            if not state[0]:
                mine.pop(state[4], None)
        states.clear()

    def send(self, messages: list[Value]) -> None:
        """Says what holds and did not when this was last called."""
        derived = Derived([], [], [])
        self.publish(derived)
        messages += derived.added

    @property
    def is_due(self) -> bool:
        """True if the tick that follows has changes to take from ``next``."""
        return any(self.has(row) != (row in self.held) for row in self.news.rows())

    def delay(self) -> list[tuple[Row, int]]:
        """Returns, for ``next``, the rows that begin or end to hold in the tick that follows."""
        held = self.held
        changes = [
            (row, -1 if row in held else +1) for row in self.news.rows() if self.has(row) != (row in held)
        ]
        for row, by in changes:
            if by > 0:
                held[row] = None
            else:
                del held[row]
        self.forget(self.news.went)
        self.news.clear()
        return changes


def lead(
    head: HeadRelation, view: View, terms: Terms, look: Callable[[int], None], *, within: bool
) -> Callable[[Row, State], None]:
    """Makes the rows of a head support those of a view; ``within`` one cycle, stamps are compared.

    Returns the function that is called with each row that comes; calls it for the rows that are there
    already.  ``look`` pays for each row that is shown.  A row that is too large to be a fact is not shown:
    its rule has failed.
    """
    project = view.projection(head.of, head.width, terms)
    states, touch = view.states, view.pending.append

    def insert(row: Row, state: State) -> None:
        look(1)
        head_row = project(row)
        if head_row is None:
            return
        known = states.get(head_row)
        if known is None:
            states[head_row] = known = [1, 0, 0, False, head_row, None]
            touch(known)
        else:
            if not known[0]:
                touch(known)
            known[0] += 1
            if not within:
                known[1] += 1

    def delete(row: Row, state: State) -> None:
        head_row = project(row)
        if head_row is None:
            return
        known = states[head_row]
        known[0] -= 1
        if known[2] > state[2] if within else known[2]:
            known[1] -= 1
            if not known[1]:
                touch(known)

    head.on_insert.append(Called(insert))
    head.on_delete.append(Called(delete))
    return insert


def maker(label: Value, arity: int) -> Callable[[Row], Record]:
    """Returns what makes the fact of a row, written out, since loops over its fields would cost most.

    The text of the fact, by which it is found everywhere, is put together from the texts of its terms.
    """
    at = key(label), arity
    known = _MAKERS.get(at)
    if known is None:
        if len(_MAKERS) >= MAX_MAKERS:
            _MAKERS.clear()
        known = _MAKERS[at] = _made(label, arity)
    return known


_MAKERS: Final[dict[tuple[Hashable, int], Callable[[Row], Record]]] = {}
"""Functions that were made before: a component that is made anew asks for the same ones."""


def _made(label: Value, arity: int) -> Callable[[Row], Record]:
    begin, between, end = record_frame(label, arity)
    script = Script()
    of, text, label_name = script.bind(Record.of), script.bind(term_text), script.bind(label)
    frame = [f"{{{script.bind(part)}}}" for part in (begin, between, end)]
    fields = [f"t{at}" for at in range(arity)]
    script.line("def make(row):")
    script.depth = 1
    if fields:
        script.line(f"{tuple_of(fields)} = row")
    values = tuple_of([f"{each}.value" for each in fields])
    texts = frame[1].join([f"{{{each}.text or {text}({each})}}" for each in fields])
    script.line(f"return {of}({label_name}, {values}, f'{frame[0]}{texts}{frame[2]}')")
    return script.functions("make")["make"]  # type: ignore[no-any-return]  # defined by the text
