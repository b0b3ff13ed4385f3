"""What a pattern means, said by recursion and nothing else: no skeletons, no paths, no tables.

The index and the matcher are both held to this.
"""

from __future__ import annotations

from index.patterns.patterns import ATOM_CLASSES, DISCARD
from index.values.values import Map, Record, Value, same

Row = list[tuple[str | None, Value]]
"""Captured values with their names, in order."""


def match(pattern: Value, value: Value) -> tuple[Value, ...] | None:
    """The captures of a value, or None."""
    row = _row(pattern, value)
    return None if row is None else _once(row)


def _row(pattern: Value, value: Value) -> Row | None:
    match pattern:
        case Record(label="_", fields=()):
            return []
        case Record(label="_", fields=(str(name),)):
            return [] if type(value) is ATOM_CLASSES[name] else None
        case Record(label="$", fields=(None | str() as name, None | str() as of_class, sub)):
            if of_class is not None and type(value) is not ATOM_CLASSES[of_class]:
                return None
            return _joined([[(name, value)], [] if sub == DISCARD else _row(sub, value)])
        case Record(label="lit", fields=(constant,)):
            return [] if same(constant, value) else None
        case Record(label="exact", fields=(sub,)):
            return _parts(sub, value) if _size(sub) == _size(value) else None
        case Record() | tuple() | Map():
            return _parts(pattern, value)
    return [] if same(pattern, value) else None


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
    return (
        len(value.fields)
        if isinstance(value, Record)
        else len(value)
        if isinstance(value, tuple | Map)
        else -1
    )


def _joined(rows: list[Row | None]) -> Row | None:
    joined: Row = []
    for row in rows:
        if row is None:
            return None
        joined += row
    return joined


def _once(row: Row) -> tuple[Value, ...] | None:
    """The values without those whose name comes again, which must be the same."""
    named: dict[str, Value] = {}
    kept = []
    for name, value in row:
        if name is None or name not in named:
            kept.append(value)
        elif not same(named[name], value):
            return None
        if name is not None:
            named.setdefault(name, value)
    return tuple(kept)
