"""Heads: the relations that rules derive, and how their rows become facts, messages, or rows of others.

A row of a head is not a fact by itself: somebody may claim that fact as well, and within a tick rows come
and go.  So a row keeps the fact that it was said to be, and when the tick is over only those rows are
looked at that do not agree with what was said.

Always: after ``publish`` the facts that are said are those of the rows that are there and nobody claims.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from dataspace.rules.derived import Derived
from dataspace.rules.relations import Called, Relation, State
from dataspace.rules.syntax import Verb
from dataspace.rules.terms import Row, Terms, term_text
from dataspace.rules.views import View
from dataspace.rules.writing import Script, tuple_of
from index.text import unparse
from index.values import Record, Value, record_frame


class HeadRelation(Relation):
    """The rows that rules derive under one label, with one number of fields."""

    __slots__ = ("held", "is_shown", "make", "of", "verb")

    def __init__(self, label: Value, arity: int, verb: Verb) -> None:
        name = unparse(Record.of(label, ())).removesuffix("()")
        super().__init__(name if verb is Verb.ASSERT else f"{verb}({name})", arity, tells=True)
        self.of = label
        self.verb = verb
        self.is_shown = False  # True where a view of all its fields is this relation itself
        self.make: Final = maker(label, arity)
        self.held: dict[Row, None] = {}  # of ``next``: what holds in this tick because of the one before

    def fact(self, row: Row) -> Value:
        """The fact that a row stands for."""
        return self.make(row)

    def said(self) -> Iterator[Value]:
        """The facts that follow as of the last tick that was published, whatever has happened since."""
        for states in (self.news.went, self.states.values()):
            for state in states:
                if state[3] is not None:
                    yield state[3]

    def publish(self, derived: Derived) -> None:
        """Says what has changed since it was last said, and makes the facts of it."""
        news = self.news
        if news.came and news.went:
            self._take_back()
        if news.came:
            base, make, come = self.base, self.make, derived.added.append
            for state in news.came:
                if state[3] is None and state[2] > 0 and state[4] not in base:
                    state[3] = fact = make(state[4])
                    come(fact)
            news.came.clear()  # in place: the table of the relation has it as well
        if news.went:
            derived.removed += [state[3] for state in news.went]
            news.went.clear()
        if news.noted:
            self._publish_noted(derived)

    def _take_back(self) -> None:
        """Has rows that have gone and come back be what they were said to be."""
        news = self.news
        gone = {state[4]: state for state in news.went}
        for state in news.came:
            if state[2] > 0 and state[4] in gone:
                state[3] = gone.pop(state[4])[3]
        news.went[:] = gone.values()

    def _publish_noted(self, derived: Derived) -> None:
        """The same for rows whose facts others have begun to claim, or do no longer."""
        for row in self.news.noted:
            state = self.states.get(row)
            if state is None or not state[2]:
                continue
            if row in self.base:
                if state[3] is not None:
                    derived.removed.append(state[3])
                    state[3] = None
            elif state[3] is None:
                state[3] = self.make(row)
                derived.added.append(state[3])
        self.news.noted.clear()

    def send(self, messages: list[Value]) -> None:
        """Says what holds and did not when this was last called."""
        derived = Derived()
        self.publish(derived)
        messages += derived.added

    @property
    def is_due(self) -> bool:
        """Of ``next``: whether the tick that follows has something to be told."""
        return any(self.has(row) != (row in self.held) for row in self.news.rows())

    def delay(self) -> list[tuple[Row, int]]:
        """Of ``next``: the rows that are to hold in the tick that follows and do not now, or do no longer."""
        held = self.held
        changes = [
            (row, -1 if row in held else +1) for row in self.news.rows() if self.has(row) != (row in held)
        ]
        for row, by in changes:
            if by > 0:
                held[row] = None
            else:
                del held[row]
        for state in self.news.came:
            state[3] = True  # so that its end will be noticed
        self.news.clear()
        return changes


def lead(head: HeadRelation, view: View, terms: Terms, *, within: bool) -> None:
    """Lets the rows of a head support those of a view; ``within`` one cycle, stamps are compared."""
    project = view.projection(head.of, head.width, terms)
    states, touch = view.states, view.pending.append

    def insert(row: Row, state: State) -> None:
        made = project(row)
        if made is None:
            return
        known = states.get(made)
        if known is None:
            states[made] = known = [1, 0, 0, None, made]
            touch(known)
        else:
            known[0] += 1
            if not within:
                known[1] += 1

    def delete(row: Row, state: State) -> None:
        made = project(row)
        if made is None:
            return
        known = states[made]
        known[0] -= 1
        if known[2] > state[2] if within else known[2]:
            known[1] -= 1
            if not known[1]:
                touch(known)

    head.on_insert.append(Called(insert))
    head.on_delete.append(Called(delete))


def maker(label: Value, arity: int) -> Callable[[Row], Value]:
    """What makes the fact of a row, written out: most of what a fact costs would be loops over its fields.

    The text of the fact, by which it is found everywhere, is put together from those of its terms.
    """
    begin, between, end = record_frame(label, arity)
    script = Script()
    of, text, said = script.bind(Record.of), script.bind(term_text), script.bind(label)
    frame = [f"{{{script.bind(part)}}}" for part in (begin, between, end)]
    fields = [f"t{at}" for at in range(arity)]
    script.line("def make(row):")
    script.depth = 1
    if fields:
        script.line(f"{tuple_of(fields)} = row")
    values = tuple_of([f"{each}.value" for each in fields])
    texts = frame[1].join([f"{{{each}.text or {text}({each})}}" for each in fields])
    script.line(f"return {of}({said}, {values}, f'{frame[0]}{texts}{frame[2]}')")
    return script.functions("make")["make"]  # type: ignore[no-any-return]  # defined by the text
