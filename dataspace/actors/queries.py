"""Queries: fields that are kept up to date from what matches a pattern.

They are apart from the other things a turn can do because they are made of them.

Always: outside of handlers the field holds exactly what the actor has been told of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dataspace.actors.facets import Handler
from dataspace.actors.fields import Field
from index.values import Map, Value, key

if TYPE_CHECKING:
    from dataspace.actors.turn import Turn


def value_query(
    turn: Turn, name: str, pattern: object, default: Any, added: Handler | None, removed: Handler | None
) -> Field[Any]:
    """The field of the value that matched last; ``default`` while there is none."""
    field: Field[Any] = turn.field(name, default)
    rows: dict[object, tuple[Value, ...]] = {}

    def update() -> None:
        field.value = _told(next(reversed(rows.values()))) if rows else default

    _query(turn, pattern, rows, update, added, removed)
    return field


def set_query(
    turn: Turn,
    name: str,
    pattern: object,
    added: Handler | None,
    removed: Handler | None,
) -> Field[tuple[Any, ...]]:
    """The field of all that match, in the order in which they came."""
    field: Field[tuple[Any, ...]] = turn.field(name, ())
    rows: dict[object, tuple[Value, ...]] = {}

    def update() -> None:
        field.value = tuple(map(_told, rows.values()))

    _query(turn, pattern, rows, update, added, removed)
    return field


def map_query(
    turn: Turn,
    name: str,
    pattern: object,
    added: Handler | None,
    removed: Handler | None,
) -> Field[Map]:
    """The field of a map from the first capture to the second; of equal keys the last one counts."""
    field: Field[Map] = turn.field(name, Map())
    rows: dict[object, tuple[Value, ...]] = {}

    def update() -> None:
        field.value = Map({key(row[0]): (row[0], row[1]) for row in rows.values()}.values())

    _query(turn, pattern, rows, update, added, removed)
    return field


def count_query(
    turn: Turn,
    name: str,
    pattern: object,
    added: Handler | None,
    removed: Handler | None,
) -> Field[Map]:
    """The field of a map from the first capture to how many matches have it."""
    field: Field[Map] = turn.field(name, Map())
    rows: dict[object, tuple[Value, ...]] = {}

    def update() -> None:
        firsts = {key(row[0]): row[0] for row in rows.values()}
        counts = Counter([key(row[0]) for row in rows.values()])
        field.value = Map([(firsts[at], count) for at, count in counts.items()])

    _query(turn, pattern, rows, update, added, removed)
    return field


def _query(
    turn: Turn,
    pattern: object,
    rows: dict[object, tuple[Value, ...]],
    update: Callable[[], None],
    added: Handler | None,
    removed: Handler | None,
) -> None:
    """Keeps ``rows`` in step; a pattern that moves begins anew."""

    def gain(within: Turn, *row: Value) -> None:
        rows[key(row)] = row
        update()
        if added is not None:
            added(within, *row)

    def lose(within: Turn, *row: Value) -> None:
        if rows.pop(key(row), _GONE) is _GONE:
            return
        update()
        if removed is not None:
            removed(within, *row)

    def clear(_: Turn) -> None:
        rows.clear()
        update()

    made = turn.observe(pattern, added=gain, removed=lose)
    made.moved = clear


def _told(row: tuple[Value, ...]) -> Any:
    """One capture is itself."""
    return row[0] if len(row) == 1 else row


_GONE = object()
