"""Resuming: when may a rule that was suspended be carried out again?

A rule is suspended when it cannot calculate something, because of values that are in facts.  When one of
these facts goes, or one comes that a negation reads, the reason may be gone, and the rule is tried again in
that tick.  After each failure it waits for longer: each attempt makes a component anew, and any client that
may assert a fact could cause one in each turn.

Always: a text is tried again only after one of the facts that broke it has changed; it waits for a number of
ticks, not for a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from dataspace.rules.language.syntax import Rule
from index.errors import UsageError
from index.patterns.patterns import matcher
from index.values.values import Map, Record, Value

Pair: TypeAlias = tuple[str, str]
"""The name and the text of an entry."""

WAITS: Final = (0, 16, 256, 4096)
"""Ticks that a text waits before its first, second, third and any further attempt."""


@dataclass(slots=True)
class _Record:
    """How often a text was suspended in a row, and in which tick it last was."""

    failures: int = 0
    tick: int = 0

    @property
    def ready(self) -> int:
        """Returns the first tick in which it may be tried again."""
        return self.tick + WAITS[min(self.failures, len(WAITS)) - 1]


class Resuming:
    """The suspended texts of a program that wait for facts to change, and the texts that may be tried
    again."""

    def __init__(self) -> None:
        self.watched: Final[dict[Pair, _Watch]] = {}
        self._due: dict[Pair, None] = {}
        self._records: dict[Pair, _Record] = {}

    def watch(self, pair: Pair, rule: Rule, row: Mapping[str, Value], tick: int) -> None:
        """Waits for what broke a rule to change; ``row`` is what its variables were."""
        record = self._records.setdefault(pair, _Record())
        if tick - record.tick > WAITS[-1]:
            record.failures = 0
        record.failures += 1
        record.tick = tick
        self.watched[pair] = _Watch(rule, row)
        self._due.pop(pair, None)

    def forget(self, pair: Pair, *, for_good: bool) -> None:
        """Waits no longer; ``for_good`` where the text is no entry any more."""
        self.watched.pop(pair, None)
        self._due.pop(pair, None)
        if for_good:
            self._records.pop(pair, None)

    def note(self, added: Iterable[Value], removed: Iterable[Value]) -> None:
        """Looks which texts concern facts that have come and gone.  O(facts × watched texts)."""
        for pair, watch in self.watched.items():
            if pair not in self._due and watch.concerns(added, removed):
                self._due[pair] = None

    def ready(self, tick: int) -> list[Pair]:
        """Returns the texts that are to be tried in this tick.  O(texts that are due)."""
        return [pair for pair in self._due if self._records[pair].ready <= tick]


class _Watch:
    """The cause of one rule's failure: patterns of the present facts, and of the missing ones."""

    def __init__(self, rule: Rule, row: Mapping[str, Value]) -> None:
        patterns = [(_pattern(atom.pattern, row), atom.negated) for atom in rule.atoms]
        self._there = [matcher(pattern) for pattern, negated in patterns if not negated]
        self._absent = [matcher(pattern) for pattern, negated in patterns if negated]

    def concerns(self, added: Iterable[Value], removed: Iterable[Value]) -> bool:
        """True if the rule may work again since these facts have come or gone."""
        return any(read(value) is not None for value in removed for read in self._there) or any(
            read(value) is not None for value in added for read in self._absent
        )


def _pattern(pattern: Value, row: Mapping[str, Value]) -> Value:
    """Returns a pattern with the values of its variables, or as it is where these are too large."""
    filled = _filled(pattern, row)
    try:
        matcher(filled)
    except UsageError:
        return pattern
    return filled


def _filled(pattern: Value, row: Mapping[str, Value]) -> Value:
    match pattern:
        case Record(label="$", fields=(str(name), _, _)) if name in row:
            return Record.of("lit", (row[name],))
        case Record(label="lit" | "$" | "_"):
            return pattern
        case Record(label=label, fields=fields):
            return Record.of(label, tuple([_filled(each, row) for each in fields]))
        case tuple():
            return tuple([_filled(each, row) for each in pattern])
        case Map():
            return Map.of([(at, _filled(each, row)) for at, each in pattern.pairs()])
        case _:
            return pattern
