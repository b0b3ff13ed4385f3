"""Patterns: which values match, and which parts of them are captured?

A pattern is itself a value, so that an interest can be asserted, sent and observed like any fact.  Four
records have a meaning of their own where a pattern is expected: ``_`` (discard: must be there), ``$``
(capture, with an optional name, atom class and sub-pattern), ``lit`` (exactly this value) and ``exact`` (this
structure and no more).  Other records, sequences and maps are structure; atoms are constants.

This file builds patterns and matches a single value; the analysis of a pattern, position by position, is its
``skeleton``.

Always: structure is at-least (``p($)`` matches ``p(1, 2)``) unless it is ``exact``; captures come outer
before inner, left to right; a repeated name captures once and its other places must hold the same value.
"""

from __future__ import annotations

from collections.abc import Callable

from index.patterns.events import Captures
from index.patterns.readers import match_reader
from index.patterns.skeletons import (
    ATOM_CLASSES,
    DISCARD,
    MAX_DEPTH,
    MAX_POSITIONS,
    Pattern,
    Skeleton,
    known_class,
    known_name,
    skeleton,
)
from index.values.freezing import frozen
from index.values.values import Record, Value

__all__ = [
    "Pattern",
    "DISCARD",
    "discard",
    "capture",
    "lit",
    "exact",
    "observe",
    "ATOM_CLASSES",
    "matcher",
    "capture_names",
    "Skeleton",
    "skeleton",
]


def discard(of_class: str | None = None) -> Record:
    """Returns the pattern of anything, or of anything of a class; raises ``UsageError`` for an unknown
    class."""
    return DISCARD if of_class is None else Record("_", known_class(of_class))


def capture(name: str | None = None, of_class: str | None = None, sub: Pattern = DISCARD) -> Record:
    """Returns the pattern that captures what ``sub`` matches, if it is of the class.

    Raises ``UsageError`` for an unknown class, and for a name that is no word.
    """
    return Record(
        "$",
        None if name is None else known_name(name),
        None if of_class is None else known_class(of_class),
        sub,
    )


def lit(value: Value) -> Record:
    """Returns the pattern of exactly this value, even if it looks like a pattern."""
    return Record("lit", value)


def exact(pattern: Pattern) -> Record:
    """Returns the pattern of a structure that has no more parts than the pattern.

    In it a reserved label is a label: ``exact(Record("_"))`` is the pattern of the record ``"_"()``.
    """
    return Record("exact", pattern)


def observe(pattern: Pattern) -> Record:
    """Returns the fact that states an interest in a pattern."""
    return Record("Observe", pattern)


def matcher(
    pattern: Pattern, *, depth: int = MAX_DEPTH, positions: int = MAX_POSITIONS
) -> Callable[[Value], Captures | None]:
    """Returns a function from a value to its captures, or to None if the pattern does not match it.

    >>> matcher(Record("says", capture("who"), DISCARD))(Record("says", "Alice", 1))
    ('Alice',)

    Raises ``UsageError`` for no pattern, and beyond the limits of ``skeleton``.  Each call is O(positions of
    the pattern); it freezes a value that is no record first, and raises ``UsageError`` for an argument that
    is no value.
    """
    read = match_reader(skeleton(pattern, depth=depth, positions=positions))

    def match(value: Value) -> Captures | None:
        return read(value if type(value) is Record else frozen(value))

    return match


def capture_names(pattern: Pattern) -> tuple[str, ...]:
    """Returns the names of the captures in order; an unnamed one is named by its position among all.

    >>> capture_names(Record("says", capture("who"), capture()))
    ('who', '1')
    """
    return tuple([str(at) if name is None else name for at, name in enumerate(skeleton(pattern).names)])
