"""Components: which rules have to be carried out together?

Two rules are connected if the body of one may match what the other derives, or if both derive the same.
Rules that are connected, directly or over others, are a *component*.  Each component has an engine of its
own, since no rule sees what another component derives.  An added rule may join components, and a removed rule
may split one.

Only patterns count here, as for strata: an atom that may match any record is connected with all heads.

Always: rules of different components neither derive the same fact or message, nor see what the other derives;
each rule is in exactly one.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from dataspace.rules.language.hosted import calls_in
from dataspace.rules.language.syntax import Rule, Verb
from dataspace.rules.relations.failures import RuleFailed
from dataspace.rules.relations.views import form_of, may_match, root_of
from index.patterns.skeletons import Skeleton, skeleton
from index.values.positions import Class, label_class
from index.values.values import Value, key

logger = logging.getLogger("dataspace")

_K = TypeVar("_K")
_A = TypeVar("_A")
_V = TypeVar("_V")

HeadAt: TypeAlias = tuple[Hashable, int, bool]
"""What stands for what a rule derives: its label, how many fields it has, whether it is a message."""


class AskedPart(NamedTuple):
    """An atom's question: its class, or any; the key of its pattern, and the pattern."""

    root: Class | None
    place: Hashable
    form: Skeleton


@dataclass(frozen=True, slots=True, eq=False)
class Ports:
    """What a rule derives, and what its atoms ask for."""

    head: HeadAt
    label: Value
    asks: tuple[AskedPart, ...]

    @property
    def arity(self) -> int:
        """Returns the number of fields of the head."""
        return self.head[1]

    @property
    def is_fact(self) -> bool:
        """True if other rules could see what it derives, so not for a message."""
        return not self.head[2]


class PlacedRule(NamedTuple):
    """A rule of a program, by its number: rules that came later have higher ones."""

    number: int
    rule: Rule
    ports: Ports


def placed(number: int, rule: Rule) -> PlacedRule:
    """Returns a rule with its ports; O(rule)."""
    head = rule.head
    at = (key(head.label), len(head.arguments), head.verb is Verb.SEND)
    asks = [_asked(form_of(atom, everything=False).pattern) for atom in rule.atoms]
    return PlacedRule(number, rule, Ports(at, head.label, tuple(asks)))


def _asked(pattern: Value) -> AskedPart:
    form = skeleton(pattern)
    return AskedPart(root_of(form), key(pattern), form)


def parted(rules: Iterable[PlacedRule]) -> list[list[PlacedRule]]:
    """Returns the components of rules, each in the order of its rules.  O(rules × heads of one label)."""
    ordered = sorted(rules)
    joined = list(range(len(ordered)))

    def find(at: int) -> int:
        while joined[at] != at:
            joined[at] = at = joined[joined[at]]
        return at

    heads = _Heads()
    for at, each in enumerate(ordered):
        joined[find(at)] = find(heads.add(each.ports, at))
    for at, each in enumerate(ordered):
        for other in heads.asked_by(each.ports):
            joined[find(at)] = find(other)
    found: dict[int, list[PlacedRule]] = {}
    for at, each in enumerate(ordered):
        found.setdefault(find(at), []).append(each)
    return list(found.values())


class _Heads:
    """The heads of some rules, and for each the number of the first that has it."""

    def __init__(self) -> None:
        self._by_class: dict[Class, dict[HeadAt, tuple[Value, int]]] = {}

    def add(self, ports: Ports, at: int) -> int:
        """Returns the first rule that has this head: ``at`` if none had it yet."""
        alike = self._by_class.setdefault(label_class(ports.label), {})
        return alike.setdefault(ports.head, (ports.label, at))[1]

    def asked_by(self, ports: Ports) -> Iterator[int]:
        """Yields the rules that derive what a rule may ask for."""
        for root, _, form in ports.asks:
            alike = self._by_class.values() if root is None else [self._by_class.get(root, {})]
            for heads in alike:
                for (_, arity, is_sent), (label, at) in heads.items():
                    if not is_sent and may_match(form, label, arity):
                        yield at


class HasRules(Protocol):
    """What carries out the rules of one component."""

    @property
    def rules(self) -> Sequence[PlacedRule]:
        """Returns its rules."""


_E = TypeVar("_E", bound=HasRules)


class Components(Generic[_E]):
    """The engines of a program, one for each component, and which rules could join them."""

    def __init__(self) -> None:
        self._engines: dict[_E, None] = {}
        self._by_rule: dict[int, _E] = {}
        self._heads: dict[Class, dict[HeadAt, tuple[Value, _E]]] = {}
        self._asking: dict[Class | None, dict[Hashable, tuple[Skeleton, dict[_E, None]]]] = {}

    def __iter__(self) -> Iterator[_E]:
        return iter(self._engines)

    def __len__(self) -> int:
        return len(self._engines)

    def add(self, engine: _E) -> None:
        """Adds an engine.  O(its rules)."""
        self._engines[engine] = None
        self.extend(engine, engine.rules)

    def extend(self, engine: _E, rules: Iterable[PlacedRule]) -> None:
        """Notes further rules of an engine.  O(those)."""
        for placed_rule in rules:
            self._by_rule[placed_rule.number] = engine
            ports = placed_rule.ports
            self._heads.setdefault(label_class(ports.label), {})[ports.head] = (ports.label, engine)
            for root, place, form in ports.asks:
                self._asking.setdefault(root, {}).setdefault(place, (form, {}))[1][engine] = None

    def remove(self, engine: _E) -> None:
        """Removes an engine.  O(its rules)."""
        del self._engines[engine]
        for placed_rule in engine.rules:
            del self._by_rule[placed_rule.number]
            ports = placed_rule.ports
            _drop(self._heads, label_class(ports.label), ports.head)
            for root, place, form in ports.asks:
                _, engines = self._asking.get(root, {}).get(place, (form, {}))
                engines.pop(engine, None)
                if not engines:
                    _drop(self._asking, root, place)

    def __contains__(self, engine: _E) -> bool:
        return engine in self._engines

    def of(self, rules: Iterable[PlacedRule]) -> dict[_E, None]:
        """Returns the engines that carry out some rules, as far as any does.  O(rules)."""
        by = self._by_rule
        return {by[each.number]: None for each in rules if each.number in by}

    def near(self, rules: Sequence[PlacedRule]) -> dict[_E, None]:
        """Returns the engines that further rules would be in one component with.  O(rules × atoms alike)."""
        found: dict[_E, None] = {}
        for each in rules:
            found.update(self._near(each.ports))
        return found

    def _near(self, ports: Ports) -> dict[_E, None]:
        found: dict[_E, None] = {}
        of_class = label_class(ports.label)
        if (same := self._heads.get(of_class, {}).get(ports.head)) is not None:
            found[same[1]] = None
        for root, _, form in ports.asks:
            for heads in self._heads.values() if root is None else [self._heads.get(root, {})]:
                for (_, arity, is_sent), (label, engine) in heads.items():
                    if not is_sent and may_match(form, label, arity):
                        found[engine] = None
        if ports.is_fact:
            for root in (of_class, None):
                for form, engines in self._asking.get(root, {}).values():
                    if may_match(form, ports.label, ports.arity):
                        found.update(engines)
        return found


def _drop(table: dict[_K, dict[_A, _V]], at: _K, entry: _A) -> None:
    """Takes an entry out of a table of tables, and deletes a table that is empty then."""
    entries = table.get(at, {})
    entries.pop(entry, None)
    if not entries:
        table.pop(at, None)


def impure(rules: Iterable[PlacedRule]) -> RuleFailed | None:
    """Returns the failure of the first rule that calls functions of the host, if there is one.

    For an engine in which a row is not there that is to go: they have given another result than when it came.
    """
    for placed_rule in rules:
        if names := ", ".join(sorted({*calls_in(placed_rule.rule)})):
            logger.debug("a row was not there", exc_info=True)
            reason = f"{names} gave another result than before for the same arguments: functions must be pure"
            return RuleFailed(placed_rule.number, {}, reason, resumes=False)
    return None
