"""Relations: rows that hold, with the support that each of them has.

A row is there because of *derivations*: ways in which rules, or somebody's claim, make it hold.  In a cycle
of rules facts can support each other, so counting derivations is not enough to retract.  Each row keeps

    tot     its derivations among the rows that are there now
    wf      those of them whose premises within its own cycle are all older than itself
    born    when it was inserted: a stamp that only grows; 0 while it is absent

Proofs made of ``wf`` derivations go strictly down in stamps, so they support nothing by itself.  When
``wf`` comes to nought the row goes, and what it supported is told; if ``tot`` is left then, it comes back
with a fresh stamp.  Nothing is searched for, and hardly more is deleted than has to go.

Always: between ticks a row is here exactly if ``tot > 0``, then ``wf > 0`` and ``born > 0``; every index
holds exactly the rows that are there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from dataspace.rules.terms import Row, Term

State: TypeAlias = list[int]
"""tot, wf, born."""

Bucket: TypeAlias = dict[Row, State]
Columns: TypeAlias = tuple[int, ...]
Index: TypeAlias = dict[Any, Bucket]
"""By the term of the one column, or the tuple of terms of several."""

Trigger: TypeAlias = Callable[[Row, State], None]


class Relation:
    """Rows, their indexes, and what is to be run when one comes or goes."""

    __slots__ = (
        "base",
        "changed",
        "indexes",
        "label",
        "name",
        "on_delete",
        "on_insert",
        "pending",
        "readers",
        "states",
        "width",
    )

    def __init__(self, name: str, width: int) -> None:
        self.name = name
        self.width = width
        self.states: dict[Row, State] = {}
        self.indexes: dict[Columns, Index] = {}
        self.readers: dict[Columns, Callable[[Row], Any]] = {}
        self.on_insert: list[Trigger] = []
        self.on_delete: list[Trigger] = []
        self.pending: list[Row] = []
        self.base: dict[Row, int] = {}
        self.changed: dict[Row, bool] | None = None
        self.label: Any = None

    def index(self, columns: Columns) -> Index:
        """The index by some columns, made if it is not there; before any rows are."""
        known = self.indexes.get(columns)
        if known is None:
            known = self.indexes[columns] = {}
            self.readers[columns] = _reader(columns)
        return known

    def has(self, row: Row) -> bool:
        """Whether a row is there; O(1)."""
        state = self.states.get(row)
        return state is not None and state[2] > 0

    def insert(self, row: Row, state: State, stamp: int) -> None:
        """A row comes to be there, supported by all it has; what follows from it is told."""
        state[1] = state[0]
        state[2] = stamp
        for columns, index in self.indexes.items():
            at = self.readers[columns](row)
            bucket = index.get(at)
            if bucket is None:
                index[at] = {row: state}
            else:
                bucket[row] = state
        if self.changed is not None:
            self.changed.setdefault(row, False)
        for trigger in self.on_insert:
            trigger(row, state)

    def delete(self, row: Row, state: State) -> None:
        """A row goes; what it was a premise of is told while it is still to be found."""
        for trigger in self.on_delete:
            trigger(row, state)
        state[1] = state[2] = 0
        for columns, index in self.indexes.items():
            at = self.readers[columns](row)
            bucket = index[at]
            del bucket[row]
            if not bucket:
                del index[at]
        if self.changed is not None:
            self.changed.setdefault(row, row not in self.base)

    def support(self, row: Row, by: int) -> None:
        """A derivation from outside of any cycle more, or less."""
        state = self.states.get(row)
        if state is None:
            self.states[row] = [1, 0, 0]
            self.pending.append(row)
            return
        state[0] += by
        if state[2]:
            state[1] += by
            if not state[1]:
                self.pending.append(row)

    def claim(self, row: Row, by: int) -> None:
        """Somebody's claim on the row more, or less: support, and no longer for rules to derive."""
        before = self.base.get(row, 0)
        if before + by:
            self.base[row] = before + by
        else:
            del self.base[row]
        if self.changed is not None and (before == 0 or before + by == 0) and self.has(row):
            self.changed.setdefault(row, before == 0)
        self.support(row, by)

    def derived(self, row: Row) -> bool:
        """Whether rules make this row hold, and nobody claims it."""
        return row not in self.base and self.has(row)


def _reader(columns: Columns) -> Callable[[Row], Any]:
    """What finds the place of a row in the index by these columns."""
    if len(columns) == 1:
        at = columns[0]
        return lambda row: row[at]
    return lambda row: tuple([row[at] for at in columns])


def settle(relations: list[Relation], stamp: int, spend: Callable[[Relation, int], None]) -> int:
    """Runs one stratum, or one cycle within it, until nothing moves; the highest stamp given.

    First what lost its support goes, one row at a time, then what is supported comes.  ``spend`` is told
    of insertions as they happen, and may raise.  O(derivations touched).
    """
    revived: list[tuple[Relation, list[Row]]] = []
    moved = True
    while moved:
        moved = False
        for relation in relations:
            if relation.pending:
                moved = True
                revived.append((relation, _delete_unsupported(relation)))
    while revived:
        waiting, revived = revived, []
        for relation, rows in waiting:
            stamp = _insert_supported(relation, rows, stamp)
            spend(relation, len(rows))
        for relation in relations:
            if relation.pending:
                rows, relation.pending[:] = relation.pending[:], []
                revived.append((relation, rows))
    return stamp


def _delete_unsupported(relation: Relation) -> list[Row]:
    """Deletes the rows that have lost what supported them; what is left to be looked at again."""
    rows = relation.pending[:]
    relation.pending.clear()
    left: list[Row] = []
    states, delete = relation.states, relation.delete
    for row in rows:
        state = states.get(row)
        if state is None:
            continue
        if not state[2]:
            left.append(row)
        elif not state[1]:
            delete(row, state)
            if state[0]:
                left.append(row)
            else:
                del states[row]
    return left


def _insert_supported(relation: Relation, rows: list[Row], stamp: int) -> int:
    states, insert = relation.states, relation.insert
    for row in rows:
        state = states.get(row)
        if state is None or state[2]:
            continue
        if state[0]:
            stamp += 1
            insert(row, state, stamp)
        else:
            del states[row]
    return stamp


__all__ = ["Relation", "settle", "State", "Row", "Term", "Trigger", "Columns"]
