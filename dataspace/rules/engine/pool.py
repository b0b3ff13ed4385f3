"""The engines of a program: one for each component of its rules, made, extended and removed as rules change.

All of them read the same base facts and share the budget of a tick.  Rules that may ask for a tick of their
own, by ``next``, are listed apart from the others, so that a turn finds them at once.

Always: each rule that is carried out is in the engine of one component; an engine that was removed gets no
changes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from dataspace.rules.engine.components import Components, PlacedRule, parted
from dataspace.rules.engine.dependencies import DependencyGraph
from dataspace.rules.engine.engine import ComponentEngine
from dataspace.rules.engine.explaining import Explainer
from dataspace.rules.engine.texts import Texts
from dataspace.rules.relations.base_facts import BaseFacts
from dataspace.rules.relations.budgets import Bounds, Costs, TickBudget
from dataspace.rules.relations.proofs import Sight
from dataspace.rules.relations.views import form_of
from index.errors import UsageError
from index.values.values import Record, Value, key


@dataclass(frozen=True, slots=True, eq=False)
class Extension:
    """How rules come into an engine that is there, from ``others`` too, which go.

    ``come`` are the new rules, ``engines`` all engines that these are connected with; ``graph`` replaces the
    dependencies of the engine.
    """

    come: tuple[PlacedRule, ...]
    engines: list[ComponentEngine]
    engine: ComponentEngine
    others: list[ComponentEngine]
    rules: list[PlacedRule]
    graph: DependencyGraph


Group: TypeAlias = tuple[list[PlacedRule], dict[ComponentEngine, None]]


class EnginePool:
    """The engines, what all of them share, and the texts that their rules are from.

    ``kept`` are facts that rules held when another program ended: ``next`` goes on from them at first.
    """

    def __init__(
        self, bounds: Bounds, *, max_rules: int, clock: Callable[[], int] | None, kept: Iterable[Value]
    ) -> None:
        self.base_facts: Final[BaseFacts[ComponentEngine]] = BaseFacts()
        self.components: Final[Components[ComponentEngine]] = Components()
        self.budget: Final = TickBudget(bounds)
        self.budget.gone = lambda: sum(engine.gone() for engine in self.components)
        self.costs: Final = Costs(clock)
        self.delaying: Final[dict[ComponentEngine, None]] = {}
        """Engines that may ask for a tick."""
        self.separated: frozenset[Hashable] = frozenset()
        """Labels of heads whose rows are not shown to others as they are (``Unalias``)."""
        self.forbidding = 0
        """How many engines negate something."""
        self.made = 0
        """How many engines there have been."""
        self.kept: Final[dict[tuple[Hashable, int], list[Record]]] = {}
        """In the first tick: facts by label and number of fields."""
        self.compiled = 0
        """How many rules engines have made functions for: each time that one came into an engine."""
        self._whole: DependencyGraph | None = None
        self._grown: Extension | None = None  # the last one that was looked at
        for fact in kept:
            if isinstance(fact, Record):
                self.kept.setdefault((key(fact.label), len(fact.fields)), []).append(fact)
        errors = self.kept.get((key("rule-error"), 4), ())
        self.texts: Final = Texts(max_rules, self._near, self._fits, errors)

    def _near(self, rules: Sequence[PlacedRule]) -> list[PlacedRule]:
        return [each for engine in self.components.near(rules) for each in engine.rules]

    def _fits(self, rules: Sequence[PlacedRule]) -> bool:
        """True if rules certainly can be put in order with the rules that they are connected with."""
        near = self.components.near(rules)
        return bool(near) and self.extension(rules, near) is not None

    def extension(
        self, rules: Sequence[PlacedRule], engines: Mapping[ComponentEngine, None]
    ) -> Extension | None:
        """Returns how rules can come into the largest of the engines that they are connected with.

        The rules of the others come with them, if all of these are no more than it has.  So of n rules that
        come one by one, none moves to another engine more than log n times.  None if they are more, or if the
        engine cannot take them in place.  O(what the rules touch), beside copies of tables.
        """
        known = self._grown
        if known is not None and known.come == tuple(rules) and known.engines == [*engines]:
            return known  # as mostly: it was looked at when the text was read
        largest = max(engines, key=lambda each: len(each.rules))
        others = [each for each in engines if each is not largest]
        more = [*rules, *[rule for other in others for rule in other.rules]]
        if len(more) > len(largest.rules) or any(other.has_next for other in others):
            return None
        try:
            graph = largest.dependencies.grown([each.rule for each in more])
        except UsageError:
            return None
        if not graph.growth.is_in_place:
            return None
        self._grown = Extension(tuple(rules), [*engines], largest, others, more, graph)
        return self._grown

    def reads(self, rule: PlacedRule, read: set[Hashable]) -> int:
        """Returns the number of facts that a rule has to read beside the facts in ``read``, where it notes
        its own.

        These are the facts of the class of each atom for which there is no view yet.  O(rule).
        """
        facts = 0
        for atom, asked in zip(rule.rule.atoms, rule.ports.asks, strict=True):
            form = form_of(atom, everything=bool(rule.rule.head.aggregates) and not atom.negated)
            place = key(form.pattern)
            if place not in self.base_facts.views and place not in read:
                read.add(place)
                facts += self.base_facts.count([asked.root])
        return facts

    def groups(self, come: Iterable[PlacedRule]) -> list[Group]:
        """Returns the new rules that are connected with engines, each group with these; of others nothing.

        No engine is in two of them.  O(rules × atoms alike + groups²).
        """
        groups: list[Group] = []
        for component in parted(come):
            rules, engines = [*component], self.components.near(component)
            if engines:
                for group in [each for each in groups if each[1].keys() & engines.keys()]:
                    groups.remove(group)
                    rules, engines = [*group[0], *rules], {**group[1], **engines}
                groups.append((rules, engines))
        return groups

    def extend(self, by: Extension, freed: int) -> None:
        """Has an engine take in further rules; the engines that they were in have gone."""
        engine = by.engine
        self.forbidding -= bool(engine.negated)
        engine.extend(by.rules, by.graph, freed)
        self.forbidding += bool(engine.negated)
        self.compiled += len(by.rules)
        self.components.extend(engine, by.rules)
        if engine.has_next:
            self.delaying[engine] = None
        self._whole = self._grown = None

    def make(self, rules: Sequence[PlacedRule]) -> ComponentEngine:
        """Returns a new engine for the rules of one component."""
        engine = ComponentEngine(
            rules, self.base_facts, budget=self.budget, costs=self.costs, separated=self.separated
        )
        self.made += 1
        self.compiled += len(rules)
        self.components.add(engine)
        if engine.has_next:
            self.delaying[engine] = None
        self.forbidding += bool(engine.negated)
        self._whole = None
        return engine

    def detach(self, engine: ComponentEngine) -> None:
        """Removes an engine: it gets no more changes."""
        for rule in engine.rules:
            if not self.texts.is_sound(rule):
                self.costs.forget(rule.number)
        self.base_facts.detach(engine, engine.plain, engine.claims())
        self.components.remove(engine)
        self.delaying.pop(engine, None)
        self.forbidding -= bool(engine.negated)
        self._whole = self._grown = None

    def explainer(self, sight: Sight | None = None) -> Explainer:
        """Returns what answers why, why not and how, for all components as one; O(rules) after a change."""
        order = sorted(
            (rule.number, engine, at) for engine in self.components for at, rule in enumerate(engine.rules)
        )
        if self._whole is None:
            self._whole = DependencyGraph.joined([(engine.dependencies, at) for _, engine, at in order])
        numbers = [number for number, _, _ in order]
        return Explainer(
            self._whole,
            self.base_facts.terms,
            lambda at: self.costs.of(numbers[at]),
            self.base_facts,
            stated=lambda at: self.texts.stated(numbers[at]),
            sight=sight,
        )

    def size(self) -> int:
        """Returns the number of entries in all tables; 0 without facts, if no rule needs any.  O(tables)."""
        return self.base_facts.size() + sum(engine.size() for engine in self.components)
