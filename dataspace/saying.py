"""Saying: what the verbs of actors and clients make of what they are given.

Patterns are text, facts are values, and text is a value too: ``assert_('present("Alice")')`` would assert a
string that no pattern for ``present`` ever matches.  So text that reads as a record is refused by the verbs,
unless it is marked as meant by ``literal``.

Always: what comes out is a frozen value; no value but such text is refused here that is a value elsewhere.
"""

from __future__ import annotations

from index.errors import UsageError
from index.patterns.text import parse_pattern
from index.values.freezing import freeze
from index.values.values import Record, Value


class Literal(str):
    """Text that is said as it stands."""

    __slots__ = ()


def literal(text: str) -> Literal:
    """Text that is itself the fact or the message, although it reads as a record.

    >>> fact_of(literal("present()"))
    'present()'
    """
    return Literal(text)


def as_it_is(value: Value) -> object:
    """A value that somebody has said already, to be said again whatever it is."""
    return Literal(value) if type(value) is str else value


def fact_of(given: object) -> Value:
    """The value of what a verb is given; ``UsageError`` for what is none, and text that reads as a record."""
    if type(given) is str:
        _check_text(given)
    elif type(given) is Literal:
        given = str(given)
    return freeze(given)


def _check_text(text: str) -> None:
    if not text.rstrip().endswith(")"):
        return  # as mostly
    try:
        meant = parse_pattern(text)
    except UsageError:
        return
    if isinstance(meant, Record):
        shown = f"{text!r:.80}"
        raise UsageError(
            f"{shown} is text, though it reads as a record: for the record give Record(…), or index.text."
            f"parse({shown}), for the text itself dataspace.saying.literal({shown})"
        )
