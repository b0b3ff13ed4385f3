"""What a pattern means: which values match it, and which parts of them it captures.

A pattern is a value in which four records have a meaning of their own: ``_`` stands for anything, ``$`` for
anything that is captured, ``lit`` for exactly the value in it, ``exact`` for a structure without further
parts.  All else is structure, which must be there at least, or an atom, which must be the same.
"""

from __future__ import annotations

from index.values.values import Map, Record, Value, same

Row = list[tuple[str | None, Value]]
"""Captured values with their names, in order: outer before inner, from left to right."""

CLASSES = {
    "bool": "bool",
    "int": "int",
    "float": "float",
    "str": "str",
    "bytes": "bytes",
    "time": "datetime",
    "record": "Record",
    "seq": "tuple",
    "map": "Map",
    "null": "NoneType",
}
"""The classes that a pattern names, and what Python calls the class of such a value."""


def match(pattern: Value, value: Value) -> tuple[Value, ...] | None:
    """The captures of a value, or None; a repeated name captures once, and stands for the same value."""
    row = named(pattern, value)
    return None if row is None else tuple([each for _, each in row])


def named(pattern: Value, value: Value) -> Row | None:
    """The same with the names of the captures."""
    row = _row(pattern, value)
    return None if row is None else _once(row)


def _row(pattern: Value, value: Value) -> Row | None:
    match pattern:
        case Record(label="_", fields=()):
            return []
        case Record(label="_", fields=(str(name),)):
            return [] if _is_of(name, value) else None
        case Record(label="$", fields=(None | str() as name, of_class, sub)):
            if isinstance(of_class, str) and not _is_of(of_class, value):
                return None
            return _joined([[(name, value)], _row(sub, value)])
        case Record(label="lit", fields=(constant,)):
            return [] if same(constant, value) else None
        case Record(label="exact", fields=(sub,)):
            return _parts(sub, value) if _size(sub) == _size(value) else None
        case Record() | tuple() | Map():
            return _parts(pattern, value)
    return [] if same(pattern, value) else None


def _is_of(name: str, value: Value) -> bool:
    return type(value).__name__ == CLASSES[name]


def _parts(pattern: Value, value: Value) -> Row | None:
    if isinstance(pattern, Map):
        if not isinstance(value, Map) or not all(at in value for at, _ in pattern.pairs()):
            return None
        return _joined([_row(sub, value[at]) for at, sub in pattern.pairs()])
    if isinstance(pattern, Record):
        if not isinstance(value, Record) or not same(pattern.label, value.label):
            return None
        pattern, value = pattern.fields, value.fields
    if not isinstance(pattern, tuple) or not isinstance(value, tuple) or len(value) < len(pattern):
        return None
    return _joined([_row(sub, part) for sub, part in zip(pattern, value, strict=False)])


def _size(value: Value) -> int:
    if isinstance(value, Record):
        return len(value.fields)
    return len(value) if isinstance(value, tuple | Map) else -1


def _joined(rows: list[Row | None]) -> Row | None:
    return None if None in rows else [pair for row in rows for pair in row or ()]


def _once(row: Row) -> Row | None:
    """The row without those whose name comes again, which must be the same."""
    first: dict[str, Value] = {}
    kept: Row = []
    for name, value in row:
        if name is None or name not in first:
            kept.append((name, value))
        elif not same(first[name], value):
            return None
        if name is not None:
            first.setdefault(name, value)
    return kept
