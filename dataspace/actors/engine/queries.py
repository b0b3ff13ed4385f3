"""Queries: fields that are kept up to date from what matches a pattern.

They are apart from the other things a turn can do because they are made of them.

Always: the field holds what the actor has been told of, and is in step before any other handler of the same
additions, or of the same removals, runs; the callbacks of queries come next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from dataspace.actors.engine.facets import Handler, Rank
from dataspace.actors.engine.fields import Field
from index.values.values import Map, Value, key

if TYPE_CHECKING:
    from dataspace.actors.engine.turns import Turn

T = TypeVar("T")

Rows: TypeAlias = dict[object, tuple[Value, ...]]
"""What matches now, by key, in the order in which it came."""


def value_query(
    turn: Turn, name: str, pattern: object, default: Any, added: Handler | None, removed: Handler | None
) -> Field[Any]:
    """The field of the value that matched last; ``default`` while there is none."""

    def latest(rows: Rows) -> Any:
        return _told(next(reversed(rows.values()))) if rows else default

    return _query(turn, name, pattern, latest, added, removed)


def set_query(
    turn: Turn, name: str, pattern: object, added: Handler | None, removed: Handler | None
) -> Field[tuple[Any, ...]]:
    """The field of all that match, in the order in which they came."""
    return _query(turn, name, pattern, lambda rows: tuple(map(_told, rows.values())), added, removed)


def map_query(
    turn: Turn, name: str, pattern: object, added: Handler | None, removed: Handler | None
) -> Field[Map]:
    """The field of a map from the first capture to the second; of equal keys the last one counts."""

    def mapped(rows: Rows) -> Map:
        return Map({key(row[0]): (row[0], row[1]) for row in rows.values()}.values())

    def query_map(_turn: Turn, key: Value, value: Value, *more: Value) -> None:
        """What a pattern has to capture."""

    return _query(turn, name, pattern, mapped, added, removed, query_map)


def count_query(
    turn: Turn, name: str, pattern: object, added: Handler | None, removed: Handler | None
) -> Field[Map]:
    """The field of a map from the first capture to how many matches have it."""

    def counted(rows: Rows) -> Map:
        firsts = {key(row[0]): row[0] for row in rows.values()}
        counts = Counter([key(row[0]) for row in rows.values()])
        return Map([(firsts[at], count) for at, count in counts.items()])

    def query_count(_turn: Turn, key: Value, *more: Value) -> None:
        """What a pattern has to capture."""

    return _query(turn, name, pattern, counted, added, removed, query_count)


def _query(
    turn: Turn,
    name: str,
    pattern: object,
    value_of: Callable[[Rows], T],
    added: Handler | None,
    removed: Handler | None,
    needs: Handler | None = None,
) -> Field[T]:
    """The field of a value of what matches, kept in step; a pattern that moves begins anew.

    ``needs`` takes what has to be captured.
    """
    rows: Rows = {}
    field: Field[T] = turn.field(name, value_of(rows))

    def gain(_: Turn, *row: Value) -> None:
        rows[key(row)] = row
        field.value = value_of(rows)

    def lose(_: Turn, *row: Value) -> None:
        if rows.pop(key(row), None) is not None:
            field.value = value_of(rows)

    def clear(_: Turn) -> None:
        rows.clear()
        field.value = value_of(rows)

    turn._hear(pattern, gain, None, lose, rank=Rank.QUERY, told=(needs,)).moved = clear
    if added is not None or removed is not None:
        turn.observe(pattern, added=added, removed=removed, quiet=True, rank=Rank.QUERY_HANDLER)
    return field


def _told(row: tuple[Value, ...]) -> Any:
    """One capture is itself."""
    return row[0] if len(row) == 1 else row
