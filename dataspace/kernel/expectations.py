"""Expectations: conditions on the state before a turn, or the turn does not happen.

A client that reads, decides and writes would act on a state that another one has changed meanwhile.  So a
turn may carry what it expects: that a pattern has no match, that it has exactly certain matches, or that no
fact that matches has come or gone since an epoch.  They are tuples like actions, and the wire carries them as
they are.  They are apart from what checks them, because clients make them, and need no index for that.

Always: expectations that pass ``are_expectations`` can be read, unless a pattern in them is none; a refusal
repeats a bounded part of the facts that were found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, Self

from dataspace.codec import pack
from dataspace.errors import ExpectationFailed, ProtocolError, Refused, UsageError
from index.patterns.patterns import Skeleton, skeleton
from index.patterns.text import parse_pattern, unparse
from index.values.freezing import freeze
from index.values.values import Map, Value

ABSENT: Final = 0
EXACTLY: Final = 1
UNCHANGED: Final = 2

MOST_EXPECTED: Final = 256
"""Expectations of one turn."""

FOUND_ROWS: Final = 16
FOUND_BYTES: Final = 8192
"""Bytes of found facts that a refusal repeats."""


KEPT_TEXT: Final = 512
"""Characters of a pattern that stays parsed."""


class Expectation(NamedTuple):
    """What a turn expects of the facts that match a pattern; made by ``absent``, ``exactly``, ``unchanged``.

    ``argument`` is None, the rows, or the epoch.
    """

    kind: int
    pattern: Value
    argument: Value = None

    def packed(self) -> tuple[Value, ...]:
        """Returns the expectation as it is in a turn."""
        return (self.kind, self.pattern) if self.kind == ABSENT else tuple(self)

    def __str__(self) -> str:
        text = f"{unparse(self.pattern):.200}"
        match self.kind:
            case 0:
                return f"{text} to have no match"
            case 1:
                assert isinstance(self.argument, tuple)  # as it was made
                if self.argument == ((),):
                    return f"{text} to have a match"
                return f"{text} to match exactly {rows_text(self.argument, len(self.argument))}"
            case _:
                return f"{text} to be unchanged since epoch {self.argument!r}"


def absent(pattern: Value) -> Expectation:
    """Returns the expectation that no fact matches a pattern, which may be given as text.

    >>> str(absent('leader("billing", _)'))
    'leader("billing", _) to have no match'
    """
    return Expectation(ABSENT, pattern_of(pattern))


def exactly(pattern: Value, rows: Iterable[Sequence[object]]) -> Expectation:
    """Returns the expectation that a pattern has these captures and no others, in any order.

    A row is a tuple of the captures of one match.  A pattern without captures has the row ``()`` if any fact
    matches it.

    >>> str(exactly('leader("billing", $who)', [("me",)]))
    'leader("billing", $who) to match exactly ("me")'
    """
    return Expectation(EXACTLY, pattern_of(pattern), tuple([_row(row) for row in rows]))


def _row(row: object) -> Value:
    if not isinstance(row, tuple | list):
        raise UsageError(f"a row is a tuple of captures, such as ({row!r:.60},), got {row!r:.60}")
    return freeze(row)


def unchanged(pattern: Value, *, since: int) -> Expectation:
    """Returns the expectation that no fact that matches has come or gone after an epoch.

    It also refuses where a fact went and came back, which ``exactly`` cannot see.

    >>> str(unchanged('config("billing", _, _)', since=7))
    'config("billing", _, _) to be unchanged since epoch 7'
    """
    if since.__class__ is not int or since < 0:
        raise UsageError(f"since is the number of an epoch, got {since!r:.60}")
    return Expectation(UNCHANGED, pattern_of(pattern), since)


def pattern_of(pattern: Value) -> Value:
    """Returns a pattern that may be given as text; raises ``UsageError`` for a text or value that is none."""
    if isinstance(pattern, str):
        return _parsed(pattern) if len(pattern) <= KEPT_TEXT else _checked(parse_pattern(pattern))
    return _checked(pattern)


@lru_cache(maxsize=256)
def _parsed(text: str) -> Value:
    """Parses a short pattern once: the same few are expected again and again."""
    return _checked(parse_pattern(text))


def _checked(form: Value) -> Value:
    skeleton(form)
    return form


# -- what a packet brings ----------------------------------------------------------------------------


def are_expectations(value: Value) -> bool:
    """True if this is an array of expectations; raises ``ProtocolError`` for an element that is none."""
    if value.__class__ is not tuple:
        return False
    assert isinstance(value, tuple)  # as just checked
    for each in value:
        if not _is_expectation(each):
            raise ProtocolError("malformed", f"no expectation: {each!r:.80}, see Turn in WIRE.md")
    return True


def _is_expectation(value: Value) -> bool:
    if not isinstance(value, tuple) or not value or value[0].__class__ is not int:
        return False
    if value[0] == ABSENT:
        return len(value) == 2
    if len(value) != 3:
        return False
    argument = value[2]
    if value[0] == EXACTLY:
        return isinstance(argument, tuple) and (not argument or set(map(type, argument)) == _ARRAYS)
    return value[0] == UNCHANGED and argument.__class__ is int and 0 <= argument < 1 << 63


_ARRAYS: Final = {tuple}


class Condition(NamedTuple):
    """One expectation of a turn, ready to be checked: its place among them, and its pattern as a skeleton."""

    number: int
    expected: Expectation
    form: Skeleton

    @classmethod
    def reading(cls, packed: Sequence[Value]) -> Iterator[Self]:
        """Yields the expectations of a packet; raises ``Refused`` for too many, ``UsageError`` for a pattern
        that is none."""
        if len(packed) > MOST_EXPECTED:
            raise Refused("limit", f"{len(packed)} expectations of one turn, the limit is {MOST_EXPECTED}")
        for at, each in enumerate(packed, 1):
            yield cls(at, Expectation(*each), skeleton(each[1]))  # type: ignore[misc, index]  # arrays, as was checked

    def failed(
        self, what: str, rows: Sequence[tuple[Value, ...]], count: int, epoch: int = 0
    ) -> ExpectationFailed:
        """Returns the refusal of the turn, with the found facts in place of the expected ones."""
        shown = _bounded(rows)
        found = Map({"expectation": self.number, "rows": tuple(shown), "count": count, "epoch": epoch})
        text = f"expectation {self.number} does not hold: expected {self.expected}, {what}"
        return ExpectationFailed("expectation", text[:2000], found)


def _bounded(rows: Sequence[tuple[Value, ...]]) -> list[tuple[Value, ...]]:
    """Returns the first rows, as many as a refusal repeats."""
    shown: list[tuple[Value, ...]] = []
    left = FOUND_BYTES
    for row in rows[:FOUND_ROWS]:
        left -= len(pack(row))
        if left < 0:
            break
        shown.append(row)
    return shown


def rows_text(rows: Sequence[Value], count: int) -> str:
    if not rows:
        return "nothing"
    if not rows[0]:
        return "a match"
    texts = [f"({', '.join([f'{unparse(each):.80}' for each in row])})" for row in rows[:4]]  # type: ignore[union-attr]
    more = f" and {count - len(texts)} more" if count > len(texts) else ""
    return ", ".join(texts) + more


def too_much(condition: Condition, most: int) -> Refused:
    """Returns the refusal of a condition that concerns too much."""
    return Refused(
        "limit",
        f"expectation {condition.number} concerns more than {most} facts or changes, and those of one turn "
        "at most limits.expected_facts: use a narrower pattern, or raise the limit",
    )
