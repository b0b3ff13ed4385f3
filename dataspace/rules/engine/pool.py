"""The engines of a program: one for each component of its rules, made and detached as rules come and go.

All of them stand on the same base facts and share the budget of a tick.  Those that may ask for a tick of
their own, by ``next``, are kept apart from the others, so that a turn finds them at once.

Always: each rule that is carried out is in the engine of one component, and no engine that was detached is
told of anything.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final

from dataspace.rules.engine.components import Components, PlacedRule
from dataspace.rules.engine.dependencies import DependencyGraph
from dataspace.rules.engine.engine import ComponentEngine
from dataspace.rules.engine.explaining import Explainer
from dataspace.rules.engine.texts import Texts
from dataspace.rules.relations.base_facts import BaseFacts
from dataspace.rules.relations.budgets import Bounds, TickBudget
from dataspace.rules.relations.costs import Costs
from dataspace.rules.relations.proofs import Sight
from index.values.values import Record, Value, key


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
        """Those that may ask for a tick."""
        self.separated: frozenset[Hashable] = frozenset()
        """Labels of heads whose rows are not shown to others as they are (``Unalias``)."""
        self.forbidding = 0
        """How many engines negate something."""
        self.made = 0
        """How many engines there have been."""
        self.kept: Final[dict[tuple[Hashable, int], list[Record]]] = {}
        """In the first tick: facts by label and number of fields."""
        self._whole: DependencyGraph | None = None
        for fact in kept:
            if isinstance(fact, Record):
                self.kept.setdefault((key(fact.label), len(fact.fields)), []).append(fact)
        self.texts: Final = Texts(max_rules, self._near, self.kept.get((key("rule-error"), 4), ()))

    def _near(self, rules: Sequence[PlacedRule]) -> list[PlacedRule]:
        return [each for engine in self.components.near(rules) for each in engine.rules]

    def make(self, rules: Sequence[PlacedRule]) -> ComponentEngine:
        """An engine for the rules of one component."""
        engine = ComponentEngine(
            rules, self.base_facts, budget=self.budget, costs=self.costs, separated=self.separated
        )
        self.made += 1
        self.components.add(engine)
        if engine.has_next:
            self.delaying[engine] = None
        self.forbidding += bool(engine.negated)
        self._whole = None
        return engine

    def detach(self, engine: ComponentEngine) -> None:
        """Has an engine told of nothing any more."""
        for rule in engine.rules:
            if not self.texts.is_sound(rule):
                self.costs.forget(rule.number)
        self.base_facts.detach(engine)
        self.components.remove(engine)
        self.delaying.pop(engine, None)
        self.forbidding -= bool(engine.negated)
        self._whole = None

    def explainer(self, sight: Sight | None = None) -> Explainer:
        """Who answers why, why not and how, for all components as one; O(rules) after these have changed."""
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
