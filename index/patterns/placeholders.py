"""Placeholders: what a relay says of a fact of which it was told only the captures.

A relay observes an *outer* space for an *inner* one: for each pattern observed inside it observes the same
outside, and of each match asserts inside what it knows.  It knows the constants and the captures; where the
pattern only asked that something be there, it knows nothing, and says a placeholder.  It asserts this
*stand-in* with the outer captures as its visibility, so that inside only those are told who capture no more
than is known (HOWITWORKS, "Variations"; the source's TODO on visibility and opaque placeholders).

Always: no constant that anybody can write equals a placeholder, which is a secret of this process; a handler
of the same pattern is told of the stand-in exactly what the relay was told; nobody's captures hold a
placeholder.  A stand-in has no more parts than the pattern names, so those who ask for exact sizes, or for
the class of what the relay did not ask about, may be told otherwise than outside.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from index.errors import UsageError
from index.patterns.events import Captures, Visible
from index.patterns.skeletons import skeleton
from index.values.values import Map, Record, Value

_SECRET: Final = secrets.token_bytes(16)
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
    "null": None,  # of which there is one only, so it is known
}


def stand_in(pattern: Value, row: Captures) -> tuple[Value, Visible]:
    """The value that stands for whatever gave this row, and the visibility that it must be asserted with.

    >>> stand_in(Record("p", Record("$", "x", None, Record("_")), 5), ("a",))[0]
    Record('p', 'a', 5)

    Raises ``UsageError`` for a pattern that is none, for a row of another length, and for ``_:bool``, whose
    two values no third can stand for: capture it.
    """
    form = skeleton(pattern)
    if len(row) != len(form.captures):
        raise UsageError(f"a row of {len(row)} captures for a pattern with {len(form.captures)}")
    return _filled(pattern, iter(row), {}), frozenset(form.captures)


def _filled(pattern: Value, row: Iterator[Value], named: dict[str, Value]) -> Value:
    """The pattern with its captures and placeholders in place; outer captures come before inner ones."""
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
