"""Tables: what a relation does when rows come and go, written out as straight-line Python.

Which indexes a relation has, who is to be told and whether changes are kept is known once the rules are
compiled.  A loop over all of that for each row would take longer than the work itself, so here it is
unrolled: one function each for deleting, inserting, settling and claiming.

Always: a row is found in every index, or in none; while a row is told of, coming or going, it is there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType

from dataspace.rules.relations import Columns, Relation
from dataspace.rules.terms import Row


@dataclass(frozen=True, slots=True)
class WrittenTable:
    """The functions of one relation."""

    delete: Callable[[list[Row]], list[Row]]
    insert: Callable[[list[Row], int], int]
    settle: Callable[[], None]
    claim: Callable[[Row, int], None]


def write(relation: Relation) -> None:
    """Gives a relation its table; after all its indexes and triggers are known, and before any row is."""
    names: dict[str, object] = {"states": relation.states, "pending": relation.pending}
    names |= {"came": relation.news.came, "went": relation.news.went}
    names.update((f"i{at}", index) for at, index in enumerate(relation.indexes.values()))
    names.update((f"on_insert{at}", each) for at, each in enumerate(relation.on_insert))
    names.update((f"on_delete{at}", each) for at, each in enumerate(relation.on_delete))
    text = _text(
        tuple(relation.indexes),
        len(relation.on_insert),
        len(relation.on_delete),
        relation.tells,
    )
    exec(_compiled(text), names)  # our own words and numbers only
    relation.table = WrittenTable(*[names[name] for name in ("delete", "insert", "settle", "claim")])  # type: ignore[arg-type]  # defined by the text


def _text(indexes: tuple[Columns, ...], inserting: int, deleting: int, tells: bool) -> str:
    come, go, end = _come(indexes, inserting, tells), _go(indexes, deleting), _end(tells)
    return "\n".join(
        [
            "def delete(rows):",
            "    left = []",
            "    for row in rows:",
            "        st = states.get(row)",
            "        if st is None: continue",
            "        if not st[2]: left.append(row)",
            "        elif not st[1]:",
            *_indented(go, 3),
            "            if st[0]: left.append(row)",
            "            else:",
            *_indented(end, 4),
            "    return left",
            "def insert(rows, stamp):",
            "    for row in rows:",
            "        st = states.get(row)",
            "        if st is None or st[2]: continue",
            "        if st[0]:",
            "            stamp += 1",
            "            st[1], st[2] = st[0], stamp",
            *_indented(come, 3),
            "        else:",
            *_indented(end, 3),
            "    return stamp",
            "def settle():",
            "    rows = pending[:]",
            "    pending.clear()",
            "    for row in rows:",
            "        st = states.get(row)",
            "        if st is None: continue",
            "        if st[2]:",
            "            if not st[0]:",
            *_indented(go, 4),
            *_indented(end, 4),
            "        elif st[0]:",
            "            st[1], st[2] = st[0], 1",
            *_indented(come, 3),
            "        else: del states[row]",
            "def claim(row, by):",
            "    st = states.get(row)",
            "    if st is None:",
            "        states[row] = st = [1, 1, 1, None]",
            *_indented(come, 2),
            "        return",
            "    st[0] += by",
            "    st[1] += by",
            "    if not st[0]:",
            *_indented(go, 2),
            *_indented(end, 2),
        ]
    )


def _come(indexes: tuple[Columns, ...], triggers: int, tells: bool) -> list[str]:
    """What is done with a row that comes."""
    lines = []
    for at, columns in enumerate(indexes):
        lines += [
            f"k = {_place(columns)}",
            f"bucket = i{at}.get(k)",
            f"if bucket is None: i{at}[k] = {{row: st}}",
            "else: bucket[row] = st",
        ]
    if tells:
        lines.append("if st[3] is None: came[row] = st")
    return lines + [f"on_insert{at}(row, st)" for at in range(triggers)]


def _go(indexes: tuple[Columns, ...], triggers: int) -> list[str]:
    """What is done with a row that goes, be it for a moment."""
    lines = [f"on_delete{at}(row, st)" for at in range(triggers)]
    lines.append("st[1] = st[2] = 0")
    for at, columns in enumerate(indexes):
        lines += [
            f"k = {_place(columns)}",
            f"bucket = i{at}[k]",
            f"if len(bucket) == 1: del i{at}[k]",
            "else: del bucket[row]",
        ]
    return lines


def _end(tells: bool) -> list[str]:
    """What is done with a row that will not come back by itself."""
    lines = ["del states[row]"]
    if tells:
        lines += ["if st[3] is None: came.pop(row, None)", "else: went[row] = st[3]"]
    return lines


def _place(columns: Columns) -> str:
    if len(columns) == 1:
        return f"row[{columns[0]}]"
    return f"({''.join([f'row[{at}],' for at in columns])})"


def _indented(lines: list[str], depth: int) -> list[str]:
    return ["    " * depth + line for line in lines]


@lru_cache(maxsize=1024)
def _compiled(text: str) -> CodeType:
    return compile(text, "<table>", "exec")
