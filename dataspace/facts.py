"""Facts: what the verbs of actors and clients make of the value that they are given.

Patterns are text, facts are values, and text is a value too: ``assert_('present("Alice")')`` would assert a
string that no pattern for ``present`` ever matches.  So the verbs refuse text that reads as a record, unless
``literal`` marks it as meant.

Always: the result is a frozen value; apart from such text, every value is accepted.
"""

from __future__ import annotations

from collections.abc import Hashable

from index.errors import UsageError
from index.patterns.patterns import matcher
from index.patterns.text import parse_pattern, unparse
from index.values.freezing import freeze
from index.values.values import Map, Record, Value, keys


class LiteralText(str):
    """Text that is a fact or a message as it stands."""

    __slots__ = ()


def literal(text: str) -> LiteralText:
    """Returns text that the verbs accept as it stands, although it reads as a record.

    >>> fact_of(literal("present()"))
    'present()'
    """
    return LiteralText(text)


def as_it_is(value: Value) -> object:
    """Returns what the verbs accept as this value: text as ``literal``, any other value itself."""
    return LiteralText(value) if type(value) is str else value


def fact_of(given: object) -> Value:
    """Returns the given value, frozen; ``UsageError`` if it is none, or text that reads as a record."""
    if type(given) is str:
        _check_text(given)
    elif type(given) is LiteralText:
        given = str(given)
    return freeze(given)


def record_of(text: str) -> Record | None:
    """Returns the record that text reads as, which may be a pattern; None for any other text."""
    if not text.rstrip().endswith(")"):
        return None  # as mostly
    try:
        meant = parse_pattern(text)
    except UsageError:
        return None
    return meant if isinstance(meant, Record) else None


def _check_text(text: str) -> None:
    if record_of(text) is not None:
        shown = f"{text!r:.80}"
        raise UsageError(
            f"{shown} is text, though it reads as a record: for the record give Record(…) or"
            f" dataspace.text.parse({shown}), for the text itself dataspace.values.literal({shown})"
        )


def put_fact(given: tuple[object, ...]) -> Value:
    """Returns the fact that is put: the only argument, or a record of a label and its fields.

    >>> put_fact(("config", "rate", 7)) == put_fact((Record("config", "rate", 7),))
    True
    """
    if len(given) == 1:
        return fact_of(given[0])
    if not given or not isinstance(given[0], str):
        raise UsageError("put takes a record, or its label and fields, such as put('config', 'rate', 7)")
    return fact_of(Record(given[0], *given[1:]))


def key_pattern(fact: Value, by: Value | str | None) -> Value:
    """Returns the pattern of all facts that have the key of this one, which ``by`` gives where it is not the
    usual one; raises ``UsageError`` for a fact that has no such key."""
    if by is None:
        usual = usual_key(fact)
        if usual is None:
            found = f"{unparse(fact):.80}"
            whole = ""
            if isinstance(fact, Record) and fact.fields:
                every = unparse(Record(fact.label, *[Record("_")] * len(fact.fields)))
                whole = f"; for one such fact in all add by={every!r:.80}"
            raise UsageError(
                f"put needs a record with a key and a value, such as config('rate', 7), got {found}{whole}"
            )
        return usual
    pattern = parse_pattern(by) if isinstance(by, str) else by
    if matcher(pattern)(fact) is None:
        raise UsageError(f"{unparse(fact):.80} does not have the key {unparse(pattern):.80}")
    return pattern


def usual_key(fact: Value) -> Value:
    """Returns the pattern of the facts that differ in the last field alone; None for a value that is no
    record with two fields at least."""
    if not isinstance(fact, Record) or len(fact.fields) < 2:
        return None
    return Record("exact", Record(fact.label, *[literally(each) for each in fact.fields[:-1]], Record("_")))


def usual_place(fact: Value) -> Hashable | None:
    """Returns the same for facts that ``usual_key`` gives the same pattern, and no others; None without one.

    >>> usual_place(Record("rate", "a", 7)) == usual_place(Record("rate", "a", 8))
    True
    """
    if not isinstance(fact, Record) or len(fact.fields) < 2:
        return None
    return keys((fact.label, *fact.fields[:-1]))


def literally(value: Value) -> Value:
    """Returns the pattern that matches a value and nothing else."""
    return Record("lit", value) if isinstance(value, Record | tuple | Map) else value
