"""Queries: fields that are kept up to date from what matches a pattern.

Always: the field holds what the handlers of its actor have been called with, and is up to date before any
other handler of the same additions, or of the same removals, runs; the callbacks of queries come next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from dataspace.actors.engine.endpoints import Rank
from dataspace.actors.engine.fields import Field
from index.values.values import Map, Value, key

if TYPE_CHECKING:
    from dataspace.actors.engine.ports import Handler
    from dataspace.actors.engine.verbs import BasicTurn

T = TypeVar("T")

Rows: TypeAlias = dict[object, tuple[Value, ...]]
"""The rows that match now, by key, in the order in which they appeared."""


def value_query(
    turn: BasicTurn, name: str, pattern: object, default: Any, added: Handler | None, removed: Handler | None
) -> Field[Any]:
    """Returns the field of the value that matched last; ``default`` while there is none."""

    def latest(rows: Rows) -> Any:
        return _unpacked(next(reversed(rows.values()))) if rows else default

    return _query(turn, name, pattern, latest, added, removed)


def set_query(
    turn: BasicTurn, name: str, pattern: object, added: Handler | None, removed: Handler | None
) -> Field[tuple[Any, ...]]:
    """Returns the field of all matches, in the order in which they appeared."""
    return _query(turn, name, pattern, lambda rows: tuple(map(_unpacked, rows.values())), added, removed)


def map_query(
    turn: BasicTurn, name: str, pattern: object, added: Handler | None, removed: Handler | None
) -> Field[Map]:
    """Returns the field of a map from the first capture to the second; the last of equal keys counts."""

    def mapped(rows: Rows) -> Map:
        return Map({key(row[0]): (row[0], row[1]) for row in rows.values()}.values())

    def query_map(_turn: BasicTurn, key: Value, value: Value, *more: Value) -> None:
        """Its parameters are what a pattern has to capture."""

    return _query(turn, name, pattern, mapped, added, removed, query_map)


def count_query(
    turn: BasicTurn, name: str, pattern: object, added: Handler | None, removed: Handler | None
) -> Field[Map]:
    """Returns the field of a map from the first capture to how many matches have it."""

    def counted(rows: Rows) -> Map:
        firsts = {key(row[0]): row[0] for row in rows.values()}
        counts = Counter([key(row[0]) for row in rows.values()])
        return Map([(firsts[at], count) for at, count in counts.items()])

    def query_count(_turn: BasicTurn, key: Value, *more: Value) -> None:
        """Its parameters are what a pattern has to capture."""

    return _query(turn, name, pattern, counted, added, removed, query_count)


def _query(
    turn: BasicTurn,
    name: str,
    pattern: object,
    value_of: Callable[[Rows], T],
    added: Handler | None,
    removed: Handler | None,
    needs: Handler | None = None,
) -> Field[T]:
    """Returns the field of a value computed from what matches; empty again when the pattern changes.

    The pattern must capture what ``needs`` can be called with.
    """
    rows: Rows = {}
    field: Field[T] = turn.field(name, value_of(rows))

    def gain(_: BasicTurn, *row: Value) -> None:
        rows[key(row)] = row
        field.value = value_of(rows)

    def lose(_: BasicTurn, *row: Value) -> None:
        if rows.pop(key(row), None) is not None:
            field.value = value_of(rows)

    def clear(_: BasicTurn) -> None:
        rows.clear()
        field.value = value_of(rows)

    turn._watch(pattern, gain, None, lose, rank=Rank.QUERY, checked=(needs,)).moved = clear
    if added is not None or removed is not None:
        turn.observe(pattern, added=added, removed=removed, quiet=True, rank=Rank.QUERY_HANDLER)
    return field


def _unpacked(row: tuple[Value, ...]) -> Any:
    """Returns the value of a single capture, or the captures as a tuple."""
    return row[0] if len(row) == 1 else row
