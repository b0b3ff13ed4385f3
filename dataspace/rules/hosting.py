"""Hosting: the rules of one space, as facts among its facts.

``rule(name, text)`` is a fact like any other; while somebody claims it, it is carried out.  What follows is
claimed by an owner of its own, so that it is counted, logged and restored like what anybody claims, and
goes in the epoch of the turn that took its cause away.  What is wrong with a rule is a fact too,
``rule-error(name, text, row, reason)``, for as long as the rule is there.

The space asks before it changes its index: what is claimed is seen as it will be after the turn.

Always: a fact that follows and that nobody else claims has exactly one claim by ``RULES``; all others have
none.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dataspace.epochs import Claims
from dataspace.rules.engine import Derived
from dataspace.rules.program import Program, ProgramStatistics
from index.trie import Index
from index.values import Record, Value, key

RULES: Final = "rules"
"""The owner of all that rules derive."""


@dataclass(slots=True)
class Consequence:
    """What a turn means to rules: further facts, messages and removals, and the claims that they are."""

    added: list[Value] = field(default_factory=list)
    messages: list[Value] = field(default_factory=list)
    removed: list[Value] = field(default_factory=list)
    claims: tuple[Claims, ...] = ()


class RuleHost:
    """The rules of a space, and the claims that they hold."""

    def __init__(self, index: Index, *, max_facts: int) -> None:
        self.claims: dict[int, Value] = {}
        self.program: Program | None = None
        self._index = index
        self._max_facts = max_facts
        self._handles: dict[Hashable, int] = {}
        self._next = 1
        self._errors: dict[Hashable, Value] = {}
        self._coming: Sequence[Value] = ()
        self._going: Sequence[Value] = ()
        self._adopted = False

    def __bool__(self) -> bool:
        return self.program is not None or self._adopted

    def adopt(self, claims: Mapping[int, Value]) -> None:
        """Takes over what rules held when the log ended; the next turn says what is still right."""
        self.claims = dict(claims)
        self._handles = {key(value): handle for handle, value in claims.items()}
        self._next = max(claims, default=0) + 1
        self._adopted = True

    @staticmethod
    def is_rule(value: Value) -> bool:
        """Whether a fact is a rule."""
        return value.__class__ is Record and value.label == "rule"

    # -- turns ----------------------------------------------------------------------------------------

    def turn(
        self, added: Sequence[Value], removed: Sequence[Value], messages: Sequence[Value]
    ) -> Consequence:
        """What follows from claims that are about to be made and ended, and from messages."""
        coming, going = self._transitions(added, removed)
        rules_in = [pair for value in coming if (pair := _rule(value)) is not None]
        rules_out = [pair for value in going if (pair := _rule(value)) is not None]
        if self.program is None or rules_in or rules_out:
            return self._turn_of_rules(coming, going, messages, (rules_in, rules_out))
        self._coming, self._going = coming, going
        return self._claim(self._with_errors(self.program.tick(coming, going, messages)))

    def _turn_of_rules(
        self,
        coming: list[Value],
        going: list[Value],
        messages: Sequence[Value],
        rules: tuple[list[tuple[str, str]], list[tuple[str, str]]],
    ) -> Consequence:
        self._coming, self._going = coming, going
        if self.program is None:
            self.program = Program(self._facts, max_inserted=self._max_facts)
            rules = [pair for value in self._facts() if (pair := _rule(value)) is not None], []
        derived = self.program.declare_and_tick(rules, coming, going, messages)
        derived = self._with_errors(derived)
        if self._adopted:
            self._adopted = False
            derived = self._compared(derived)
        consequence = self._claim(derived)
        if not self.program.entries:
            self.program = None
        return consequence

    def advance(self) -> Consequence:
        """The tick that ``next`` has asked for."""
        assert self.program is not None  # else nothing is pending
        self._coming = self._going = ()
        return self._claim(self._with_errors(self.program.tick_again()))

    @property
    def pending(self) -> bool:
        """Whether ``next`` asks for a tick."""
        return self.program is not None and self.program.pending

    # -- claims ---------------------------------------------------------------------------------------

    def _transitions(
        self, added: Sequence[Value], removed: Sequence[Value]
    ) -> tuple[list[Value], list[Value]]:
        """Which facts appear and vanish, as far as others than the rules claim them."""
        if len(added) + len(removed) == 1:
            value = added[0] if added else removed[0]
            if self._claimed(value) == (0 if added else 1):
                return list(added), list(removed)
            return [], []
        values: dict[Hashable, Value] = {}
        by: dict[Hashable, int] = {}
        for value in added:
            values.setdefault(key(value), value)
            by[key(value)] = by.get(key(value), 0) + 1
        for value in removed:
            values.setdefault(key(value), value)
            by[key(value)] = by.get(key(value), 0) - 1
        coming, going = [], []
        for at, value in values.items():
            if by[at]:
                before = self._claimed(value)
                if not before:
                    coming.append(value)
                elif not before + by[at]:
                    going.append(value)
        return coming, going

    def _claimed(self, value: Value) -> int:
        """How many claims on a fact there are by others."""
        return self._index.count(value) - (key(value) in self._handles)

    def _facts(self) -> Iterator[Value]:
        """All facts that others claim, as they will be after this turn."""
        going = set(map(key, self._going))
        for value in self._index.values():
            at = key(value)
            if at not in going and (at not in self._handles or self._index.count(value) > 1):
                yield value
        yield from self._coming

    def _with_errors(self, derived: Derived) -> Derived:
        """What is wrong with rules now, beside what follows from them."""
        assert self.program is not None  # whoever ticks has one
        if not self._errors and not self.program.has_trouble:
            return derived
        errors: dict[Hashable, Value] = {}
        for entry in self.program.entries.values():
            if entry.trouble:
                fact = Record("rule-error", entry.name, entry.text, entry.row, entry.trouble)
                errors[key(fact)] = fact
        derived.added += [fact for at, fact in errors.items() if at not in self._errors]
        derived.removed += [fact for at, fact in self._errors.items() if at not in errors]
        self._errors = errors
        return derived

    def _compared(self, derived: Derived) -> Derived:
        """The difference to what was adopted, where ``derived`` speaks of all."""
        wanted = {key(value): value for value in derived.added}
        return Derived(
            [value for at, value in wanted.items() if at not in self._handles],
            derived.messages,
            [self.claims[handle] for at, handle in self._handles.items() if at not in wanted],
        )

    def _claim(self, derived: Derived) -> Consequence:
        if not derived:
            return _NOTHING
        begun, ended = [], []
        for value in derived.added:
            handle = self._handles[key(value)] = self._next
            self._next += 1
            self.claims[handle] = value
            begun.append((handle, value))
        for value in derived.removed:
            handle = self._handles.pop(key(value))
            del self.claims[handle]
            ended.append(handle)
        claims = (Claims(RULES, begun, ended),) if begun or ended else ()
        return Consequence(derived.added, derived.messages, derived.removed, claims)

    def statistics(self) -> ProgramStatistics | None:
        """Counts of the program, if there is one."""
        return None if self.program is None else self.program.statistics()


_NOTHING: Final = Consequence()


def _rule(value: Value) -> tuple[str, str] | None:
    """Name and text of a fact that is a rule."""
    if RuleHost.is_rule(value):
        match value:
            case Record(fields=(str(name), str(text))):
                return name, text
    return None


def rules_in(values: Iterable[Value]) -> bool:
    """Whether any of these facts is a rule; O(values)."""
    for value in values:  # noqa: SIM110  any() would make a generator for each turn
        if value.__class__ is Record and value.label == "rule":
            return True
    return False
