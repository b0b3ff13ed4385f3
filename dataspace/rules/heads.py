"""Heads: the relations that rules derive, and how their rows become facts, messages, or rows of others.

A row of a head is not a fact by itself: somebody may claim that fact as well, and within a tick rows come
and go.  So a head notes which rows have moved, and compares with what it has said when the tick is over.

Always: after ``publish`` the published facts are those of the rows that are there and that nobody claims.
"""

from __future__ import annotations

from dataspace.rules.derived import Derived
from dataspace.rules.relations import Relation, State
from dataspace.rules.syntax import Verb
from dataspace.rules.terms import Row, Terms
from dataspace.rules.views import View
from index.text import unparse
from index.values import Record, Value


class HeadRelation(Relation):
    """The rows that rules derive under one label, with one number of fields."""

    __slots__ = ("held", "is_shown", "of", "published", "verb")

    def __init__(self, label: Value, arity: int, verb: Verb) -> None:
        name = unparse(Record.of(label, ())).removesuffix("()")
        super().__init__(name if verb is Verb.ASSERT else f"{verb}({name})", arity)
        self.of = label
        self.verb = verb
        self.is_shown = False  # True where a view of all its fields is this relation itself
        self.changed = []
        self.published: dict[Row, Value] = {}  # what was said to follow, as facts
        self.held: dict[Row, None] = {}  # of ``next``: what holds in this tick because of the one before

    def fact(self, row: Row) -> Value:
        """The fact that a row stands for."""
        return Record.of(self.of, tuple([term.value for term in row]))

    def publish(self, derived: Derived) -> None:
        """Says what has changed since it was last said, and makes the facts of it."""
        changed, states, base, published = self.changed, self.states, self.base, self.published
        assert changed is not None  # of heads it is kept
        of, label = Record.of, self.of
        come, gone = derived.added.append, derived.removed.append
        for row in changed:
            state = states.get(row)
            if state is not None and state[2] and row not in base:
                if row not in published:
                    fact = published[row] = of(label, tuple([term.value for term in row]))
                    come(fact)
            elif row in published:
                gone(published.pop(row))
        changed.clear()  # in place: the table of the relation has it as well

    def send(self, messages: list[Value]) -> None:
        """Says what holds and did not when this was last called."""
        assert self.changed is not None  # of heads it is kept
        for row in self.changed:
            if not self.has(row):
                self.published.pop(row, None)
            elif row not in self.published:
                self.published[row] = self.fact(row)
                messages.append(self.published[row])
        self.changed.clear()

    def pending_check(self, row: Row) -> None:
        """Has the next tick look whether a row still holds."""
        assert self.changed is not None  # of heads it is kept
        self.changed.append(row)


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
            states[made] = [1, 0, 0]
            touch(made)
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
                touch(made)

    head.on_insert.append(insert)
    head.on_delete.append(delete)
