"""Tables: what a relation does when rows come and go, written out as straight-line Python.

Which indexes a relation has, which rules read it and whether changes are kept is known once the rules are
compiled.  So it is unrolled, and what rules do about a row stands in the same function: for ``reach`` of
``reach($x, $z) <- reach($x, $y), edge($y, $z)``, with an index by ``$y`` for when edges change, as

    def insert(waiting, stamp):
        for st in waiting:
            tot, _, born, said, row, _ = st
            if born: continue
            if tot:
                stamp += 1
                st[1] = tot
                st[2] = stamp
                f0, f1 = row
                by_1[f1][row] = st
                if not said: came.append(st)
                # what the rule does, from its first atom: see ``compiling``
            else: went.append(st)
        return stamp

and ``delete`` likewise.  A relation outside of any cycle has ``settle`` instead of both; a relation that no
rule derives has ``take``, which is given facts and makes their rows as well.

Always: a row is in every index, or in none; while rules are run for a row, it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from dataspace.rules.relations.budgets import TickBudget
from dataspace.rules.relations.relations import Columns, Fenced, Relation, State, Table, Trigger
from dataspace.rules.relations.terms import Terms
from dataspace.rules.relations.views import View
from index.emitter import Script, tuple_of
from index.values.values import Value

UNROLLED: Final = 8
"""Up to so many triggers are written out in one function; more, as rules that share a view, are called."""


def _none(*_: object) -> NoReturn:
    raise AssertionError("no relation of this kind is asked for that")


@dataclass(frozen=True, slots=True)
class WrittenTable:
    """The functions of one relation: the functions that every relation of its kind has."""

    delete: Callable[[list[State]], list[State]] = _none
    insert: Callable[[list[State], int], int] = _none
    settle: Callable[[], None] = _none
    take: Callable[[Value, int], None] = _none


class UnwrittenTable:
    """The table of a relation that rules derive, before the first row of it: written out when one comes.

    Rules that come one by one have their component made anew for each, and mostly before there are any facts.
    """

    __slots__ = ("_budget", "_relation", "_written_out")

    def __init__(
        self, relation: Relation, budget: TickBudget, written_out: Callable[[Relation], None]
    ) -> None:
        """Waits for the first row; calls ``written_out`` once the relation has another table."""
        self._relation = relation
        self._budget = budget
        self._written_out = written_out

    def delete(self, states: list[State]) -> list[State]:
        return self._written().delete(states)

    def insert(self, states: list[State], stamp: int) -> int:
        return self._written().insert(states, stamp)

    def settle(self) -> None:
        self._written().settle()

    def take(self, value: Value, by: int) -> None:
        self._written().take(value, by)

    def _written(self) -> Table:
        if self._relation.table is self:
            write(self._relation, self._budget)
            self._written_out(self._relation)
        return self._relation.table


def write(relation: Relation, budget: TickBudget) -> None:
    """Gives a relation that rules derive its table, after all its indexes and triggers are known."""
    script = Script()
    writer = _Writer(relation, script)
    if relation.in_cycle:
        writer.delete()
        writer.insert()
        relation.table = WrittenTable(**script.functions("delete", "insert"))
    else:
        writer.settle(budget)
        relation.table = WrittenTable(**script.functions("settle"))


def write_plain(view: View, terms: Terms) -> None:
    """Does the same for a view that no rule derives."""
    script = Script()
    _Writer(view, script).take(view, terms)
    view.table = WrittenTable(**script.functions("take"))


class _Writer:
    """The text of one relation's functions."""

    def __init__(self, relation: Relation, script: Script) -> None:
        self._relation = relation
        self._script = script
        self._states = script.bind(relation.states)
        self._fields = [f"f{at}" for at in range(relation.width)]
        self._indexes = [(script.bind(index), columns) for columns, index in relation.indexes.items()]
        self._came = script.bind(relation.news.came)
        self._went = script.bind(relation.news.went)
        self._is_apart = False  # whether the fields of the row are known from the beginning

    # -- functions ------------------------------------------------------------------------------------

    def delete(self) -> None:
        """Writes, for a cycle, how rows go whose support has gone; they are looked at again later."""
        write = self._script.lines
        self._script.begin("def delete(touched):", loops=True)
        write("left = []", "for st in touched:")
        self._script.depth = 2
        write("_, wf, born, _, row, _ = st", "if not born: left.append(st)", "elif not wf:")
        self._within(self._go)
        write("    if st[0]: left.append(st)", f"    else: {self._end()}")
        self._script.end("left")

    def insert(self) -> None:
        """Writes, for a cycle, how rows come that are not there, or no longer, and have support."""
        write = self._script.lines
        self._script.begin("def insert(waiting, stamp):", loops=True)
        write("for st in waiting:")
        self._script.depth = 2
        write("tot, _, born, said, row, _ = st", "if born: continue", "if tot:")
        write("    stamp += 1", "    st[1] = tot", "    st[2] = stamp")
        self._within(self._come)
        write(f"else: {self._end()}")
        self._script.end("stamp")

    def settle(self, budget: TickBudget) -> None:
        """Writes, outside of any cycle, how rows go and come in one pass."""
        write, pending = self._script.lines, self._script.bind(self._relation.pending)
        self._script.begin("def settle():", loops=True)
        write(f"touched = {pending}[:]", f"{pending}.clear()")
        spend, few = self._script.bind(budget.spend), self._script.bind(budget.few)
        coming = "len([0 for st in touched if st[0] and not st[2]])"  # what goes was paid for when it came
        write(f"if len(touched) > {few}: {spend}({self._script.bind(self._relation)}, {coming})")
        write("for st in touched:")
        self._script.depth = 2
        write("tot, _, born, said, row, _ = st", "if born > 0:", "    if not tot:")
        self._within(self._go, 2)
        write(f"        {self._end()}", "elif not born:", "    if tot:")
        write("        st[1] = tot", "        st[2] = 1")
        self._within(self._come, 2)
        write(f"    else: {self._end()}")
        self._script.end()

    def take(self, view: View, terms: Terms) -> None:
        """Writes, where nothing is derived, how claims on facts make rows come and go."""
        write, states = self._script.lines, self._states
        self._script.begin("def take(value, by):", loops=False)
        view.write_row(self._script, self._fields, terms)
        self._is_apart = True
        write(f"row = {tuple_of(self._fields)}")
        write(f"st = {states}.get(row)", "if st is None:")
        write(f"    {states}[row] = st = [1, 1, 1, False, row, None]")
        self._within(self._come)
        write("    return", "st[0] += by", "st[1] += by", "if not st[0]:")
        self._within(self._go)
        write(f"    {self._end()}")
        self._script.end()

    def _within(self, write: Callable[[], None], deeper: int = 1) -> None:
        self._script.depth += deeper
        write()
        self._script.depth -= deeper

    # -- what is done with a row ----------------------------------------------------------------------

    def _come(self) -> None:
        """Writes what is done with a row that comes; ``row`` and ``said`` are known."""
        write = self._script.lines
        self._take_apart()
        for index, columns in self._indexes:
            write(f"{index}[{self._place(columns)}][row] = st")
        if self._relation.publishes:
            write(f"if not said: {self._came}.append(st)")
        self._run(self._relation.on_insert)

    def _go(self) -> None:
        """Writes what is done with a row that goes, if only for a moment; in a cycle ``born`` is known."""
        write = self._script.lines
        self._take_apart()
        self._run(self._relation.on_delete)
        write("st[1] = st[2] = 0")
        for index, columns in self._indexes:
            at = self._place(columns)
            write(f"bucket = {index}[{at}]")
            write("del bucket[row]", f"if not bucket: del {index}[{at}]")

    def _run(self, triggers: Sequence[Trigger]) -> None:
        if len(triggers) > UNROLLED and self._relation.is_plain:
            functions = tuple([each.function for each in triggers if isinstance(each, Fenced)])  # as all are
            self._script.line(f"for each in {self._script.bind(functions)}: each(row, st)")
            return
        for trigger in triggers:
            trigger.write(self._script, self._fields)

    def _end(self) -> str:
        """Returns what is done with a row that does not come back by itself; its state shows that."""
        return (
            f"{self._went}.append(st)" if self._relation.publishes else f"del {self._states}[row]; st[2] = -1"
        )

    def _take_apart(self) -> None:
        if (
            self._fields
            and not self._is_apart
            and (self._indexes or self._relation.on_insert or self._relation.on_delete)
        ):
            self._script.line(f"{tuple_of(self._fields)} = row")

    def _place(self, columns: Columns) -> str:
        if len(columns) == 1:
            return self._fields[columns[0]]
        return tuple_of([self._fields[at] for at in columns])
