"""The engines of a program: one for each component of its rules, made, extended and removed as rules change.

All of them read the same base facts and share the budget of a tick.  Rules that may ask for a tick of their
own, by ``next``, are listed apart from the others, so that a turn finds them at once.

Always: each rule that is carried out is in the engine of one component; an engine that was removed gets no
changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from dataspace.flows.results import Derived
from dataspace.rules.engine.components import Components, PlacedRule, parted
from dataspace.rules.engine.dependencies import DependencyGraph
from dataspace.rules.engine.engine import ComponentEngine
from dataspace.rules.engine.explaining import Explainer
from dataspace.rules.engine.texts import Carried, Texts
from dataspace.rules.language.hosted import Functions
from dataspace.rules.relations.base_facts import BaseFacts
from dataspace.rules.relations.budgets import READS_OF_AN_ACTION, Bounds, Costs, TickBudget, size_of
from dataspace.rules.relations.derived_relations import HeadRelation
from dataspace.rules.relations.failures import FailedLater, LimitReached, RuleFailed, Unalias, message_of
from dataspace.rules.relations.proofs import Sight
from dataspace.rules.relations.terms import Row
from dataspace.rules.relations.times import Times
from dataspace.rules.relations.views import form_of
from index.errors import UsageError
from index.patterns.text import unparse
from index.values.positions import Class, class_of
from index.values.values import Map, Record, Value, key

RECOMPUTE_FROM: Final = 5000
RECOMPUTE_SHARE: Final = 0.25
"""From how many rows on, and for which share of its facts taken away in a tick, a component is made anew."""

ROW_BYTES: Final = 300
GROUP_BYTES: Final = 350
TERM_BYTES: Final = 200
"""About the memory of a row of facts that rules read, of a group of an aggregate, and of a value in those."""

FORBIDDING: Final = 3
"""For how many retractions an addition stands that something is negated by: it takes along what it meets."""


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


@dataclass(frozen=True, slots=True)
class ProgramStatistics:
    """Counts: texts, rules in them that are carried out, texts with errors, components that these rules are.

    And since the start: engines made for components, rules for which one of them made functions, facts that
    these have read, ticks, and units of work.
    """

    texts: int
    rules: int
    failed: int
    components: int
    engines: int
    compiled: int
    read: int
    ticks: int
    work: int
    bytes: int
    """About the memory of rows of facts and of groups of aggregates, beside derived facts."""


class EnginePool:
    """The engines, what all of them share, and the texts that their rules are from.

    ``kept`` are facts that rules held when another program ended: ``next`` goes on from them at first.
    """

    def __init__(
        self,
        bounds: Bounds,
        *,
        max_rules: int,
        clock: Callable[[], int] | None,
        kept: Iterable[Value],
        times: Times,
        functions: Functions,
    ) -> None:
        self.times: Final = times
        self.base_facts: Final[BaseFacts[ComponentEngine]] = BaseFacts(times.terms)
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
        self.texts: Final = Texts(max_rules, self._near, self._fits, errors, bounds.window, functions)

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
        largest = max(engines, key=lambda engine: len(engine.rules))
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

    def extend(self, by: Extension, again: Sequence[Value]) -> None:
        """Adds further rules to an engine; the engines that had them are gone."""
        engine = by.engine
        self.forbidding -= bool(engine.negated)
        engine.extend(by.rules, by.graph, again)
        self.forbidding += bool(engine.negated)
        self.compiled += len(by.rules)
        self.components.extend(engine, by.rules)
        if engine.has_next:
            self.delaying[engine] = None
        self._whole = self._grown = None

    def make(self, rules: Sequence[PlacedRule]) -> ComponentEngine:
        """Returns a new engine for the rules of one component."""
        engine = ComponentEngine(
            rules,
            self.base_facts,
            budget=self.budget,
            costs=self.costs,
            times=self.times,
            separated=self.separated,
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

    def much_taken_from(
        self, added: Sequence[Value], removed: Sequence[Value]
    ) -> dict[ComponentEngine, None]:
        """Returns the components that lose so many facts that it takes less time to make them anew.

        Additions never are: they bring no more derivations than beginning anew would make.
        """
        gone = Counter(map(class_of, removed))
        come = Counter(map(class_of, added)) if self.forbidding else Counter()
        found: dict[ComponentEngine, None] = {}
        for engine in self.base_facts.listening({*gone, *come}):
            enough = RECOMPUTE_SHARE * self.base_facts.count(engine.roots)
            taken = _count(gone, engine.roots) + FORBIDDING * _count(come, engine.negated)
            if taken > enough and engine.rows() >= RECOMPUTE_FROM:
                found[engine] = None
        return found

    def costliest(self) -> tuple[str, int, int]:
        """Returns the text that has taken most time, its nanoseconds, and the nanoseconds of all.
        O(rules)."""
        spent = self.spent()
        most, name = max([(each, name) for name, each in spent.items()], default=(0, ""))
        return name if most else "", most, sum(spent.values())

    def spent(self) -> dict[str, int]:
        """Returns the nanoseconds that the texts of each name have taken, estimated.  O(rules)."""
        found: dict[str, int] = {}
        for entry in self.texts.entries.values():
            each = sum(self.costs.of(rule.number).nanoseconds for rule in entry.placed)
            found[entry.name] = found.get(entry.name, 0) + each
        return found

    def statistics(self, ticks: int) -> ProgramStatistics:
        """Returns counts, after so many ticks; O(texts, forms and rules)."""
        return ProgramStatistics(
            texts=len(self.texts.entries),
            rules=self.texts.rules,
            failed=sum(bool(entry.error) for entry in self.texts.entries.values()),
            components=len(self.components),
            engines=self.made,
            compiled=self.compiled,
            read=self.base_facts.read,
            ticks=ticks,
            work=self.budget.total + self.budget.work,
            bytes=self._bytes(),
        )

    def explainer(self, sight: Sight | None = None, now: int | None = None) -> Explainer:
        """Returns what answers why, why not and how, for all components as one; O(rules) after a change.

        ``now`` is the time of the question, in microseconds.
        """
        order = sorted(
            (rule.number, engine, at) for engine in self.components for at, rule in enumerate(engine.rules)
        )
        if self._whole is None:
            self._whole = DependencyGraph.joined([(engine.dependencies, at) for _, engine, at in order])
        numbers = [number for number, _, _ in order]
        return Explainer(
            self._whole,
            self.times,
            lambda at: self.costs.of(numbers[at]),
            self.base_facts,
            stated=lambda at: self.texts.stated(numbers[at]),
            sight=sight,
            now=now,
        )

    def _bytes(self) -> int:
        rows = sum(map(len, [view.states for view in self.base_facts.views.values()]))
        groups = sum(engine.groups for engine in self.components)
        return ROW_BYTES * rows + GROUP_BYTES * groups + TERM_BYTES * len(self.times.terms)

    def size(self) -> int:
        """Returns the number of entries in all tables; 0 without facts, if no rule needs any.  O(tables)."""
        return self.base_facts.size() + sum(engine.size() for engine in self.components)


SUSPECT: Final = (0, 0, 1 / 4, 1 / 2, 3 / 4)
"""Share of the rules, newest first, that is suspended beside the costly ones each time a tick overruns."""


class Remaking:
    """The engines of one tick that go, and the engines that come; ``tick`` is its number.

    The work of the tick is bounded by so many ``actions`` of a turn; None for a start.

    Their engines go, and others come for the rules that are still carried out. These may be fewer or more,
    since rules join components and split them. A new engine counts from the present facts, and takes over the
    facts that the old engines held for this tick and their sent messages. If a rule fails in that, its text
    is suspended, and the engines of all its rules are made once more. In the end the difference is published.

    Always: it ends, since each attempt that fails suspends a text or separates a view from a head; nothing of
    an engine that goes in this tick has been published.
    """

    def __init__(self, pool: EnginePool, tick: int, come: Iterable[PlacedRule], actions: int | None) -> None:
        self._pool = pool
        self._tick = tick
        self._actions = actions
        self._waiting = {each.number: each for each in come}
        self._come = frozenset(self._waiting)
        self.carried: Final = pool.texts.carried(self._waiting.values())
        """What texts that come had before a row suspended them."""
        self._made: dict[ComponentEngine, Derived] = {}
        self._before: dict[Hashable, Value] = {}
        self._held: list[tuple[HeadRelation, Row]] = []
        self._sent: set[Hashable] = set()
        self._overran = 0
        self._paid = 0
        """The work that rules which are made anew have done so far."""
        self.said: Mapping[ComponentEngine, Derived] = {}
        """What older engines have published in this tick so far."""

    def remove(self, engines: Iterable[ComponentEngine]) -> None:
        """Removes engines; their rules wait for others."""
        for engine in engines:
            if engine in self._made:
                del self._made[engine]
            else:
                self._inherit(engine, self.said.get(engine))
            self._pool.detach(engine)
            self._waiting.update({rule.number: rule for rule in engine.rules})

    def join(self, rules: Sequence[PlacedRule], engines: Iterable[ComponentEngine]) -> ComponentEngine | None:
        """Adds rules to the largest of the engines that they are connected with, and returns that engine.

        Returns None if all of these engines have to be made anew instead.
        """
        there = {engine: None for engine in engines if engine in self._pool.components}
        by = self._pool.extension(rules, there) if len(there) == len([*engines]) else None
        if by is None:
            self.remove(there)
            return None
        again = [value for other in by.others for value in other.derived()]
        self.remove(by.others)
        for rule in by.rules:
            del self._waiting[rule.number]
        self._pool.extend(by, again)
        return by.engine

    def _inherit(self, engine: ComponentEngine, derived: Derived | None) -> None:
        """Notes what an engine that goes has published."""
        self._paid += engine.paid()
        self._before.update({key(value): value for value in engine.derived()})
        self._held += engine.held(undone=derived is not None)
        new = set(map(key, derived.messages)) if derived is not None else set()
        self._sent.update([at for at in map(key, engine.sent()) if at not in new])

    def remove_failed(self, engines: Iterable[ComponentEngine], suspected: Sequence[PlacedRule] = ()) -> None:
        """Removes the engines in which a rule has failed, and all others that have rules of the same texts.

        Of several that overran only the first is blamed: it left too little for the others.
        """
        failed = [each for each in engines if each.failure is not None and each in self._pool.components]
        lost, overran = list(suspected), False
        for engine in failed:
            if isinstance(engine.failure, LimitReached):
                engine.failure = self._blame(engine, engine.failure)
            late = isinstance(engine.failure, RuleFailed) and engine.failure.overran
            if not (late and overran):
                lost += self._suspend(engine)
            overran |= late
        self.remove({**dict.fromkeys(failed), **self._pool.components.of(lost)})

    def make(self, messages: Sequence[Value]) -> None:
        """Makes engines for the rules that wait; ``difference`` says what has come of it."""
        heard: dict[ComponentEngine, None] = {}
        while rules := [each for each in self._waiting.values() if self._pool.texts.is_sound(each)]:
            self._waiting.clear()
            heard.update(self._attempt(rules, messages))
        self._pool.base_facts.prune()
        for engine in heard:
            if engine in self._pool.components:
                engine.settle()  # what followed from messages that were passed on again goes with them

    def _attempt(
        self, rules: Sequence[PlacedRule], messages: Sequence[Value]
    ) -> Mapping[ComponentEngine, None]:
        """Runs one tick of new engines; returns the other engines that got its messages."""
        new = [self._pool.make(component) for component in parted(rules)]
        self._begin(new)
        for engine in new:
            engine.load(self._held, self._pool.kept)
        base_facts, times = self._pool.base_facts, self._pool.times
        if messages and times.has_heard:
            for engine in new:
                engine.settle()  # as in each tick: a window has to tell facts from messages alike
            times.is_hearing = True
        heard = dict(base_facts.hear(messages, +1))
        for engine in new:
            self._made[engine] = Derived([], [], [])
            if engine.settle():
                engine.say(self._made[engine])
        if messages:
            heard.update(base_facts.hear(messages, -1))
            times.withdraw()
            for engine in new:
                engine.settle()
                engine.withdraw()
        self.remove_failed(new, self._suspected(new))
        return heard

    def _begin(self, new: Sequence[ComponentEngine]) -> None:
        """Begins the tick of new engines, with what these may do.

        To the actions of the turn come the facts that are read, and the facts that were derived before and
        have to be derived again: these were paid for once.  At a start the work is not bounded.  What rules
        that were there before read and derive at once came in many turns: the bounds of a tick grow by it.
        """
        pool, actions = self._pool, self._actions
        reads = pool.base_facts.count({root for engine in new for root in engine.roots})
        if actions is not None:
            actions += reads // READS_OF_AN_ACTION + len(self._before) + len(self._held)
        pool.budget.begin(actions)
        again = [*self._before.values(), *[fact for facts in pool.kept.values() for fact in facts]]
        old = [engine for engine in new if self._actions is None or not self._is_new(engine)]
        read = pool.base_facts.count({root for engine in old for root in engine.roots})
        if again or read or self._paid:
            pool.budget.allow(0, len(again) + len(self._held) + read, size_of(again), self._paid)
        if self.carried.facts:
            pool.budget.allow(0, *self.carried)

    def _is_new(self, engine: ComponentEngine) -> bool:
        """True if rules of the engine came in this tick."""
        return any(rule.number in self._come for rule in engine.rules)

    def difference(self, whole: Derived) -> Derived:
        """Returns what has changed by engines that come and go; ``whole`` is what others publish."""
        for engine, said in self._made.items():
            engine.publish(said)
            whole.extend(said)
        if not (self._before or self._sent):
            return whole
        after = {key(value): value for value in whole.added}
        return Derived(
            [value for at, value in after.items() if at not in self._before],
            [value for value in whole.messages if key(value) not in self._sent],
            [*whole.removed, *[value for at, value in self._before.items() if at not in after]],
        )

    # -- failures -------------------------------------------------------------------------------------

    def _suspend(self, engine: ComponentEngine) -> Sequence[PlacedRule]:
        """Prevents an engine's error from happening again; returns the rules that this takes away."""
        pool, failure = self._pool, engine.failure
        if isinstance(failure, Unalias):
            pool.separated |= {failure.label}
            return ()
        is_old = engine not in self._made
        if isinstance(failure, FailedLater) and is_old:
            return ()
        if isinstance(failure, RuleFailed):
            row, tick = Map.of(list(failure.row.items())), self._tick if failure.resumes else None
            if tick is not None and is_old:
                facts = [*engine.derived()]
                read = pool.base_facts.count(engine.roots)
                pool.texts.carry(failure.rule, Carried(len(facts) + read, size_of(facts), engine.paid()))
            return pool.texts.suspend(failure.rule, failure.reason, row, tick=tick)
        if is_old:  # a defect, which may not come again
            return ()
        reason = message_of(failure) if failure is not None else "it failed"
        return [lost for rule in engine.rules for lost in pool.texts.suspend(rule.number, reason)]

    def _blame(self, engine: ComponentEngine, failure: LimitReached) -> RuleFailed:
        """Blames the rule that used most of the exceeded allowance in this tick, whichever component it is
        in."""
        unit = failure.unit
        rules = [(each, at) for each in self._pool.components for at in range(len(each.rules))]
        grown = [pair for pair in rules if pair[0].used_of(pair[1], unit)] or [(engine, 0)]
        most, at = max(grown, key=lambda of: of[0].blame(of[1], unit))
        head = _head(most, at)
        last = ", ".join([unparse(head.fact(row))[:60] for row in list(head.states)[-3:]])
        what = f"{failure.what}, the last ones {last}" if last else failure.what
        return RuleFailed(most.rules[at].number, {}, what, overran=True)

    def _suspected(self, new: Sequence[ComponentEngine]) -> list[PlacedRule]:
        """Suspends every rule that had more than a small part in a tick that overran again, then the newest
        as well.

        One at a time, a thousand rules that take a second each would hold everybody up for hours.
        """
        failures = [each.failure for each in new if isinstance(each.failure, (RuleFailed, LimitReached))]
        reasons = [each.args[-1] for each in failures if isinstance(each, LimitReached) or each.overran]
        self._overran += bool(reasons)
        if not reasons or self._overran < 2:
            return []
        used = {rule.number: each.used(at) for each in new for at, rule in enumerate(each.rules)}
        by_use = sorted(
            used, key=lambda number: used[number], reverse=True
        )  # a text is named by its heaviest
        share = SUSPECT[min(self._overran, len(SUSPECT)) - 1]
        suspected = set(sorted(used)[len(used) - int(len(used) * share) :])
        suspected |= {each for each, its in used.items() if its and 2 * its * len(used) >= sum(used.values())}
        reason = f"had a part in this: {reasons[0]}"
        return [
            lost
            for number in by_use
            if number in suspected
            for lost in self._pool.texts.suspend(number, reason)
        ]


def _head(engine: ComponentEngine, at: int) -> HeadRelation:
    return engine.dependencies.head(engine.rules[at].rule)


def _count(facts: Counter[Class | None], roots: Collection[Class | None]) -> int:
    """Returns how many facts are of some classes; None stands for all."""
    return sum(facts.values()) if None in roots else sum(facts[root] for root in roots)
