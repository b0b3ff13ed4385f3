"""The engine: the rules of one component, and what follows from the facts that the engine gets.

An dependencies says which relations the rules have, and in which order they settle; here they are filled with
functions and tables, and run.  What no rule derives comes from the base facts, which components share;
heads, and views that show them, are the engine's own.  In a tick the base facts count derivations into the
rules; then the engine lets one stratum after the other settle, and says what has come of it.
An engine is thrown away when its rules change or one of them fails: ``program`` then makes others.

Always: after a tick the derived facts are those that follow from the claimed facts and from nothing else,
whichever way they came to be; the relations of a stratum change only when all below are settled.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import TypeAlias

from dataspace.flows.results import Derived
from dataspace.rules.engine.compiling import Compiler, RuleLimits, RuleTrigger
from dataspace.rules.engine.components import PlacedRule
from dataspace.rules.engine.costs import Costs
from dataspace.rules.engine.deferred_errors import DeferredErrors
from dataspace.rules.engine.dependencies import GROUP, DependencyGraph
from dataspace.rules.engine.join_orders import BoundAtom
from dataspace.rules.language.syntax import Rule, Verb
from dataspace.rules.relations.base_facts import BaseFacts, Claim, Use
from dataspace.rules.relations.budgets import (
    BYTES_OF_WORK,
    MAX_TEXT,
    STEPS_FOR_EACH_ROW,
    Budget,
    TickBudget,
)
from dataspace.rules.relations.derived_relations import HeadRelation, lead
from dataspace.rules.relations.failures import Defect, LimitReached, RuleFailed, Unalias, Unit
from dataspace.rules.relations.grouping import Grouping
from dataspace.rules.relations.guards import Fenced
from dataspace.rules.relations.relations import Relation, settle
from dataspace.rules.relations.tables import UnwrittenTable
from dataspace.rules.relations.terms import Row
from dataspace.rules.relations.views import View
from index.values.positions import Class, class_of
from index.values.values import Record, Value, key

logger = logging.getLogger("dataspace")


Step: TypeAlias = tuple[Sized, Callable[[], None]]
"""What settles as a whole: the relations of one cycle, a relation in none, the groups of one rule.

There is something to do when the first is not empty.
"""


class _AnyOf:
    """Not empty if any of these is not."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[Sized]) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return sum(map(len, self._parts))


class ComponentEngine:
    """The rules of one component, compiled, with their state; it stands on the base facts from the start.

    ``failure`` is what went wrong in it: then it is good for nothing but ``derived``, ``held`` and ``sent``,
    and whatever else it is told of does nothing.
    """

    def __init__(
        self,
        rules: Sequence[PlacedRule],
        base_facts: BaseFacts[ComponentEngine],
        *,
        budget: TickBudget,
        costs: Costs,
        separated: frozenset[Hashable] = frozenset(),
    ) -> None:
        self.rules = tuple(rules)
        self.failure: Exception | None = None
        self.waiting: tuple[Sized, ...]
        """It has something to do only when any of these is not empty, or it is ``pending``."""
        self._alarm: list[Exception] = []
        self._deferred = DeferredErrors()
        self.dependencies = dependencies = DependencyGraph(
            [each.rule for each in rules], separated, base_facts.views
        )
        self.plain: dict[View, Use] = {}
        """The views of base facts that it asks for."""
        self.roots: set[Class | None]
        """The classes of facts that it is told of; None for all."""
        self.negated: set[Class | None]
        """Those that negations ask for."""
        self._base_facts = base_facts
        self._terms = base_facts.terms
        self._budget = budget
        self._stamp = 0
        self._views: dict[Class | None, list[View]] = {}
        self._claimable = dependencies.claimable
        self._schedule: list[tuple[HeadRelation, Row, int]] = []
        self._facts = dependencies.of_verb(Verb.ASSERT)
        self._news = [(of.news.came, of.news.went, of.news.noted, of.publish) for of in self._facts]
        self._delayed = dependencies.of_verb(Verb.NEXT)
        self._sending = dependencies.of_verb(Verb.SEND)
        self.speaks = bool(self._delayed or self._sending)
        """Whether there is ever anything to ``say``."""
        self._facts_paid: dict[int, Budget] = {}
        self._groupings = {step: self._grouping(step) for step in dependencies.steps if isinstance(step, int)}
        self._steps: list[Step]
        self._fill_in(costs)

    # -- building -------------------------------------------------------------------------------------

    def _grouping(self, at: int) -> Grouping:
        rule = self.dependencies.rules[at]
        head = self.dependencies.head(rule)
        return Grouping(f"{GROUP}{at + 1}", self.rules[at].number, rule, head, self._terms, self._paid(at))

    def _step(self, step: int | list[Relation]) -> Step:
        if isinstance(step, int):
            grouping = self._groupings[step]
            return grouping.pending, grouping.settle
        if id(step[0]) in self.dependencies.cycles:
            pending = [each.pending for each in step]
            return pending[0] if len(step) == 1 else _AnyOf(pending), self._cycle(step)
        return step[0].pending, step[0].table.settle

    def _fill_in(self, costs: Costs) -> None:
        """Makes the functions and tables, and stands on the base facts."""
        for view in self.dependencies.views.values():
            self._feed(view)
        self._compilers = [self._compiler(number, costs) for number in range(len(self.rules))]
        for compiler in self._compilers:
            for atom in compiler.atoms:
                self._install(atom, compiler)
        for view, use in self.plain.items():
            use.columns.update(view.wanted)
            view.wanted.clear()
        for relation in self._own_relations():
            relation.in_cycle = id(relation) in self.dependencies.cycles
            relation.table = UnwrittenTable(relation, self._budget, self._written)
        asked = zip(self.dependencies.atoms, self.dependencies.asked, strict=True)
        self.negated = {
            view.root
            for atoms, views in asked
            for a, view in zip(atoms, views, strict=True)
            if a.atom.negated
        }
        self.roots = {*self._claimable, *self._views, *[view.root for view in self.plain]}
        steps = [step for step in self.dependencies.steps if not self._is_plain(step)]
        self._steps = [self._step(step) for step in steps]
        self._steps.append((self._deferred.noted, self._deferred.resolve))
        self._places = {id(step[0]): at for at, step in enumerate(steps) if not isinstance(step, int)}
        noted = [head.news.noted for head in self._facts]
        self.waiting = (self._alarm, *noted, *[pending for pending, _ in self._steps])
        self._base_facts.attach(self)

    def _written(self, relation: Relation) -> None:
        """Has the table of a relation called that was written, and not the one that stood for it; O(1)."""
        if not relation.in_cycle:  # in a cycle tables are looked up in each round
            self._steps[self._places[id(relation)]] = relation.pending, relation.table.settle

    def _is_plain(self, step: int | list[Relation]) -> bool:
        return not isinstance(step, int) and step[0] in self.plain

    def _install(self, atom: BoundAtom, compiler: Compiler) -> None:
        """Has a rule told of the rows of one atom."""
        more, less = RuleTrigger(compiler, atom, +1), RuleTrigger(compiler, atom, -1)
        on_insert, on_delete = (less, more) if atom.atom.negated else (more, less)
        use = self.plain.get(atom.relation) if isinstance(atom.relation, View) else None
        if use is None:
            atom.relation.on_insert.append(on_insert)
            atom.relation.on_delete.append(on_delete)
        else:
            use.on_insert.append(Fenced(on_insert, atom.relation, self.fail))
            use.on_delete.append(Fenced(on_delete, atom.relation, self.fail))

    def _feed(self, view: View) -> None:
        """Leads claimed and derived facts into a view."""
        alias = self.dependencies.alias(view)
        if alias is not None:
            alias.is_shown = True
        elif self.dependencies.is_plain(view):
            self._base_facts.share(view)
            self.plain[view] = Use([], [], set())
        else:
            self._views.setdefault(view.root, []).append(view)
            for head in self.dependencies.matching(view):
                within = view in self.dependencies.cycles.get(id(head), ())
                lead(head, view, self._terms, self._budget.look, within=within)

    def _compiler(self, number: int, costs: Costs) -> Compiler:
        rule, grouping = self.dependencies.rules[number], self._groupings.get(number)
        head, of_all = self.dependencies.head(rule), self.rules[number].number
        budget, most = self._budget, self._budget.bounds.rows
        waiting = head.pending if grouping is None else ()
        rows = STEPS_FOR_EACH_ROW * most
        tick, part, what = budget.tick, budget.bounds.part, "rows were looked at"
        steps = Budget(of_all, rows, what, tick, waiting, most, share=budget.look, part=part)
        deferred = Budget(of_all, rows, what, tick, share=budget.look, part=part)
        made = "characters of values were made"
        text = Budget(of_all, MAX_TEXT, made, tick, share=budget.make, part=BYTES_OF_WORK * part)
        return Compiler(
            of_all,
            rule,
            self.dependencies.atoms[number],
            head,
            [] if grouping is not None else self.dependencies.cycles.get(id(head), []),
            self._terms,
            None if grouping is None else grouping.change,
            RuleLimits(steps, text, self._paid(number), deferred),
            self._deferred,
            costs.meter(of_all),
        )

    def _paid(self, number: int) -> Budget:
        """What a rule pays for the facts that it derives with."""
        paid = self._facts_paid.get(number)
        if paid is None:
            budget = self._budget
            paid = Budget(
                self.rules[number].number,
                min(budget.bounds.made, budget.bounds.held),
                "bytes were derived",
                budget.tick,
                share=budget.make,
                part=BYTES_OF_WORK * budget.bounds.part,
            )
            self._facts_paid[number] = paid
        return paid

    def _own_relations(self) -> list[Relation]:
        """Those that no other engine has."""
        return [each for each in self.dependencies.relations() if each not in self.plain]

    def claims(self) -> Iterator[tuple[Class | None, Claim]]:
        """Who is to be told of claimed facts that are rows of its own relations, by class; None for all."""
        for root in dict.fromkeys([*self._claimable, *self._views]):
            yield root, self._claim if root is not None else self._claim_any

    # -- ticks ----------------------------------------------------------------------------------------

    def fail(self, error: Exception) -> None:
        """Something went wrong: the first of it counts, since whatever comes later may be because of it."""
        if self.failure is None:
            self.failure = error
            self._alarm.append(error)
            if not isinstance(error, (RuleFailed, LimitReached, Unalias, Defect)):
                logger.error("rules failed and are computed anew: this is a defect", exc_info=error)

    def load(
        self,
        before: Iterable[tuple[HeadRelation, Row]],
        kept: Mapping[tuple[Hashable, int], Sequence[Record]],
    ) -> None:
        """Counts what follows from the facts there are, and what is held from the tick ``before``.

        ``kept`` are facts by label and number of fields that another program held: those of ``next`` go on.
        To settle is left to do.  O(facts that rules of one atom ask for + derivations).
        """
        for old, row in before:
            head = self.dependencies.heads.get((key(old.of), old.width, Verb.NEXT))
            if head is not None:
                self._hold(head, row)
        for head in self._delayed:
            for fact in kept.get((key(head.of), head.width), ()):
                self._hold(head, self._terms.row(fact.fields))
        for root, claim in self.claims():
            for value in self._base_facts.facts(root):
                claim(value, +1)
        try:
            for number, rule in enumerate(self.dependencies.rules):
                self._begin(number, rule)
        except Exception as error:  # noqa: BLE001  # a rule's own fault, or a defect: the same fence as in ``settle``
            self.fail(error)

    def _hold(self, head: HeadRelation, row: Row) -> None:
        """Takes a row as one that ``next`` has said in the tick before."""
        if row not in head.held:
            head.held[row] = None
            head.news.noted.append(row)
            self.dependencies.heads[key(head.of), head.width, Verb.ASSERT].support(row, +1)

    def _begin(self, number: int, rule: Rule) -> None:
        """Counts the derivations of one rule, while nothing but the base facts holds any row.

        They are all found from the rows of one atom, which is the smallest of those that stand before any
        other of their relation: for these a row finds all others, as if it had come last.
        """
        atoms = self.dependencies.atoms[number]
        positive = [each for each in atoms if not each.atom.negated]
        if not positive:  # it holds from the start, or is not refuted yet
            self._compilers[number].hold()
            return
        if not self.plain.keys() >= {each.relation for each in positive}:
            return
        first = {id(each.relation): each for each in reversed(positive)}
        least = min(first.values(), key=lambda each: len(each.relation.states))
        trigger = RuleTrigger(self._compilers[number], least, +1)
        run = Fenced(trigger, least.relation, self.fail).function
        for row, state in least.relation.states.items():
            run(row, state)
            if self.failure is not None:
                return

    def _claim(self, value: Value, by: int) -> None:
        """Takes a claimed fact into the relations that it is a row of."""
        root, of = class_of(value), self._terms.of
        if root in self._claimable:
            self._claim_derivable(value, root, by)  # type: ignore[arg-type]  # a record, by its class
        for view in self._views.get(root, ()):
            captures = view.read(value)
            if captures is not None:
                view.support(tuple([of(capture) for capture in captures]), by)

    def _claim_any(self, value: Value, by: int) -> None:
        """The same for views of facts of any class."""
        for view in self._views[None]:
            captures = view.read(value)
            if captures is not None:
                view.support(self._terms.row(captures), by)

    def _claim_derivable(self, value: Record, root: Class, by: int) -> None:
        """Takes the claim on a fact as one that rules could derive: then they need not."""
        for head in self._claimable[root]:
            if len(value.fields) == head.width:
                row = self._terms.row(value.fields)
                if head.is_shown:
                    head.claim(row, by)
                else:
                    head.note(row, by)
            elif len(value.fields) > head.width and head.is_shown:
                self.fail(Unalias(key(head.of)))

    def settle(self) -> bool:
        """Lets all strata settle: whether nothing has failed, now or before.  O(derivations touched)."""
        if self.failure is not None:
            return False
        try:
            for pending, settle in self._steps:
                if pending:
                    settle()
        except Exception as error:  # noqa: BLE001  # a fence around the rules of one component: those of others go on
            self.fail(error)
            return False
        return True

    def begin(self) -> None:
        """Begins a tick: what ``next`` has said in the one before holds, and what it no longer says does not.

        It has something to do only if the engine is ``pending``.
        """
        schedule, self._schedule = self._schedule, []
        for head, row, by in schedule:
            head.support(row, by)

    def say(self, derived: Derived) -> None:
        """Says what is to be sent, and what is to hold in the next tick; after it has settled."""
        if self._delayed:
            self._delay()
        for head in self._sending:
            head.send(derived.messages)

    def publish(self, derived: Derived) -> None:
        """Says which facts follow and did not, and which did and do not; the end of a tick."""
        for came, went, noted, publish in self._news:
            if came or went or noted:
                publish(derived)

    def hush(self) -> None:
        """Sends nothing: what held because of a message of the tick no longer does."""
        for head in self._sending:
            head.send([])

    def _cycle(self, relations: list[Relation]) -> Callable[[], None]:
        spend = self._budget.spend

        def run() -> None:
            self._stamp = settle(relations, self._stamp, spend)

        return run

    def _delay(self) -> None:
        """Compares what ``next`` says now with what holds because of the tick before."""
        for head in self._delayed:
            if head.news:
                now = self.dependencies.heads[key(head.of), head.width, Verb.ASSERT]
                self._schedule += [(now, row, by) for row, by in head.delay()]

    @property
    def has_next(self) -> bool:
        """Whether it may ever ask for a tick."""
        return bool(self._delayed)

    @property
    def pending(self) -> bool:
        """Whether ``next`` has something to say in a tick that nothing else causes."""
        return bool(self._schedule) or any(head.is_due for head in self._delayed)

    # -- looking --------------------------------------------------------------------------------------

    def derived(self) -> Iterator[Value]:
        """What follows and nobody claims, as of the last tick that succeeded; O(those)."""
        for head in self._facts:
            yield from head.said()

    def held(self, *, undone: bool) -> Iterator[tuple[HeadRelation, Row]]:
        """What holds because of the tick before; ``undone`` as it was before the last ``say``."""
        for head in self._delayed:
            rows = dict(head.held)
            if undone:
                now = self.dependencies.heads[key(head.of), head.width, Verb.ASSERT]
                changed = [(row, by) for each, row, by in self._schedule if each is now]
                for row, by in changed:
                    if by > 0:
                        del rows[row]
                    else:
                        rows[row] = None
            for row in rows:
                yield head, row

    def sent(self) -> Iterator[Value]:
        """What has been sent for as long as its body holds, as of the last ``say``."""
        for head in self._sending:
            yield from head.said()

    def asking(self) -> list[PlacedRule]:
        """Returns the rules of ``next`` that ask for a tick: those that lead to themselves, if any does."""
        due = {id(head) for head, _, _ in self._schedule}
        heads = [
            head
            for head in self._delayed
            if id(self.dependencies.heads[key(head.of), head.width, Verb.ASSERT]) in due or head.is_due
        ]
        asking = [
            at for at, rule in enumerate(self.dependencies.rules) if self.dependencies.head(rule) in heads
        ]
        leading = [at for at in asking if self.dependencies.leads_to_itself(at)]
        return [self.rules[at] for at in leading or asking]

    def rows(self) -> int:
        """Rows in all relations, those of base facts as well; O(relations)."""
        return sum(len(each.states) for each in self.dependencies.relations())

    def gone(self) -> int:
        """Returns how many of its derived rows have gone in this tick; O(heads)."""
        return sum(len(went) for _, went, _, _ in self._news)

    def used(self, at: int) -> int:
        """The work of a rule in this tick."""
        made = self.used_of(at, Unit.BYTES) // BYTES_OF_WORK
        return self.used_of(at, Unit.STEPS) + self.used_of(at, Unit.ROWS) + made

    def blame(self, at: int, unit: Unit) -> tuple[int, int, int]:
        """Returns how likely it was a rule that used up a unit; the highest is to blame.

        Rules of one head share its rows: of these it is the one that made more facts, or goes round a cycle.
        """
        recursion = self.dependencies.recursion(at)
        return self.used_of(at, unit), self._compilers[at].limits.facts.used, recursion

    def used_of(self, at: int, unit: Unit) -> int:
        """What a rule has used of one unit in this tick."""
        if unit is Unit.WORK:
            return self.used(at)
        limits = self._compilers[at].limits
        if unit is Unit.ROWS:
            return self._budget.inserted.get(self.dependencies.head(self.rules[at].rule), 0)
        if unit is Unit.STEPS:
            return limits.steps.used + limits.deferred.used
        return limits.text.used + limits.facts.used

    def size(self) -> int:
        """Returns the number of entries in its own tables; 0 without facts, if no rule needs any."""
        rows = sum(each.size() for each in self._own_relations())
        return rows + sum(len(each) + len(each.pending) for each in self._groupings.values())
