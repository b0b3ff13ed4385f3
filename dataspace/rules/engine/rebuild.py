"""Remaking: the components whose rules have changed or failed in a tick get new engines.

Their engines go, and others come for the rules that are still carried out.  These may be fewer or more, since
rules join components and split them.  A new engine counts from the present facts, and takes over the facts
that the old engines held for this tick and their sent messages.  If a rule fails in that, its text is
suspended, and the engines of all its rules are made once more.  In the end the difference is published.

Always: it ends, since each attempt that fails suspends a text or separates a view from a head; nothing of an
engine that goes in this tick has been published.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final

from dataspace.flows.results import Derived
from dataspace.rules.engine.components import PlacedRule, parted
from dataspace.rules.engine.engine import ComponentEngine
from dataspace.rules.engine.pool import EnginePool
from dataspace.rules.relations.budgets import READS_OF_AN_ACTION, size_of
from dataspace.rules.relations.derived_relations import HeadRelation
from dataspace.rules.relations.failures import LimitReached, RuleFailed, Unalias, message_of
from dataspace.rules.relations.terms import Row
from index.patterns.text import unparse
from index.values.values import Map, Value, key

SUSPECT: Final = (0, 0, 1 / 4, 1 / 2, 3 / 4)
"""Share of the rules, newest first, that is suspended beside the costly ones each time a tick overruns."""


class Remaking:
    """The engines of one tick that go, and the engines that come; ``tick`` is its number.

    The work of the tick is bounded by so many ``actions`` of a turn; None for a start.
    """

    def __init__(self, pool: EnginePool, tick: int, come: Iterable[PlacedRule], actions: int | None) -> None:
        self._pool = pool
        self._tick = tick
        self._actions = actions
        self._waiting = {each.number: each for each in come}
        self._made: dict[ComponentEngine, Derived] = {}
        self._before: dict[Hashable, Value] = {}
        self._held: list[tuple[HeadRelation, Row]] = []
        self._sent: set[Hashable] = set()
        self._overran = 0
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
        freed = size_of([value for other in by.others for value in other.derived()])
        self.remove(by.others)
        for rule in by.rules:
            del self._waiting[rule.number]
        self._pool.extend(by, freed)
        return by.engine

    def _inherit(self, engine: ComponentEngine, said: Derived | None) -> None:
        """Notes what an engine that goes has published."""
        self._before.update({key(value): value for value in engine.derived()})
        self._held += engine.held(undone=said is not None)
        new = set(map(key, said.messages)) if said is not None else set()
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
        freed = size_of(self._before.values())
        new = [self._pool.make(component) for component in parted(rules)]
        self._pool.budget.begin(self._allowing(new), freed)
        for engine in new:
            engine.load(self._held, self._pool.kept)
        base_facts = self._pool.base_facts
        heard = dict(base_facts.hear(messages, +1))
        for engine in new:
            self._made[engine] = Derived([], [], [])
            if engine.settle():
                engine.say(self._made[engine])
        if messages:
            heard.update(base_facts.hear(messages, -1))
            for engine in new:
                engine.settle()
                engine.withdraw()
        self.remove_failed(new, self._suspected(new))
        return heard

    def _allowing(self, new: Sequence[ComponentEngine]) -> int | None:
        """Returns by how many actions the work of new engines is bounded; None for a start.

        To the actions of the turn come the facts that are read, and the facts that were derived before and
        have to be derived again: these were paid for once.
        """
        if self._actions is None:
            return None
        read = self._pool.base_facts.count({root for engine in new for root in engine.roots})
        return self._actions + read // READS_OF_AN_ACTION + len(self._before) + len(self._held)

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
        if isinstance(failure, RuleFailed):
            row, tick = Map.of(list(failure.row.items())), None if failure.overran else self._tick
            return pool.texts.suspend(failure.rule, failure.reason, row, tick=tick)
        if engine not in self._made:  # a defect, which may not come again
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
