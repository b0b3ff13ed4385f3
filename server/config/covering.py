"""Patterns compared: is one within another, or are the two disjoint, as far as that can be proved?

Rights list patterns, and what a bearer asks for is a pattern too.  Both questions are about all values that
there could be, so they are answered from the structure of the patterns.

Always: True is certain; False says only that it could not be proved.
"""

from __future__ import annotations

from index.patterns.patterns import ATOM_CLASSES, Pattern, lit, matcher
from index.values.values import Map, Record, Value, same


def covers(allowed: Pattern, asked: Pattern) -> bool:
    """True if ``allowed`` certainly matches every value that ``asked`` matches; False where that is not
    certain.

    >>> covers(Record("reading", Record("_")), Record("reading", "d1", Record("_", "float")))
    True
    >>> covers(Record("reading", "d1"), Record("reading", Record("_")))
    False
    """
    kind = _special(allowed)
    if kind in ("_", "$"):
        wanted, below = _parts(allowed)
        return (wanted is None or _has_class(asked, wanted)) and (below is None or covers(below, asked))
    if kind == "lit":
        constant = _constant(asked)
        return constant is not None and same(constant[0], allowed.fields[0])  # type: ignore[union-attr]  # a record
    if kind == "exact":
        return same(allowed, asked)
    if _special(asked) == "$":
        below = _parts(asked)[1]
        return below is not None and covers(allowed, below)
    if _special(asked) == "exact":
        inner = asked.fields[0]  # type: ignore[union-attr]  # a record
        return _special(inner) is None and _covers_structure(
            allowed, inner
        )  # inside it, reserved labels are plain ones
    if _special(asked) == "lit":
        return matcher(allowed)(asked.fields[0]) is not None  # type: ignore[union-attr]  # a record
    return _special(asked) is None and _covers_structure(allowed, asked)


def _covers_structure(allowed: Pattern, asked: Pattern) -> bool:
    if allowed.__class__ is not asked.__class__:
        return False
    if isinstance(allowed, Record) and isinstance(asked, Record):
        return same(allowed.label, asked.label) and _covers_all(allowed.fields, asked.fields)
    if isinstance(allowed, tuple) and isinstance(asked, tuple):
        return _covers_all(allowed, asked)
    if isinstance(allowed, Map) and isinstance(asked, Map):
        return all(name in asked and covers(part, asked[name]) for name, part in allowed.pairs())
    return same(allowed, asked)


def _covers_all(allowed: tuple[Value, ...], asked: tuple[Value, ...]) -> bool:
    """True if each part of ``allowed`` covers its part of ``asked``, which may name more parts."""
    return len(asked) >= len(allowed) and all(map(covers, allowed, asked))


def _special(pattern: Pattern) -> str | None:
    """Returns the name of the reserved record that a pattern is; None for any other pattern."""
    if isinstance(pattern, Record) and pattern.label in ("_", "$", "lit", "exact"):
        return str(pattern.label)
    return None


def _parts(pattern: Pattern) -> tuple[str | None, Pattern | None]:
    """Returns the class and the inner pattern of a discard or a capture."""
    assert isinstance(pattern, Record)  # a discard or a capture
    if pattern.label == "_":
        return (str(pattern.fields[0]) if pattern.fields else None), None
    _, of_class, below = pattern.fields
    below = lit(None) if below is None else below  # null is a pattern as well, other than no pattern
    return (None if of_class is None else str(of_class)), below


def _has_class(asked: Pattern, wanted: str) -> bool:
    kind = _special(asked)
    if kind in ("_", "$"):
        of_class, below = _parts(asked)
        return of_class == wanted or (below is not None and _has_class(below, wanted))
    if kind in ("lit", "exact"):
        return _is(asked.fields[0], wanted)  # type: ignore[union-attr]  # a record
    return _is(asked, wanted)


def _is(value: Value, wanted: str) -> bool:
    return value.__class__ is ATOM_CLASSES[wanted]


def _constant(asked: Pattern) -> tuple[Value] | None:
    """Returns the only value that is asked for, in a tuple; None if there may be several."""
    kind = _special(asked)
    if kind == "lit":
        return (asked.fields[0],)  # type: ignore[union-attr]  # a record
    if kind == "$":
        below = _parts(asked)[1]
        return None if below is None else _constant(below)
    return None if kind is not None or isinstance(asked, Record | tuple | Map) else (asked,)


def apart(one: Pattern, other: Pattern) -> bool:
    """True if certainly no value matches both patterns; False where that is not certain.

    >>> apart(Record("reading", Record("_")), Record("alarm", Record("_")))
    True
    >>> apart(Record("reading", "d1"), Record("reading", Record("_")))
    False
    """
    classes = _class_of(one), _class_of(other)
    if None not in classes and classes[0] is not classes[1]:
        return True
    one, other = _peeled(one), _peeled(other)
    for this, that in ((one, other), (other, one)):
        constant = _constant(this)
        if constant is not None:
            return matcher(that)(constant[0]) is None
    if "_" in (_special(one), _special(other)):
        return False
    counts = _parts_exactly(one), _parts_exactly(other)
    one, other = _inside(one), _inside(other)
    return _too_few(one, counts[1]) or _too_few(other, counts[0]) or _structures_apart(one, other)


def _structures_apart(one: Pattern, other: Pattern) -> bool:
    if isinstance(one, Record) and isinstance(other, Record):
        return not same(one.label, other.label) or any(map(apart, one.fields, other.fields))
    if isinstance(one, tuple) and isinstance(other, tuple):
        return any(map(apart, one, other))
    if isinstance(one, Map) and isinstance(other, Map):
        return any(name in other and apart(part, other[name]) for name, part in one.pairs())
    return True  # of two classes


def _too_few(pattern: Pattern, parts: int | None) -> bool:
    """True if a structure needs more parts than the other has exactly."""
    return parts is not None and isinstance(pattern, Record | tuple | Map) and _size(pattern) > parts


def _parts_exactly(pattern: Pattern) -> int | None:
    return _size(_inside(pattern)) if _special(pattern) == "exact" else None


def _size(structure: Pattern) -> int:
    return len(structure.fields if isinstance(structure, Record) else structure)  # type: ignore[arg-type]  # a structure


def _inside(pattern: Pattern) -> Pattern:
    """Returns the structure in an exact pattern, in which reserved labels are plain ones."""
    return pattern.fields[0] if _special(pattern) == "exact" else pattern  # type: ignore[union-attr]  # a record


def _peeled(pattern: Pattern) -> Pattern:
    """Returns what a capture captures; a discard where that may be anything."""
    while _special(pattern) == "$":
        below = _parts(pattern)[1]
        pattern = Record("_") if below is None else below
    return pattern


def _class_of(pattern: Pattern) -> type | None:
    """Returns the class of all values that a pattern matches; None where they may be of several."""
    kind = _special(pattern)
    if kind in ("_", "$"):
        of_class, below = _parts(pattern)
        if of_class is not None:
            return ATOM_CLASSES[of_class]
        return None if below is None else _class_of(below)
    inner = pattern.fields[0] if kind in ("lit", "exact") else pattern  # type: ignore[union-attr]  # a record
    return type(inner)
