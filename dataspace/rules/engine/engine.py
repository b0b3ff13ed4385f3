"""The engine: the rules of one component, and what follows from the facts that the engine gets.

The graph of dependencies has the relations of the rules, in the order in which they settle.  The engine makes
functions and tables for them, and runs them.  What no rule derives comes from the base facts, which all
components share; heads, and views that show heads, are the engine's own.  In a tick, the functions of the
rules count derivations as base facts come and go.  Then the engine settles one stratum after the other, and
publishes what has changed.

An engine can take in further rules.  When one of its rules goes or fails, ``program`` replaces it.

Always: after a tick the derived facts are exactly the facts that follow from the claimed facts, in whatever
order these came; the relations of a stratum change only when all below are settled.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Sized
from functools import partial
from typing import TypeAlias

from dataspace.flows.results import Derived
from dataspace.rules.engine.claimed_rows import ClaimedRows
from dataspace.rules.engine.compiling import Compiler, RuleTrigger
from dataspace.rules.engine.components import PlacedRule, impure
from dataspace.rules.engine.dependencies import DependencyGraph, Growth, Node
from dataspace.rules.engine.parts import RuleParts
from dataspace.rules.language.functions import BYTES_OF_WORK
from dataspace.rules.language.syntax import Verb
from dataspace.rules.relations.base_facts import BaseFacts, Claim, Use
from dataspace.rules.relations.budgets import (
    READS_OF_AN_ACTION,
    Costs,
    TickBudget,
    size_of,
)
from dataspace.rules.relations.derived_relations import HeadRelation, lead
from dataspace.rules.relations.failures import Defect, LimitReached, RuleFailed, Unalias, Unit
from dataspace.rules.relations.join_orders import BoundAtom
from dataspace.rules.relations.relations import STEP, Fenced, Relation, State, in_parts, settle
from dataspace.rules.relations.tables import UnwrittenTable
from dataspace.rules.relations.terms import Row
from dataspace.rules.relations.times import Times
from dataspace.rules.relations.timing import Timing
from dataspace.rules.relations.views import View
from dataspace.steps import Steps
from index.values.positions import Class, label_class
from index.values.values import Record, Value, key

logger = logging.getLogger("dataspace")


Step: TypeAlias = tuple[Sized, Callable[[], None]]
"""What settles as a whole: the relations of one cycle, a relation in none, the groups of one rule.

There is something to do when the first is not empty.
"""

_Feeding: TypeAlias = list[tuple[HeadRelation, Callable[[Row, State], None]]]


class _AnyOf:
    """Not empty if any relation is not."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[Sized]) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return sum(map(len, self._parts))


class ComponentEngine:
    """The rules of one component, compiled, with their state, attached to the base facts from the start.

    ``failure`` is the engine's error: then only ``derived``, ``held`` and ``sent`` may be used, and all else
    has no effect.
    """

    def __init__(
        self,
        rules: Sequence[PlacedRule],
        base_facts: BaseFacts[ComponentEngine],
        *,
        budget: TickBudget,
        costs: Costs,
        times: Times,
        separated: frozenset[Hashable] = frozenset(),
    ) -> None:
        self.rules: tuple[PlacedRule, ...] = ()
        self.failure: Exception | None = None
        self.waiting: tuple[Sized, ...]
        """The engine has work only if one of these is not empty, or it is ``pending``."""
        self.dependencies: DependencyGraph
        self.plain: dict[View, None] = {}
        """The views of base facts that its rules read."""
        self.roots: set[Class | None] = set()
        """The classes of facts that it gets; None for all."""
        self.negated: set[Class | None] = set()
        """The classes that negations read."""
        self.has_output = False
        """True if ``say`` may ever have something to do."""
        self._alarm: list[Exception] = []
        self._base_facts = base_facts
        self._terms = base_facts.terms
        self._budget = budget
        self._parts = RuleParts(base_facts.terms, budget, costs, times, self)
        self._stamp = 0
        self._claimed = ClaimedRows(base_facts.terms, self.fail)
        self._schedule: list[tuple[HeadRelation, Row, int]] = []
        self._facts: list[HeadRelation] = []
        self._news: list[tuple[list[State], list[State], list[Row], Callable[[Derived], None]]] = []
        self._delayed: list[HeadRelation] = []
        self._sending: list[HeadRelation] = []
        self._step_at: dict[Node, Step] = {}
        self._steps: list[Step]
        self._places: dict[Node, int] | None  # where a relation is in them, once that was asked
        self._take_in(rules, DependencyGraph([each.rule for each in rules], separated, base_facts.views))

    # -- building -------------------------------------------------------------------------------------

    def extend(
        self, rules: Sequence[PlacedRule], dependencies: DependencyGraph, again: Sequence[Value] = ()
    ) -> None:
        """Takes in further rules, with the graph that has grown by them, and counts what follows from them.

        It may do the further work that a new engine would be allowed; the facts ``again`` are derived anew.
        To settle is left to do.  O(what the rules touch + derivations of them), beside copies of tables.
        """
        try:
            feeding = self._take_in(rules, dependencies)
            rows = sum(len(head.states) for head in self._facts)
            actions = self._base_facts.count(self.roots) // READS_OF_AN_ACTION + rows
            self._budget.allow(actions, len(again), size_of(again))
            for head, feed in feeding:
                for row, state in head.states.items():
                    if state[2] > 0:
                        feed(row, state)
            self._claimed.read(dependencies, self._base_facts.facts)
            for number in range(dependencies.growth.first, len(self.rules)):
                self._begin(number, stands=True)
        except Exception as error:  # noqa: BLE001  # a rule's own fault, or a defect: the same fence as in ``settle``
            self.fail(error)

    def _take_in(self, rules: Sequence[PlacedRule], dependencies: DependencyGraph) -> _Feeding:
        """Makes the functions and tables for further rules; others stay as they are.

        Returns what is to be called with the rows of older heads, for views that show them from now on.
        """
        growth = dependencies.growth
        self.rules += tuple(rules)
        self.dependencies = dependencies
        for head in growth.heads:
            self._add_head(head)
        come: dict[View, Use] = {}
        for view in growth.views:
            self._feed(view, come)
        for view in growth.fed:
            self._keep_apart(view)
        touched: dict[Relation, None] = dict.fromkeys([*growth.heads, *growth.fed])
        feeding = [(head, self._lead(head, view)) for head, view in growth.leads]
        touched.update(dict.fromkeys([part for lead in growth.leads for part in lead]))
        for compiler in self._parts.make(rules, dependencies):
            for atom in compiler.atoms:
                touched[atom.relation] = None
                self._install(atom, compiler, come)
        own = [relation for relation in touched if relation not in self.plain]
        for relation in own:
            relation.in_cycle = bool(dependencies.cycle(relation))
            relation.table = UnwrittenTable(relation, self._budget, self._written)
            relation.fill()
        self._note_roots(come, growth)
        self._put_in_order(
            [*own, *[at for at in range(growth.first, len(self.rules)) if at in self._parts.groupings]]
        )
        self._base_facts.attach(self, come, self._claimed.follow(dependencies))
        return [(head, feed) for head, feed in feeding if head not in growth.heads]

    def _add_head(self, head: HeadRelation) -> None:
        if head.verb is Verb.ASSERT:
            self._facts.append(head)
            self._news.append((head.news.came, head.news.went, head.news.noted, head.publish))
            return
        if head.verb is Verb.HIDDEN:
            return
        (self._delayed if head.verb is Verb.NEXT else self._sending).append(head)
        self.has_output = True

    def _feed(self, view: View, come: dict[View, Use]) -> None:
        """Notes that a head is seen by others, or takes a view from the base facts."""
        alias = self.dependencies.alias(view)
        if alias is not None:
            alias.is_shown = True
        elif self.dependencies.is_plain(view):
            self._base_facts.share(view)
            self.plain[view] = None
            come[view] = Use([], [], set())

    def _keep_apart(self, view: View) -> None:
        """Makes a view of base facts the engine's own, with the rows that it has, since heads show in it."""
        del self.plain[view]
        self._base_facts.release(view)
        view.on_insert[:] = [each.trigger if isinstance(each, Fenced) else each for each in view.on_insert]
        view.on_delete[:] = [each.trigger if isinstance(each, Fenced) else each for each in view.on_delete]

    def _lead(self, head: HeadRelation, view: View) -> Callable[[Row, State], None]:
        within = any(each is view for each in self.dependencies.cycle(head))
        return lead(head, view, self._terms, self._budget.look, within=within)

    def _install(self, atom: BoundAtom, compiler: Compiler, come: dict[View, Use]) -> None:
        """Adds the triggers of a rule to the relation of one atom."""
        more, less = RuleTrigger(compiler, atom, +1), RuleTrigger(compiler, atom, -1)
        on_insert, on_delete = (less, more) if atom.atom.negated else (more, less)
        view = atom.relation
        if not isinstance(view, View) or view not in self.plain:
            atom.relation.on_insert.append(on_insert)
            atom.relation.on_delete.append(on_delete)
            return
        use = come.setdefault(view, Use([], [], set()))
        use.on_insert.append(Fenced(on_insert, view, self.fail))
        use.on_delete.append(Fenced(on_delete, view, self.fail))

    def _note_roots(self, come: Mapping[View, Use], growth: Growth) -> None:
        """Notes which classes of facts the engine gets, and which indexes of base facts it needs."""
        for view, use in come.items():
            use.columns.update(view.wanted)
            view.wanted.clear()
            self.roots.add(view.root)
        self.roots.update([label_class(head.of) for head in growth.heads if head.verb is Verb.ASSERT])
        self.roots.update([view.root for view in growth.views if self.dependencies.alias(view) is None])
        for atoms, views in zip(
            self.dependencies.atoms[growth.first :], self.dependencies.asked[growth.first :], strict=True
        ):
            self.negated |= {view.root for a, view in zip(atoms, views, strict=True) if a.atom.negated}

    def _put_in_order(self, touched: Iterable[Node]) -> None:
        """Makes the steps in which these settle, and lists all steps.  O(touched), beside a list of all."""
        order, steps = self.dependencies.order, self._step_at
        for node in touched:
            entry = order.knot(node)[0]
            step = self.dependencies.step(entry)
            if step is not None:
                steps[entry] = self._step(step)
        self._places = None
        self._steps = [steps[entry] for entry in order.entries if entry in steps]
        self._steps.append((self._parts.deferred.noted, self._parts.deferred.resolve))
        noted = [head.news.noted for head in self._facts]
        self.waiting = (self._alarm, *noted, *[pending for pending, _ in self._steps])

    def _step(self, step: int | list[Relation]) -> Step:
        if isinstance(step, int):
            grouping = self._parts.groupings[step]
            return grouping.pending, grouping.settle
        if step[0].in_cycle:
            pending = [each.pending for each in step]
            return pending[0] if len(step) == 1 else _AnyOf(pending), self._cycle(step)
        return step[0].pending, step[0].table.settle

    def _written(self, relation: Relation) -> None:
        """Replaces the placeholder of a relation by its written table; O(1)."""
        if relation.in_cycle:
            return  # there, tables are looked up in each round
        if self._places is None:
            listed = [entry for entry in self.dependencies.order.entries if entry in self._step_at]
            self._places = {entry: at for at, entry in enumerate(listed)}
        step = relation.pending, relation.table.settle
        self._step_at[relation] = self._steps[self._places[relation]] = step

    def _own_relations(self) -> list[Relation]:
        """Returns the relations that no other engine has."""
        return [each for each in self.dependencies.relations() if each not in self.plain]

    def claims(self) -> Iterator[tuple[Class | None, Claim]]:
        """Yields what to call for claims on facts that are rows of its own, by class; None for all."""
        return self._claimed.claims()

    # -- ticks ----------------------------------------------------------------------------------------

    def fail(self, error: Exception) -> None:
        """Notes an error of the engine; only the first counts, since later ones may follow from it."""
        if self.failure is None:
            if isinstance(error, KeyError):
                error = impure(self.rules) or error
            self.failure = error
            self._alarm.append(error)
            if not isinstance(error, (RuleFailed, LimitReached, Unalias, Defect)):
                logger.error("rules failed and are computed anew: this is a defect", exc_info=error)

    def load(
        self,
        before: Iterable[tuple[HeadRelation, Row]],
        kept: Mapping[tuple[Hashable, int], Sequence[Record]],
    ) -> None:
        """Counts the facts that follow from the present facts, and the facts held from the tick ``before``.

        ``kept`` are facts by label and number of fields that another program held: the facts of ``next`` go
        on.  To settle is left to do.  O(facts that rules of one atom ask for + derivations).
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
            for number in range(len(self.dependencies.rules)):
                self._begin(number, stands=False)
        except Exception as error:  # noqa: BLE001  # a rule's own fault, or a defect: the same fence as in ``settle``
            self.fail(error)

    def _hold(self, head: HeadRelation, row: Row) -> None:
        """Takes a row as derived by ``next`` in the tick before."""
        if row not in head.held:
            head.held[row] = None
            head.news.noted.append(row)
            self.dependencies.heads[key(head.of), head.width, Verb.ASSERT].support(row, +1)

    def _begin(self, number: int, *, stands: bool) -> None:
        """Counts the derivations of one rule from the rows that are there.

        They are all found from the rows of one atom, the smallest of the atoms that stand before any other of
        their relation: for these a row finds all others, as if it had come last.  Where no more than base
        facts ``stands``, no other relation has a row yet.
        """
        compiler = self._parts.compilers[number]
        for each in (compiler, *compiler.maybes):
            self._begin_part(each, stands=stands)

    def _begin_part(self, compiler: Compiler, *, stands: bool) -> None:
        positive = [each for each in compiler.atoms if not each.atom.negated]
        if not positive:  # it holds from the start, or is not refuted yet
            compiler.hold()
            return
        if not stands and not self.plain.keys() >= {each.relation for each in positive}:
            return
        first = {id(each.relation): each for each in reversed(positive)}
        least = min(first.values(), key=lambda atom: len(atom.relation.states))
        trigger = RuleTrigger(compiler, least, +1, stands=stands)
        run = Fenced(trigger, least.relation, self.fail).function
        for row, state in list(least.relation.states.items()) if stands else least.relation.states.items():
            if state[2] > 0:
                run(row, state)
                if self.failure is not None:
                    return

    def settle(self) -> bool:
        """Settles all strata; returns True if nothing has failed, now or before.  O(derivations touched)."""
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

    def settling(self) -> Steps[bool]:
        """Does ``settle`` in steps; a cycle, and the errors of the tick, are one step each."""
        if self.failure is not None:
            return False
        groupings = {id(each.pending): each for each in self._parts.groupings.values()}
        alone = {id(each.pending): each.pending for each in self._own_relations() if not each.in_cycle}
        try:
            for pending, settle_whole in self._steps:
                if not pending:
                    continue
                grouping = groupings.get(id(pending))
                if isinstance(grouping, Timing):
                    yield from grouping.settling()
                elif grouping is not None:
                    yield from in_parts(grouping.pending, settle_whole)
                elif id(pending) in alone:
                    yield from in_parts(alone[id(pending)], settle_whole, self._budget.few)
                else:
                    settle_whole()
                    yield
        except Exception as error:  # noqa: BLE001  # as in ``settle``
            self.fail(error)
            return False
        return True

    def begin(self) -> None:
        """Begins a tick with the facts that ``next`` derived in the tick before.

        It has something to do only if the engine is ``pending``.
        """
        schedule, self._schedule = self._schedule, []
        for head, row, by in schedule:
            head.support(row, by)

    def say(self, derived: Derived) -> None:
        """Adds the messages to be sent, and notes what is to hold in the next tick; after it has settled."""
        if self._delayed:
            self._delay()
        for head in self._sending:
            head.send(derived.messages)

    def publish(self, derived: Derived) -> None:
        """Adds the facts that have begun or ended to follow; the end of a tick."""
        for came, went, noted, publish in self._news:
            if came or went or noted:
                publish(derived)

    def publishing(self, derived: Derived) -> Steps[None]:
        """Does ``publish`` in steps."""
        for came, went, noted, publish in self._news:
            if noted or len(came) + len(went) <= STEP:
                publish(derived)
                continue
            say, later = partial(publish, derived), [*went]
            went.clear()
            yield from in_parts(came, say)
            went += later
            yield from in_parts(went, say)

    def withdraw(self) -> None:
        """Forgets what was sent because of a message of the tick, and sends nothing."""
        for head in self._sending:
            head.send([])

    def _cycle(self, relations: list[Relation]) -> Callable[[], None]:
        spend = self._budget.spend

        def run() -> None:
            self._stamp = settle(relations, self._stamp, spend)

        return run

    def _delay(self) -> None:
        """Compares what ``next`` derives now with what holds because of the tick before."""
        for head in self._delayed:
            if head.news:
                now = self.dependencies.heads[key(head.of), head.width, Verb.ASSERT]
                self._schedule += [(now, row, by) for row, by in head.delay()]

    @property
    def has_next(self) -> bool:
        """True if it may ever ask for a tick."""
        return bool(self._delayed)

    @property
    def pending(self) -> bool:
        """True if ``next`` asks for a tick that nothing else causes."""
        return bool(self._schedule) or any(head.is_due for head in self._delayed)

    # -- looking --------------------------------------------------------------------------------------

    def derived(self) -> Iterator[Value]:
        """Yields what follows and no owner claims, as of the last tick that succeeded; O(those)."""
        for head in self._facts:
            yield from head.said()

    def held(self, *, undone: bool) -> Iterator[tuple[HeadRelation, Row]]:
        """Yields what holds because of the tick before; ``undone`` as it was before the last ``say``."""
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
        """Yields the messages that were sent and whose bodies still hold, as of the last ``say``."""
        for head in self._sending:
            yield from head.said()

    def asking(self) -> list[PlacedRule]:
        """Returns the rules of ``next`` that ask for a tick: the rules that lead to themselves, if any
        does."""
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
        """Returns the number of rows in all relations, base facts included; O(relations)."""
        return sum(len(each.states) for each in self.dependencies.relations())

    def gone(self) -> int:
        """Returns how many of its derived rows have gone in this tick; O(heads)."""
        return sum(len(went) for _, went, _, _ in self._news)

    def used(self, at: int) -> int:
        """Returns the work of a rule in this tick."""
        made = self.used_of(at, Unit.BYTES) // BYTES_OF_WORK
        return self.used_of(at, Unit.STEPS) + self.used_of(at, Unit.ROWS) + made

    def blame(self, at: int, unit: Unit) -> tuple[int, int, int]:
        """Returns how likely it was a rule that used up a unit; the highest is to blame.

        Rules of one head share its rows: among them it is the rule that made more facts, or goes round a
        cycle.
        """
        recursion = self.dependencies.recursion(at)
        return self.used_of(at, unit), self._parts.compilers[at].limits.facts.used, recursion

    def paid(self) -> int:
        """Returns about how much work its rules have done in the ticks before this one; O(rules)."""
        limits = [each.limits for each in self._parts.compilers]
        looked = sum([each.steps.paid + each.deferred.paid for each in limits])
        return looked + sum([each.text.paid + each.facts.paid for each in limits]) // BYTES_OF_WORK

    def used_of(self, at: int, unit: Unit) -> int:
        """Returns what a rule has used of one unit in this tick."""
        if unit is Unit.WORK:
            return self.used(at)
        limits = self._parts.compilers[at].limits
        if unit is Unit.ROWS:
            return self._budget.inserted.get(self.dependencies.head(self.rules[at].rule), 0)
        if unit is Unit.STEPS:
            return limits.steps.used + limits.deferred.used
        return limits.text.used + limits.facts.used

    @property
    def groups(self) -> int:
        """Returns how many groups aggregates have; O(rules)."""
        return sum([len(each) for each in self._parts.groupings.values() if not isinstance(each, Timing)])

    def size(self) -> int:
        """Returns the number of entries in its own tables; 0 without facts, if no rule needs any."""
        rows = sum(each.size() for each in self._own_relations())
        return rows + sum(len(each) + len(each.pending) for each in self._parts.groupings.values())


def busy(engines: Iterable[ComponentEngine]) -> dict[ComponentEngine, None]:
    """Returns the engines that have something to do: of many rules that get a fact, mostly few do."""
    return dict.fromkeys([engine for engine in engines if any(engine.waiting)])
