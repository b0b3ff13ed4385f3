"""Freezing: from lists and dicts to values, within limits of depth and size.

Always: what ``freeze`` returns is a value; nothing is too deep to be refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeGuard

from index.errors import UsageError
from index.values.values import DEEPEST, MAX_DEPTH, Map, Record, Value, freeze_at


def freeze(thing: object, *, depth: int = MAX_DEPTH, elements: int | None = None) -> Value:
    """The immutable value of a thing: lists become sequences, dicts maps, aware times go to UTC.

    Raises ``UsageError`` for anything that is no value, with the path to it, and beyond the limits as
    ``bounded`` does.  O(size).

    >>> freeze({"k": [1, 2]})
    Map((('k', (1, 2)),))
    """
    if elements is None and depth and is_flat(thing):
        return thing
    return bounded(freeze_at(thing, (), min(depth, DEEPEST)), depth=depth, elements=elements)


def frozen(thing: object) -> Value:
    """Like ``freeze`` to the greatest depth there is, and at once for a record, which is frozen already."""
    return thing if type(thing) is Record else freeze(thing, depth=DEEPEST)


def all_frozen(things: Sequence[object]) -> Sequence[Value]:
    """Returns the values of several things: ``things`` itself if they are records, as they mostly are."""
    for thing in things:
        if type(thing) is not Record:
            return [frozen(each) for each in things]
    return things  # type: ignore[return-value]  # looked at one by one


def bounded(value: Value, *, depth: int = MAX_DEPTH, elements: int | None = None) -> Value:
    """The value itself if it keeps to the limits, else ``UsageError``; O(size).

    A record, a sequence and a map are one level each; every atom and every compound is one element, a
    record's label included.  It loops, so that no value is too deep to be refused.

    >>> bounded((1, (2, 3)), depth=2, elements=5)
    (1, (2, 3))
    """
    if elements is None and depth and is_flat(value):
        return value
    level = [value] if value.__class__ in _COMPOUND else []
    levels, seen = 0, 1
    while level:
        levels += 1
        if levels > depth:
            raise UsageError(f"nested too deeply: more than {depth} levels")
        rows = list(map(_parts, level))
        seen += sum(map(len, rows))
        if elements is not None and seen > elements:
            raise UsageError(f"a value of more than {elements} elements")
        level = [part for row in rows for part in row if part.__class__ in _COMPOUND]
    return value


_COMPOUND: Final = frozenset([Record, Map, tuple])


def is_flat(value: object) -> TypeGuard[Record]:
    """Whether this is a record without compound parts, as most facts are: it can be written down."""
    if type(value) is not Record or type(value.label) is not str:
        return False
    for field in value.fields:  # noqa: SIM110  all() would make a generator each time
        if type(field) in _COMPOUND:
            return False
    return True


def _parts(value: Value) -> Sequence[Value]:
    """What a compound consists of."""
    if isinstance(value, Record):
        return (value.label, *value.fields)
    if isinstance(value, Map):
        return [half for pair in value.pairs() for half in pair]
    return value if isinstance(value, tuple) else ()
