"""Records by name: one declaration that makes facts and patterns alike.

``Present = record("present", "who")`` returns a maker: ``Present("Alice")`` is a fact,
``Present(capture("who"))`` a pattern, ``Present.of(who="Alice")`` a pattern that leaves other fields open.
It is apart because the index checks no arity.

Always: a made record has exactly the declared fields.
"""

from __future__ import annotations

from index.errors import UsageError
from index.patterns.patterns import DISCARD, Pattern
from index.patterns.text import parse_pattern
from index.values.freezing import freeze
from index.values.values import Record, frozen_fields


class RecordOf:
    """Makes the records of one label."""

    __slots__ = ("_arity", "_label", "fields", "label")

    def __init__(self, label: str, fields: tuple[str, ...]) -> None:
        self.label = label
        self.fields = fields
        self._label = freeze(label)
        self._arity = len(fields)

    def __call__(self, *values: object) -> Record:
        """Returns a fact, or a pattern if a value is one; ``UsageError`` for a wrong number of values."""
        if len(values) != self._arity:
            raise UsageError(f"{self.label} has {len(self.fields)} fields {self.fields}, got {len(values)}")
        return Record.of(self._label, frozen_fields(values))

    def of(self, **named: object) -> Record:
        """Returns the pattern with these fields, and anything in the others."""
        for name in named:
            if name not in self.fields:
                raise UsageError(f"{self.label} has no field {name!r}, it has {', '.join(self.fields)}")
        return Record(self.label, *[named.get(name, DISCARD) for name in self.fields])

    def __repr__(self) -> str:
        return f"record({', '.join(map(repr, (self.label, *self.fields)))})"


def record(label: str, *fields: str) -> RecordOf:
    """Declares the records of a label.

    >>> record("present", "who")("Alice")
    Record('present', 'Alice',)
    """
    return RecordOf(label, fields)


def pattern_of(given: object) -> Pattern:
    """Returns the pattern that is given as text or as a value; for the pattern of one string write ``lit``.

    Raises ``UsageError`` if it is neither.
    """
    return parse_pattern(given) if isinstance(given, str) else freeze(given)
