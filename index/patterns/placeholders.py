"""Placeholders: stand for the parts of a fact that a relay does not know.

A relay observes an *outer* space for an *inner* one: for each pattern observed inside it observes the same
outside, and asserts inside what it knows of each match.  It knows the constants and the captures; where the
pattern only required that something be there, it knows nothing, and puts a placeholder.  It asserts this
*stand-in* with the outer captures as its visibility, so that it is visible inside only to handlers that
capture no more than is known (HOWITWORKS, "Variations"; the source's TODO on visibility and opaque
placeholders).

Always: no constant in a pattern equals a placeholder, which is a secret of this process; a handler of the
same pattern gets from the stand-in exactly what the relay got; no captures hold a placeholder.  A stand-in
has no more parts than the pattern names, so handlers with exact sizes, or with the class of a part that is
not known, may get other results than outside.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from index.errors import UsageError
from index.patterns.events import Captures, Visible
from index.patterns.skeletons import skeleton
from index.values.values import Map, Record, Value

_SECRET: Final = os.urandom(16)
_NUMBER: Final = int.from_bytes(_SECRET, "big")

_PLACEHOLDERS: Final[dict[str | None, Value]] = {
    None: _SECRET,
    "bytes": _SECRET,
    "str": _SECRET.hex(),
    "int": _NUMBER,
    "float": math.ldexp(1.0 + (_NUMBER >> 76) / 2**52, 64),
    "time": datetime(1, 1, 1, tzinfo=UTC) + timedelta(microseconds=_NUMBER % 10**16),
    "record": Record(_SECRET),
    "seq": (_SECRET,),
    "map": Map({_SECRET: _SECRET}),
    "null": None,  # it has one value only, which is known
}


def stand_in(pattern: Value, row: Captures) -> tuple[Value, Visible]:
    """Returns the value that stands for the fact with this row, and the visibility to assert it with.

    >>> stand_in(Record("p", Record("$", "x", None, Record("_")), 5), ("a",))[0]
    Record('p', 'a', 5)

    Raises ``UsageError`` if ``pattern`` is no pattern, for a row of another length, and for ``_:bool``, as
    no third value can stand for its two: capture it.
    """
    form = skeleton(pattern)
    if len(row) != len(form.captures):
        raise UsageError(f"a row of {len(row)} captures for a pattern with {len(form.captures)}")
    return _filled(pattern, iter(row), {}), frozenset(form.captures)


def _filled(pattern: Value, row: Iterator[Value], named: dict[str, Value]) -> Value:
    """Returns the pattern with its captures and placeholders filled in; outer captures come before inner
    ones."""
    match pattern:
        case Record(label="_", fields=fields):
            return _placeholder(fields[0] if fields else None)
        case Record(label="$", fields=(name, _, sub)):
            value = named[name] if isinstance(name, str) and name in named else next(row)
            if isinstance(name, str):
                named[name] = value
            for inner in skeleton(sub).names:  # captures of parts of this one, which are known with it
                if inner is None:
                    next(row)
                elif inner not in named:
                    named[inner] = next(row)
            return value
        case Record(label="lit", fields=(constant,)):
            return constant
        case Record(label="exact", fields=(sub,)):
            return _structure(sub, row, named)
    return _structure(pattern, row, named)


def _structure(pattern: Value, row: Iterator[Value], named: dict[str, Value]) -> Value:
    if isinstance(pattern, Record):
        return Record.of(pattern.label, tuple([_filled(each, row, named) for each in pattern.fields]))
    if isinstance(pattern, tuple):
        return tuple([_filled(each, row, named) for each in pattern])
    if isinstance(pattern, Map):
        return Map.of([(at, _filled(each, row, named)) for at, each in pattern.pairs()])
    return pattern


def _placeholder(of_class: Value) -> Value:
    if of_class == "bool":
        raise UsageError("nothing can stand for _:bool, which has two values only: capture it")
    return _PLACEHOLDERS[of_class]  # type: ignore[index]  # the name of a class, or None
