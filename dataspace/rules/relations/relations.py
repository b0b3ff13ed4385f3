"""Relations: rows that hold, with the support that each of them has.

A row is there because of *derivations*: ways in which rules, or an owner's claim, make it hold.  In a cycle
of rules facts can support each other, so counting derivations is not enough to retract.  Each row keeps

    tot     its derivations among the rows that are there now
    wf      those of them whose premises within its own cycle are all older than itself
    born    when it was inserted: a stamp that only grows; 0 while it is absent, -1 once this is not its state
    said    True if its fact was published when a tick last ended
    row     itself, so that a state is enough to find it
    fact    the fact that was published last, if any was

Proofs made of ``wf`` derivations go strictly down in stamps, so no row supports itself.  When ``wf`` becomes
0 the row goes, and its own derivations are discounted.  If ``tot`` is not 0 then, it comes back with a new
stamp.  Nothing is searched for, and hardly more is deleted than has to go.

Always: between ticks a row is here exactly if ``tot > 0``, then ``wf > 0`` and ``born > 0``; every index
holds exactly the rows that are there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final, Protocol, TypeAlias

from dataspace.rules.relations.terms import Row
from dataspace.steps import Steps, batched
from index.emitter import Script, tuple_of
from index.values.values import Value

STEP: Final = 64
"""Rows of one step, where a tick is done in steps."""

State: TypeAlias = list[Any]
"""tot, wf, born, said, row, fact: a list, since Python makes, reads and changes nothing else as quickly."""

Bucket: TypeAlias = dict[Row, State]
Columns: TypeAlias = tuple[int, ...]
Index: TypeAlias = defaultdict[Any, Bucket]
"""By the term of the one column, or the tuple of terms of several."""


class Trigger(Protocol):
    """The action when a row comes, or when a row goes: written into the functions of its relation."""

    def write(self, script: Script, fields: Sequence[str]) -> None:
        """Writes it, where ``row``, its state ``st`` and its fields are known, and in a cycle ``born``."""


class Called:
    """A trigger that is a function of row and state."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[[Row, State], None]) -> None:
        self._function = function

    def write(self, script: Script, fields: Sequence[str]) -> None:
        """Writes the call."""
        script.line(f"{script.bind(self._function)}(row, st)")


class Table(Protocol):
    """What a relation does to many rows at once, written out for it (``tables``)."""

    def delete(self, states: list[State]) -> list[State]:
        """Deletes the rows that have lost their support; returns the rows that are to be looked at again."""

    def insert(self, states: list[State], stamp: int) -> int:
        """Inserts the rows that are absent and supported; the highest stamp given."""

    def settle(self) -> None:
        """Does both for all pending rows, where the relation is in no cycle."""

    def take(self, value: Value, by: int) -> None:
        """Takes a claim more or less on a value, where only claims support rows: they come and go at once."""


class News:
    """The changes of rows since their last report.

    ``came``: rows that appeared but were not passed on yet.  ``went``: rows without support.  Either may
    contain duplicates, and rows that have changed back since.  ``noted``: rows to be looked at for another
    reason.  A deleted row keeps its state until it has been published.
    """

    __slots__ = ("came", "noted", "went")

    def __init__(self) -> None:
        self.came: list[State] = []
        self.went: list[State] = []
        self.noted: list[Row] = []

    def __bool__(self) -> bool:
        return bool(self.came or self.went or self.noted)

    def rows(self) -> dict[Row, None]:
        """Returns all rows that may hold now and did not, or the other way round."""
        return dict.fromkeys([*[state[4] for state in (*self.went, *self.came)], *self.noted])

    def clear(self) -> None:
        """Forgets all, in place: the table of the relation has it as well."""
        self.came.clear()
        self.went.clear()
        self.noted.clear()


class Relation:
    """Rows, their indexes, and the functions to run when a row comes or goes."""

    __slots__ = (
        "base",
        "in_cycle",
        "indexes",
        "is_plain",
        "name",
        "news",
        "on_delete",
        "on_insert",
        "pending",
        "states",
        "table",
        "publishes",
        "width",
    )

    def __init__(self, name: str, width: int, *, publishes: bool = False) -> None:
        self.name = name
        self.publishes = publishes  # True if its rows become facts, so that its news are read
        self.width = width
        self.in_cycle = False
        self.is_plain = False  # True where no rule derives its rows: then claims are all that counts
        self.states: dict[Row, State] = {}
        self.indexes: dict[Columns, Index] = {}
        self.on_insert: list[Trigger] = []
        self.on_delete: list[Trigger] = []
        self.pending: list[State] = []
        self.base: dict[Row, int] = {}
        self.news = News()
        self.table: Table

    def index(self, columns: Columns) -> Index:
        """Returns the index by some columns, or a new one, in which ``fill`` files the rows there are."""
        known = self.indexes.get(columns)
        if known is None:
            known = self.indexes[columns] = defaultdict(dict)
        return known

    def fill(self) -> None:
        """Files the rows that are there in each index that is empty, as new ones are.  O(rows) for each."""
        for columns, index in self.indexes.items():
            if not index:
                for row, state in self.states.items():
                    if state[2] > 0:
                        at = row[columns[0]] if len(columns) == 1 else tuple([row[each] for each in columns])
                        index[at][row] = state

    def has(self, row: Row) -> bool:
        """True if a row is there; O(1)."""
        state = self.states.get(row)
        return state is not None and state[2] > 0

    def count(self) -> int:
        """Returns the number of rows that are there between ticks; O(1), or O(rows that went)."""
        return len(self.states)

    def size(self) -> int:
        """Entries in all tables; O(index entries)."""
        indexed = sum(len(bucket) for index in self.indexes.values() for bucket in index.values())
        return len(self.states) + len(self.base) + len(self.pending) + indexed

    def support(self, row: Row, by: int) -> None:
        """Counts a derivation more, or less, from outside of any cycle."""
        state = self.states.get(row)
        if state is None:
            self.states[row] = state = [1, 0, 0, False, row, None]
            self.pending.append(state)
            return
        state[0] += by
        if state[2]:
            state[1] += by
        if not state[1] or not state[2]:
            self.pending.append(state)

    def claim(self, row: Row, by: int) -> None:
        """Counts an owner's claim on the row: it supports the row, whose fact is then not derived."""
        self.note(row, by)
        self.support(row, by)

    def note(self, row: Row, by: int) -> None:
        """Counts an owner's claim on the fact of the row, which does not support the row here."""
        before = self.base.get(row, 0)
        if before + by:
            self.base[row] = before + by
        else:
            del self.base[row]
        if self.publishes and (before == 0 or before + by == 0):
            self.news.noted.append(row)

    def derived(self, row: Row) -> bool:
        """True if rules make this row hold, and no owner claims it."""
        return row not in self.base and self.has(row)


def settle(cycle: list[Relation], stamp: int, spend: Callable[[Relation, int], None]) -> int:
    """Runs one cycle of relations until nothing moves; the highest stamp given.

    First what lost its support goes, one row at a time, then what is supported comes.  ``spend`` counts
    insertions before they happen, and may raise.  O(derivations touched).
    """
    waiting: list[tuple[Relation, list[State]]] = []
    moved = True
    while moved:
        moved = False
        for relation in cycle:
            if relation.pending:
                moved = True
                touched = relation.pending[:]
                relation.pending.clear()
                waiting.append((relation, relation.table.delete(touched)))
    while waiting:
        for relation, states in waiting:
            spend(relation, len(states))
            stamp = relation.table.insert(states, stamp)
        waiting = []
        for relation in cycle:
            if relation.pending:
                waiting.append((relation, relation.pending[:]))
                relation.pending.clear()
    return stamp


def in_parts(
    pending: list[State] | dict[Row, None], settle: Callable[[], None], uncounted: int = 0
) -> Steps[None]:
    """Calls ``settle`` for parts of ``pending``, each with more than the ``uncounted`` rows.

    For what changes in one pass over its rows, so that parts of it make no difference.
    """
    whole: list[Any] = [*pending]
    pending.clear()
    for some in batched(whole, max(STEP, uncounted + 1)):
        if isinstance(pending, dict):
            pending.update(dict.fromkeys(some))
        else:
            pending += some
        settle()
        yield


# -- fences ----------------------------------------------------------------------------------------
#
# Components share the views of base facts. The function of a view for a row that comes calls the triggers of
# one component after the other. If a rule raises because of a row, all others get that row nevertheless.


class Fenced:
    """A trigger of one engine on the rows of base facts: its errors fail that engine and no other."""

    def __init__(self, trigger: Trigger, relation: Relation, fail: Callable[[Exception], None]) -> None:
        self.trigger = trigger
        self._width = relation.width
        self._fail = fail

    def write(self, script: Script, fields: Sequence[str]) -> None:
        """Writes it; the fence costs nothing as long as nothing is raised."""
        script.line("try:")
        script.depth += 1
        since = script.mark()
        self.trigger.write(script, fields)
        if script.mark() == since:
            script.line("pass")
        script.depth -= 1
        script.line(f"except Exception as error: {script.bind(self._fail)}(error)")

    @cached_property
    def function(self) -> Callable[[Row, State], None]:
        """Returns the same as a function."""
        script, fields = Script(), [f"f{at}" for at in range(self._width)]
        script.begin("def run(row, st):", loops=False)
        if fields:
            script.line(f"{tuple_of(fields)} = row")
        self.write(script, fields)
        return script.functions("run")["run"]  # type: ignore[no-any-return]  # defined by the text
