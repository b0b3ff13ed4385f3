"""The program: rules that come and go, over facts that come and go.

Rules that are connected are a component, which has an engine of its own.  A rule that is added comes into the
engine of its component.  When a rule is removed or fails, only its component is made anew.  Either way the
difference is returned: a rule that is added late adds the same facts as from the start, and a rule that fails
takes away its derived facts and nothing else.

Always: a tick succeeds, whatever rules do in it: a rule that raises, or runs away, is suspended and named,
and the tick has the same effects as without it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Final

from dataspace.flows.results import Derived
from dataspace.rules.engine.components import PlacedRule
from dataspace.rules.engine.engine import ComponentEngine, busy
from dataspace.rules.engine.explaining import Explainer
from dataspace.rules.engine.pool import FORBIDDING, EnginePool, Group, ProgramStatistics, Remaking
from dataspace.rules.engine.suspending import PastBounds
from dataspace.rules.engine.texts import MAX_RULES, Pair
from dataspace.rules.language.hosted import NO_FUNCTIONS, Functions
from dataspace.rules.relations.budgets import Bounds
from dataspace.rules.relations.failures import Defect
from dataspace.rules.relations.proofs import Sight
from dataspace.rules.relations.relations import STEP
from dataspace.rules.relations.times import Times
from dataspace.steps import Steps
from index.values.values import Value

logger = logging.getLogger("dataspace")

MAX_SELF_TICKS: Final = 10_000
"""Default of the ticks in a row that ``next`` may cause by itself."""

SELF_WORK: Final = 100
"""Ticks in a row that ``next`` causes by itself may do so many times the work of one tick."""

LOOKED_AFTER: Final = 64
"""Changes and ticks after which the rows of the past are counted again."""

RECOMPUTE_LEAST: Final = 30
"""A tick that takes away fewer facts than this is not looked at so closely."""


class Program:
    """Named texts of rules and what follows from them.

    ``facts`` gives the facts that are claimed when the first rule comes; without it there are none then.
    ``bounds`` are what all rules may use; ``clock`` gives nanoseconds, and ``explain`` says what each costs.
    ``kept`` are facts that rules held when another program ended: ``next`` goes on from them at first.
    ``times`` is what rules over time remember; ``only_timed`` carries out what fills it, and nothing else.
    At a ``start`` no client waits for the first tick, which may do all the work within the bounds.
    ``functions`` are the functions of the host that rules may call.  ``refused`` are texts that are suspended
    from the start, with the reason.
    """

    def __init__(
        self,
        facts: Callable[[], Iterable[Value]] | None = None,
        *,
        bounds: Bounds | None = None,
        max_self_ticks: int = MAX_SELF_TICKS,
        max_rules: int = MAX_RULES,
        clock: Callable[[], int] | None = None,
        kept: Iterable[Value] = (),
        start: bool = False,
        times: Times | None = None,
        only_timed: bool = False,
        functions: Functions = NO_FUNCTIONS,
        refused: Mapping[Pair, str] | None = None,
    ) -> None:
        self.times: Final = Times() if times is None else times
        self._kept_at = 0  # how often texts had changed when forms were looked through
        self._pool = pool = EnginePool(
            bounds or Bounds(),
            max_rules=max_rules,
            clock=clock,
            kept=kept,
            times=self.times,
            functions=functions,
        )
        pool.texts.only_timed, pool.texts.refused = only_timed, refused or {}
        self.texts: Final = pool.texts
        self.entries = self.texts.entries
        self._resuming = self.texts.resuming
        self.facts = facts
        """Gives the facts there are, until the first rule that is carried out has asked for them."""
        self.base_facts: Final = pool.base_facts
        self.components: Final = pool.components
        self._delaying: Final = pool.delaying  # here as well: every turn asks
        self.budget: Final = pool.budget
        self._past: Final = PastBounds(pool.components, pool.texts, self.times, pool.budget.bounds)
        self._max_self_ticks = max_self_ticks
        self._self_ticks = self._self_work = 0
        self._uncounted = 0  # ticks and changes since rows of the past were counted
        self._is_start = start
        self._actions = 0  # of the turn that ``next`` goes on from
        self.ticks = 0
        """How many there have been."""

    # -- rules ----------------------------------------------------------------------------------------

    def add(self, name: str, text: str) -> Derived:
        """Adds a text of rules, and returns the facts that follow; its errors are in its entry."""
        return self.change([(name, text)], [])

    def remove(self, name: str, text: str) -> Derived:
        """Removes a text of rules, and returns what no longer follows."""
        return self.change([], [(name, text)])

    def change(self, added: Iterable[tuple[str, str]], removed: Iterable[tuple[str, str]]) -> Derived:
        """Adds and removes texts in one tick; O(facts + derivations of the components they belong to)."""
        return self.declare_and_tick((added, removed), (), (), ())

    def declare_and_tick(
        self,
        rules: tuple[Iterable[tuple[str, str]], Iterable[tuple[str, str]]],
        added: Sequence[Value],
        removed: Sequence[Value],
        messages: Sequence[Value],
    ) -> Derived:
        """Runs a tick in which rules change as well; returns what has changed."""
        come, lost = self.texts.change(*rules)
        if not (come or lost):
            return self.tick(added, removed, messages)
        if self.facts is not None:
            self.base_facts.keep(self.facts())  # as they are after this tick
            self.facts, added, removed = None, (), ()
        come = self._affordable(come)
        groups, gone = self._pool.groups(come), self.components.of(lost)
        self._self_ticks = 0
        derived = self._tick_anew(gone, added, removed, messages, come=come, groups=groups)
        self._pool.kept.clear()
        self._is_start = False
        return derived

    def _affordable(self, come: list[PlacedRule]) -> list[PlacedRule]:
        """Suspends texts that would have to read too many facts in this tick; returns the rules of others.

        A start reads any number, since no client waits for it; and so does a text that had read them before.
        """
        most = self.budget.bounds.reads
        if most is None or self._is_start:
            return come
        read: set[Hashable] = set()
        total = 0
        for rule in come:
            if self.texts.is_sound(rule) and not self.texts.carried([rule]).facts:
                facts = self._pool.reads(rule, read)
                if total + facts > most:
                    limit = (
                        f"limit limits.rule_reads={most}: raise it, or add the rule before the daemon starts"
                    )
                    self.texts.suspend(rule.number, f"{total + facts} facts to be read in one turn, {limit}")
                else:
                    total += facts
        return [rule for rule in come if self.texts.is_sound(rule)]

    def resume(self, names: Collection[str]) -> Derived:
        """Carries out the texts of these names that are suspended, as if they were added now."""
        pairs = [pair for pair, entry in self.entries.items() if entry.error and entry.name in names]
        for pair in pairs:
            self._resuming.forget(pair, for_good=True)  # on request, without a wait
        return self._resume(pairs, (), (), ())

    def _resume(
        self,
        pairs: Sequence[Pair],
        added: Sequence[Value],
        removed: Sequence[Value],
        messages: Sequence[Value],
    ) -> Derived:
        derived = self.declare_and_tick((pairs, pairs), added, removed, messages)
        for pair in pairs:
            if not self.entries[pair].error:
                logger.info("rule %.80r is carried out again", pair[0])
        return derived

    @property
    def has_errors(self) -> bool:
        """True if any text is not carried out; O(texts)."""
        return any(entry.error for entry in self.entries.values())

    # -- ticks ----------------------------------------------------------------------------------------

    def tick(
        self, added: Sequence[Value] = (), removed: Sequence[Value] = (), messages: Sequence[Value] = ()
    ) -> Derived:
        """Returns what follows from claimed facts that appeared and vanished, and from messages.

        O(derivations touched); never raises because of a rule.
        """
        if self._self_ticks and not self.pending:  # else other turns would let a rule go on for ever
            self._self_ticks = 0
        if self._resuming.watched:
            self._resuming.note(added, removed)
            if ready := self._resuming.ready(self.ticks):
                return self._resume(ready, added, removed, messages)
        if self.times.forms:
            self._uncounted += 1 + len(added) + len(messages)
            lost = self._past.suspend_listeners(messages) if messages else []
            if self._uncounted >= LOOKED_AFTER or self.times.value_bytes > self.budget.bounds.held:
                lost += self._suspend_heaviest(messages)
            if lost:
                return self._tick_anew(self.components.of(lost), added, removed, messages)
        if self.facts is not None:
            return Derived([], [], [])  # nothing is carried out yet, and when it is, facts are asked for
        if len(removed) + FORBIDDING * len(added) > RECOMPUTE_LEAST:
            much = self._pool.much_taken_from(added, removed)
            if much:
                return self._tick_anew(much, added, removed, messages)
        return self._run(added, removed, messages)

    def ticking(self) -> Steps[Derived]:
        """Runs a tick without a turn, as ``tick``, in steps if much is due.

        Between two steps only the counts of the program may be read.
        """
        is_resuming = self._resuming.watched and self._resuming.ready(self.ticks)
        if is_resuming or not self.times.is_much_due or self.facts is not None:
            return self.tick()
        if self._self_ticks and not self.pending:
            self._self_ticks = 0
        self._uncounted += 1
        if self._uncounted >= LOOKED_AFTER and (lost := self._suspend_heaviest(())):
            return self._tick_anew(self.components.of(lost), (), (), ())
        return (yield from self._run_in_steps())

    def _suspend_heaviest(self, messages: Sequence[Value]) -> list[PlacedRule]:
        self._uncounted = 0
        return self._past.suspend_heaviest(messages)

    def tick_again(self) -> Derived:
        """Runs the tick that ``next`` has asked for; too many in a row suspend the rules that ask for it."""
        if reason := self._endless():
            self._self_ticks = 0
            return self._tick_anew(self.components.of(self._stop_asking(reason)), (), (), ())
        self._self_ticks += 1
        derived = self.tick() if self._resuming.watched else self._run((), (), ())
        self._self_work = self.budget.work + (self._self_work if self._self_ticks > 1 else 0)
        return derived

    def _endless(self) -> str:
        """Returns why ``next`` may cause no further tick by itself; empty if it may."""
        work = self.budget.bounds.work
        if self._self_ticks >= self._max_self_ticks:
            return f"{self._max_self_ticks} ticks in a row were caused by next alone"
        if work is not None and self._self_ticks > SELF_WORK and self._self_work > SELF_WORK * work:
            ticks, most = self._self_ticks, SELF_WORK * work
            return f"{ticks} ticks in a row, caused by next alone, took more than {most} units of work"
        return ""

    @property
    def pending(self) -> bool:
        """True if ``next`` asks for a tick, or a suspended text is due."""
        if self._resuming.watched and self._resuming.ready(self.ticks):
            return True
        for engine in self._delaying:  # noqa: SIM110  any() would make a generator for each turn
            if engine.pending:
                return True
        return False

    def _run(self, added: Sequence[Value], removed: Sequence[Value], messages: Sequence[Value]) -> Derived:
        """Runs a tick as most are: facts come or go, and no rule fails."""
        self.ticks += 1
        actions = len(added) + len(removed) + len(messages)
        if self.times.forms:
            self.times.begin(messages)
            actions += self.times.came_due
            if self.times.failed:
                return self._tick_anew(
                    self.components.of(self._past.suspend_failed()), added, removed, messages, has_begun=True
                )
        if self._delaying:
            actions = self._cause(actions)
        budget = self.budget
        if budget.is_used:
            budget.begin(actions)
        else:  # as mostly: the same without a call
            budget.tick[0] += 1
            budget.actions = actions
        engines = self._told(added, removed, messages)
        is_sound = not messages
        for engine in engines:
            if not engine.settle():
                is_sound = False
        if is_sound and self.times.forms:
            self.times.conclude()
            is_sound = not self.times.failed
        if not is_sound:
            return self._conclude(engines, messages, Remaking(self._pool, self.ticks, (), actions))
        derived = Derived([], [], [])
        for engine in engines:
            if engine.has_output:
                engine.say(derived)
            engine.publish(derived)
        if derived.added or derived.removed:
            self._note_derived(derived.added, derived.removed)
        return derived

    def _run_in_steps(self) -> Steps[Derived]:
        """Runs a tick whose only causes are time and the facts of ``next``."""
        self.ticks += 1
        yield from self.times.beginning()
        actions = self.times.came_due
        if self._delaying:
            actions = self._cause(actions)
        self.budget.begin(actions)
        engines = self._told((), (), ())
        is_sound = True
        for engine in engines:
            if not (yield from engine.settling()):
                is_sound = False
        if is_sound:
            yield from self.times.concluding()
        if not is_sound or self.times.failed:
            return self._conclude(engines, (), Remaking(self._pool, self.ticks, (), actions))
        derived = Derived([], [], [])
        for engine in engines:
            if engine.has_output:
                engine.say(derived)
            yield from engine.publishing(derived)
        for at in range(0, max(len(derived.added), len(derived.removed)), STEP):
            self._note_derived(derived.added[at : at + STEP], derived.removed[at : at + STEP])
            yield
        self.times.look_ahead()
        return derived

    def _note_derived(self, added: Sequence[Value], removed: Sequence[Value]) -> None:
        self.budget.hold(added, removed)
        if self._resuming.watched:
            self._resuming.note(added, removed)

    def _tick_anew(
        self,
        gone: Mapping[ComponentEngine, None],
        added: Sequence[Value],
        removed: Sequence[Value],
        messages: Sequence[Value],
        *,
        come: Sequence[PlacedRule] = (),
        groups: Iterable[Group] = (),
        has_begun: bool = False,
    ) -> Derived:
        """Runs a tick in which engines go, and others come for their rules or take rules in.

        ``groups`` are the groups of new rules that are connected with engines.  It ``has_begun`` if times
        have heard its messages.
        """
        self.ticks += not has_begun
        self._uncounted += LOOKED_AFTER
        if not has_begun:
            self._begin_times(come, messages)
        count = len(added) + len(removed) + len(messages) + self.times.came_due
        actions = None if self._is_start else self._cause(count)
        self.budget.begin(actions)
        remaking = Remaking(self._pool, self.ticks, come, actions)
        if remaking.carried.facts:
            self.budget.allow(0, *remaking.carried)
        remaking.remove(gone)
        grown = [engine for group in groups if (engine := remaking.join(*group)) is not None]
        engines = self._told(added, removed, messages, grown)
        for engine in engines:
            engine.settle()
        return self._conclude(engines, messages, remaking)

    def _cause(self, actions: int) -> int:
        """Returns by how many actions the work of this tick is bounded.

        What ``next`` has left for it was caused by the turn before: that one's actions count as well, but not
        in addition, so that a tick never allows more work than the largest turn that led to it.
        """
        if any(engine.pending for engine in self._delaying):
            actions = max(actions, self._actions)
        self._actions = actions
        return actions

    def _told(
        self,
        added: Sequence[Value],
        removed: Sequence[Value],
        messages: Sequence[Value],
        grown: Sequence[ComponentEngine] = (),
    ) -> Mapping[ComponentEngine, None]:
        """Passes on what a tick begins with; returns the engines that have something to settle.

        ``grown`` have something in any case.
        """
        engines: Mapping[ComponentEngine, None]
        try:
            engines = self.base_facts.change(added, removed)
            if not messages and len(engines) > 1:
                engines = busy(engines)
        except Exception as error:  # noqa: BLE001  # a fence around a tick: a defect must not end the turn of a client
            engines = self._broken(error, added, removed)
        if grown:
            engines = {**engines, **dict.fromkeys(grown)}
        if self._delaying:
            due = [engine for engine in self._delaying if engine.pending]
            for engine in due:
                engine.begin()
            engines = {**engines, **dict.fromkeys(due)}
        if self.times.forms:
            timed = [each.owner for each in self.times.noted if each.owner in self.components]
            self.times.noted.clear()
            engines = {**engines, **dict.fromkeys(timed)}
        if not messages:
            return engines
        if self.times.has_heard:
            for engine in engines:  # a window has to tell a fact from a message like it
                engine.settle()
            self.times.is_hearing = True
        try:
            return {**engines, **self.base_facts.hear(messages, +1)}
        except Exception as error:  # noqa: BLE001  # the same fence
            return self._broken(error, added, removed)

    def _broken(
        self, error: Exception, added: Sequence[Value], removed: Sequence[Value]
    ) -> dict[ComponentEngine, None]:
        """Fails all engines after a defect; returns them."""
        logger.error("the rules failed and are computed anew: this is a defect", exc_info=error)
        engines = dict.fromkeys(self.components)
        for engine in engines:
            engine.fail(Defect(error))
        self.base_facts.keep(added, removed)
        self.base_facts.forget()
        return engines

    def _begin_times(self, come: Iterable[PlacedRule], messages: Sequence[Value]) -> None:
        """Begins a tick for what depends on time, with the forms of new rules."""
        forms = [each.rule for each in come if each.rule.form is not None]
        if forms or self.times.forms:
            self.times.begin(())
            for rule in forms:
                assert rule.form is not None  # as above
                self.times.form(rule.head.label, rule.form)
            self.times.begin(messages)

    def _conclude_times(self) -> list[PlacedRule]:
        """Ends it; returns the rules of texts that are suspended because their past cannot be kept.

        Forgets the forms of rules that are not carried out any more.
        """
        if self.times.forms:
            self.times.conclude()
        lost = self._past.suspend_failed() if self.times.failed else []
        if self._kept_at != self.texts.error_count:
            self._kept_at = self.texts.error_count
            self._past.keep()
        return lost

    def _conclude(
        self,
        engines: Mapping[ComponentEngine, None],
        messages: Sequence[Value],
        remaking: Remaking,
    ) -> Derived:
        """Ends a tick in which engines go: their derived facts are published once no rule fails any more.

        So no fact is published that a failure would take back.
        """
        remaking.remove_failed(engines)
        by_engine = {each: Derived([], [], []) for each in engines if each in self.components}
        if messages:
            for engine, derived in by_engine.items():
                engine.say(derived)
            remaking.said = by_engine
            heard = {**by_engine, **self.base_facts.hear(messages, -1)}
            self.times.withdraw()
            for engine in heard:
                engine.settle()
            remaking.remove_failed(heard)
        remaking.make(messages)
        while lost := self._conclude_times():
            remaking.remove(self.components.of(lost))
            remaking.make(messages)
        whole = Derived([], [], [])
        for engine, derived in by_engine.items():
            if engine in self.components:
                if messages:
                    engine.withdraw()
                else:
                    engine.say(derived)
                engine.publish(derived)
                whole.extend(derived)
        whole = remaking.difference(whole)
        self.budget.hold(whole.added, whole.removed)
        if self._resuming.watched:
            self._resuming.note(whole.added, [*whole.removed, *messages])
        return whole

    def _stop_asking(self, reason: str) -> list[PlacedRule]:
        """Suspends the rules that ask for ticks without end: all rules that this takes away."""
        asking = [each for engine in self._delaying for each in engine.asking()]
        return [lost for each in asking for lost in self.texts.suspend(each.number, reason)]

    # -- looking --------------------------------------------------------------------------------------

    def derived(self) -> list[Value]:
        """Returns all derived facts that no owner claims; O(such facts)."""
        return [value for engine in self.components for value in engine.derived()]

    def explainer(self, sight: Sight | None = None, now: int | None = None) -> Explainer:
        """Returns what answers why, why not and how, for all components as one; O(rules).

        It shows what the asker may observe: everything without a ``sight``.  ``now`` is the time of the
        question, in microseconds; without it, the time of the last tick.
        """
        return self._pool.explainer(sight, now)

    def costliest(self) -> tuple[str, int, int]:
        """Returns the text that has taken most time, its nanoseconds, and the nanoseconds of all.
        O(rules)."""
        return self._pool.costliest()

    def spent(self) -> dict[str, int]:
        """Returns the nanoseconds that the texts of each name have taken, estimated.  O(rules)."""
        return self._pool.spent()

    def statistics(self) -> ProgramStatistics:
        """Returns counts, in O(texts, forms and rules)."""
        return self._pool.statistics(self.ticks)

    def size(self) -> int:
        """Returns the number of entries in all tables; 0 without facts, if no rule needs any.  O(tables)."""
        return self._pool.size()
