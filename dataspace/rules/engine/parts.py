"""Parts: the objects for each rule of an engine: its compiler, its groups and its allowance.

They are made once, when the rule comes into the engine, and not again when others come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from dataspace.rules.engine.compiling import Compiler, DeferredErrors, RuleLimits
from dataspace.rules.engine.components import PlacedRule
from dataspace.rules.engine.dependencies import GROUP, DependencyGraph
from dataspace.rules.language.functions import BYTES_OF_WORK
from dataspace.rules.language.groups import parts_of_maybe
from dataspace.rules.language.syntax import Rule
from dataspace.rules.relations.budgets import (
    MAX_TEXT,
    STEPS_FOR_EACH_ROW,
    Budget,
    Costs,
    TickBudget,
    more_bytes,
    more_steps,
)
from dataspace.rules.relations.grouping import Change, Grouping
from dataspace.rules.relations.join_orders import BoundAtom
from dataspace.rules.relations.terms import Terms
from dataspace.rules.relations.times import Times
from dataspace.rules.relations.timing import Timing


class RuleParts:
    """Makes the parts of the rules of one engine, which are known by their numbers in it."""

    def __init__(self, terms: Terms, budget: TickBudget, costs: Costs, times: Times, owner: object) -> None:
        self._times = times
        self._owner = owner
        self.deferred: Final = DeferredErrors()
        self.compilers: Final[list[Compiler]] = []
        """The compilers of all rules so far, in order."""
        self.groupings: Final[dict[int, Grouping | Timing]] = {}
        """What collects the solutions of rules: with aggregates, or over time."""
        self._terms = terms
        self._budget = budget
        self._costs = costs

    def make(self, rules: Sequence[PlacedRule], dependencies: DependencyGraph) -> list[Compiler]:
        """Makes the parts of further rules, which the graph has already; returns their compilers."""
        first = len(self.compilers)
        for at, rule in enumerate(rules, first):
            self.compilers.append(self._compiler(at, rule, dependencies))
        return [each for made in self.compilers[first:] for each in (made, *made.maybes)]

    def _compiler(self, at: int, placed: PlacedRule, dependencies: DependencyGraph) -> Compiler:
        head, number, budget = dependencies.head(placed.rule), placed.number, self._budget
        facts = Budget(
            number,
            min(budget.bounds.made, budget.bounds.held),
            "bytes were derived",
            budget.tick,
            share=budget.make,
            again=budget.again,
            more=more_bytes,
            part=BYTES_OF_WORK * budget.bounds.part,
        )
        grouping: Grouping | Timing | None = None
        if placed.rule.form is not None:
            form = self._times.form(placed.rule.head.label, placed.rule.form)
            grouping = self.groupings[at] = Timing(form, self._times, head, self._owner)
        if placed.rule.head.aggregates:
            grouping = Grouping(f"{GROUP}{at + 1}", number, placed.rule, head, self._terms, facts)
            self.groupings[at] = grouping
        most, part, tick = budget.bounds.rows, budget.bounds.part, budget.tick
        rows, what = STEPS_FOR_EACH_ROW * most, "rows were looked at"
        waiting = head.pending if grouping is None else ()
        looking = partial(Budget, number, rows, what, tick, share=budget.look, again=budget.again, part=part)
        steps = looking(waiting, most, more=more_steps)
        deferred = looking(more=more_steps)
        unit = "characters of values were made"
        text = Budget(
            number,
            MAX_TEXT,
            unit,
            tick,
            share=budget.make,
            again=budget.again,
            more=more_bytes,
            part=BYTES_OF_WORK * part,
        )
        limits, meter = RuleLimits(steps, text, facts, deferred), self._costs.meter(number)
        atoms = dependencies.atoms[at]
        cycle = dependencies.cycle(head) if grouping is None else []

        def compiler(rule: Rule, atoms: list[BoundAtom], change: Change | None) -> Compiler:
            return Compiler(
                number, rule, atoms, head, cycle, self._terms, change, limits, self.deferred, meter
            )

        maybes = [each for each in atoms if each.atom.maybe]
        if not maybes or not isinstance(grouping, Grouping):
            return compiler(placed.rule, atoms, None if grouping is None else grouping.change)
        main, *parts = parts_of_maybe(placed.rule)
        made = compiler(main, [each for each in atoms if not each.atom.maybe], grouping.change)
        inner: list[Compiler] = []
        for of, maybe, change in zip(parts, maybes, grouping.changes[1:], strict=True):
            surely = replace(maybe, atom=replace(maybe.atom, maybe=False))
            needed = [surely if each is maybe else each for each in atoms]  # in order, as triggers go by it
            inner.append(compiler(of, [each for each in needed if not each.atom.maybe], change))
        made.maybes = tuple(inner)
        return made
