"""The engine: runs the events of actors, each as one turn, all or nothing.

A turn runs the handlers of one event; then scripts, stops, computations and inert facets are settled until
no work is left; then all of it is committed to the spaces as one patch, and spawns, new observers, tasks and
calls take effect.  If anything raises before that, nothing of it happened; the actor has crashed.  The engine
waits for nothing: a shell (``dataspace.running.actors``) or a test steps it.

*Slices*: ``run`` stops at a time, between two turns, or within a turn between two functions of its actor.  A
turn that is begun stays the next one, and nothing of it is seen before it has committed: the twenty thousand
matches that a restart brings at once are one turn, and others run meanwhile.

Always: one turn runs at a time, and events are handled in the order in which they were queued; after an
actor's end nothing that it claimed is in any space, and its end is reported once.  What a turn that crashed
has made or closed is closed and in no cycle of references, and of a reported crash only its text is kept.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from dataspace.actors.engine.actors import (
    Actor,
    ActorEvent,
    ActorRuntime,
    ActorSpace,
    Call,
    Effects,
    Facet,
    Handler,
    Spawn,
)
from dataspace.actors.engine.endpoints import PatternWatch
from dataspace.actors.engine.handlers import bound, crash_of, is_within, name_of
from dataspace.actors.engine.settling import STEP, Settling
from dataspace.actors.engine.tracing import Tracer
from dataspace.actors.engine.turns import Turn
from dataspace.errors import ActorCrashed
from dataspace.kernel.actions import ASSERT, RETRACT, Action
from dataspace.kernel.turns import keys_in_steps
from dataspace.steps import Steps, at_once
from index.errors import UsageError

LONG: Final = 0.0001
"""Seconds from which a turn is counted in ``Engine.spent``; shorter ones would cost more to count."""


@dataclass(frozen=True, slots=True)
class EngineStatistics:
    """Counts of actors (daemons included, and without them), facets, turns, crashes and queued events."""

    actors: int
    inhabitants: int
    facets: int
    turns: int
    crashes: int
    waiting: int


class Engine(ActorRuntime):
    """Runs actors.  Not safe for threads; nothing here waits.

    ``clock`` gives seconds for timers, ``wall`` microseconds since 1970 UTC for epochs.
    """

    def __init__(
        self, *, clock: Callable[[], float] = lambda: 0.0, wall: Callable[[], int] = lambda: 0
    ) -> None:
        super().__init__(clock, wall, Turn)
        self.fence: tuple[type[BaseException], ...] = (Exception,)
        """Exceptions that end only the actor that raises them; in a daemon, all.

        Others end the actor too, and are then raised by ``run``.
        """
        self.tracer: Tracer | None = None
        self.on_crash: Callable[[ActorCrashed], None] | None = None
        self.on_end: Callable[[Actor], None] | None = None
        self.crashes: deque[ActorCrashed] = deque(maxlen=100)
        self.crashed = 0
        self.inhabitants = 0
        self.stepping: Actor | None = None
        """The actor whose linked task runs, in step ``steps``; None if none does."""
        self.steps = 0
        self.spent: Counter[str] = Counter()
        """Seconds that the turns of each program have taken in ``run``, without those below ``LONG``."""
        self.longest = 0.0
        """Seconds of the longest turn, or part of one between two slices, since a watchdog has read it."""
        self.parts = 0
        """How often a turn was interrupted so far."""
        self._suspended: _Suspended | None = None
        """The turn that the end of a slice has interrupted."""
        self._escaping: BaseException | None = None
        """An exception beyond the fence, kept until the engine is consistent and it can be raised."""

    # -- spaces and actors ----------------------------------------------------------------------------

    def spawn(
        self, boot: Handler, *args: object, home: ActorSpace, name: str = "", daemon: bool = False
    ) -> Actor:
        """Starts an actor from outside of any turn; it boots when the engine runs."""
        if self.running is not None:
            raise UsageError("within a turn actors are spawned by turn.spawn")
        actor = self.make(name or name_of(boot), home, daemon=daemon)
        self._settle_in(Spawn(actor, bound(self.context, boot), args, []))
        return actor

    def statistics(self) -> EngineStatistics:
        """Returns counts; O(actors)."""
        return EngineStatistics(
            actors=len(self.actors),
            inhabitants=self.inhabitants,
            facets=sum(actor.facets for actor in self.actors.values()),
            turns=self.turns,
            crashes=self.crashed,
            waiting=len(self._queue) + (self._suspended is not None),
        )

    # -- events ---------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """True if no event is queued and no turn is interrupted."""
        return not self._queue and self._suspended is None

    def step(self) -> bool:
        """Runs one turn, if an event is queued; returns True if so.  ``UsageError`` within a turn."""
        return self.run(1) > 0

    def run(self, limit: int | None = None, *, seconds: float | None = None) -> int:
        """Runs turns until no event is queued or ``limit`` have run; returns how many ran.

        With ``seconds`` it returns once these have passed by the clock: after the turn that runs then, or
        within it where it may be interrupted; the next call goes on with that turn.
        ``UsageError`` within a turn or an exit hook: one turn runs at a time.
        """
        self._check_at_rest()
        done = 0
        queue, clock = self._queue, self.clock
        last = clock()
        until = self._until = None if seconds is None else last + seconds
        if self._suspended is not None:
            actor = self._suspended.event.actor
            self._resume()
            last = self._note_spent(actor, last)
            done += 1
        while queue and done != limit and self._suspended is None:
            if until is not None and last >= until:
                break
            event = queue.popleft()
            if not event.actor.ended:
                self._run(event)
                now = clock()
                if now - last > LONG:
                    self._note_spent(event.actor, last)
                last = now
            done += 1
        self._rests_since = last if self.is_idle else math.inf
        return done

    def _note_spent(self, actor: Actor, since: float) -> float:
        """Counts the time since then for the program of an actor; returns the time now."""
        now = self.clock()
        self.spent[actor.program] += now - since  # type: ignore[assignment]  # seconds
        self.longest = max(self.longest, now - since)
        return now

    def _check_at_rest(self) -> None:
        if self.turn:
            current = f"a turn of {self.running.name}" if self.running is not None else "the end of an actor"
            raise UsageError(f"the engine runs already: {current} cannot run others; they come after it")

    def fire(self) -> None:
        """Queues the events of the timers that are due by the clock."""
        for timer in self.timers.due(self.clock()):
            timer.fire()

    # -- one turn -------------------------------------------------------------------------------------

    def _run(self, event: ActorEvent) -> None:
        actor = event.actor
        self.turns = self.turn = self.turns + 1
        actor.turns += 1
        self.running = actor
        failure: BaseException | None = None
        try:
            steps = event.run()
            if steps is not None or self._effects is not None or len(self.actions) > STEP:
                rest: Steps[None] | None = self._rest(event, steps)
            else:
                rest = None
                if self.actions:
                    actor.home.commit(actor.owner, self.actions, self.wall())
        except BaseException as error:  # noqa: BLE001  # the fence: whatever it was, the turn is undone
            failure, rest = error, None
        if rest is not None:
            self._go_on(event, rest)
        else:
            self._finish(event, failure)

    def _rest(self, event: ActorEvent, steps: Steps[None] | None) -> Steps[None]:
        """Makes in steps what is left of a turn, to its end."""
        actor = event.actor
        failure: BaseException | None = None
        try:
            if steps is not None:
                yield from steps
            if self._effects is not None:
                yield from Settling(self, self._effects).steps()
            if len(self.actions) > STEP:
                yield from keys_in_steps([each[-1] for each in self.actions if each[0] != RETRACT])
            if self._effects is not None:
                self._commit(actor, self._effects)
            elif self.actions:
                actor.home.commit(actor.owner, self.actions, self.wall())
        except BaseException as error:  # noqa: BLE001  # the fence, as in ``_run``
            failure = error
        effects = self._effects
        self._record(event, failure)
        if failure is not None:
            self._crash(actor, event, failure, effects)
        elif effects is not None:
            yield from self._conclude(effects)
            if actor.root.ended and not actor.ended:
                self._remove(actor, None)
        self._rest_from_turn()

    def _finish(self, event: ActorEvent, failure: BaseException | None) -> None:
        """Ends a turn that had no effects but actions, or that failed at once."""
        effects = self._effects
        self._record(event, failure)
        if failure is not None:
            self._crash(event.actor, event, failure, effects)
        self._rest_from_turn()

    def _record(self, event: ActorEvent, failure: BaseException | None) -> None:
        """Closes the turn, which has committed or failed, to further actions."""
        actions, self.actions = self.actions, []
        effects, self._effects = self._effects, None
        self.running = self.computation = None
        if self.tracer is not None:
            self.tracer.turn(self.turn, event, effects or Effects(actions), failure)

    def _rest_from_turn(self) -> None:
        self.turn = 0
        if self._raised[0] is not None:
            self._raised = (None, None)  # an error that a handler has caught
        if self._escaping is not None:
            self._escape()

    # -- slices ---------------------------------------------------------------------------------------

    def _go_on(self, event: ActorEvent, rest: Steps[None]) -> None:
        """Does the steps of a turn until its end, or the end of the slice."""
        if self._until is None:
            at_once(rest)
            return
        clock, until = self.clock, self._until
        for _ in rest:
            if clock() >= until:
                self._suspend(event, rest)
                return

    def _suspend(self, event: ActorEvent, rest: Steps[None]) -> None:
        """Puts a turn aside: no code of its actor may act in it until it goes on."""
        self.parts += 1
        self._suspended = _Suspended(
            event, rest, self.turn, self.running, self.scope, self.actions, self._effects
        )
        self.turn, self.running, self.scope, self.actions, self._effects = 0, None, None, [], None

    def _resume(self) -> None:
        """Goes on with the turn that was put aside; undoes it if its actor has crashed meanwhile."""
        aside, self._suspended = self._suspended, None
        assert aside is not None
        self.turn, self.running, self.scope = aside.turn, aside.running, aside.scope
        self.actions, self._effects = aside.actions, aside.effects
        actor = aside.event.actor
        if not (actor.ended and aside.running is not None):  # else it has not committed
            self._go_on(aside.event, aside.rest)
            return
        aside.rest.close()
        effects = self._effects
        self._record(aside.event, actor.crash)
        if effects is not None:
            _close_dropped(effects)
        self._rest_from_turn()

    def _escape(self) -> None:
        """Raises the exception beyond the fence: its actor has ended, and the engine is consistent."""
        error, self._escaping = self._escaping, None
        assert error is not None
        raise error

    def _keep_escaping(self, error: BaseException) -> None:
        """Keeps an exception beyond the fence, to be raised once the engine is consistent."""
        if self._escaping is None and not is_within(error, self.fence):
            self._escaping = error

    def _commit(self, actor: Actor, effects: Effects) -> None:
        """Commits the turn as one patch; the initial facts of new actors are committed before it."""
        done = []
        try:
            for spawn in effects.spawns:
                if spawn.initial:
                    self._claim_initial(spawn)
                    done.append(spawn)
            if effects.actions:
                actor.home.commit(actor.owner, effects.actions, self.wall())
            for home, actions in effects.elsewhere.items():
                actor.touched[home] = None
                if actions:
                    home.commit(actor.owner, actions, self.wall())
        except BaseException:
            for spawn in done:
                spawn.actor.home.end(spawn.actor.owner)
            raise

    def _claim_initial(self, spawn: Spawn) -> None:
        actor = spawn.actor
        actions: list[Action] = [(ASSERT, actor.next_handle(), value) for value in spawn.initial]
        actor.home.commit(actor.owner, actions, self.wall())

    def _conclude(self, effects: Effects) -> Steps[None]:
        """Carries out the other effects of a turn that has committed."""
        yield from _each_called(effects.closed)
        yield from _each_called(effects.opened)
        for spawn in effects.spawns:
            self._settle_in(spawn)
        for call in effects.calls:
            self.enqueue(call)
        for resource in effects.ended:
            resource.close()
        for start in effects.starts:
            start()

    def _settle_in(self, spawn: Spawn) -> None:
        actor = spawn.actor
        self.actors[actor.number] = actor
        self.inhabitants += not actor.daemon
        self.enqueue(Call(actor.root, "boot", _boot, spawn))

    # -- ends -----------------------------------------------------------------------------------------

    def _crash(
        self, actor: Actor, event: ActorEvent, failure: BaseException, effects: Effects | None
    ) -> None:
        error, raised_in = self._raised
        facet = raised_in if error is failure else self.scope
        self._raised = (None, None)
        crash = crash_of(f"actor {actor.name}, facet {facet}, {event}", failure)
        self.scope = None
        self._keep_escaping(failure)
        if effects is not None:
            _close_dropped(effects)
        self._remove(actor, crash)
        self._record_crash(crash)

    def fell(self, actor: Actor, event: str, crash: ActorCrashed) -> None:
        """Ends an actor that crashed outside of its turns; records the crash even if it had ended."""
        self._note_rest()
        self.turns = self.turn = self.turns + 1
        if self.tracer is not None:
            self.tracer.fell(self.turn, actor.name, event, crash.__cause__ or crash)
        if not actor.ended:
            self._remove(actor, crash)
        self._record_crash(crash)
        self.turn = 0
        if self._escaping is not None:
            self._escape()

    def _record_crash(self, crash: ActorCrashed) -> None:
        self.crashes.append(crash)
        self.crashed += 1
        if self.on_crash is not None:
            self.on_crash(crash)
            self._forget_cause(crash)

    def _forget_cause(self, crash: ActorCrashed) -> None:
        """Keeps only the text of a crash that was reported.

        Its traceback has the frames of the whole turn, with all facets and facts that this had made.
        """
        cause, crash.__cause__ = crash.__cause__, None
        crash.__context__ = None
        if cause is not None and cause is not self._escaping:
            cause.__traceback__ = None  # the actor may keep the exception itself, and raise it again

    def _remove(self, actor: Actor, crash: ActorCrashed | None) -> None:
        """Removes an actor and its claims, and calls its exit hooks."""
        actor.ended, actor.crash = True, crash
        actor.delivery, actor.claims = None, {}
        _end_facets(actor.root)
        if self.actors.pop(actor.number, None) is not None:
            self.inhabitants -= not actor.daemon
        actor.home.end(actor.owner)
        for home in actor.touched:
            home.end(actor.owner)
        if actor.inner is not None:
            for other in list(self.actors.values()):
                if other.home is actor.inner:
                    self.end(other, "its layer has ended")
        if self.on_end is not None:
            self.on_end(actor)
        notices, actor.exits = actor.exits, []
        for notice in notices:
            try:
                notice(crash)
            except BaseException as error:  # noqa: BLE001  # its actor has ended already, and the others go on
                self._keep_escaping(error)
                self._record_crash(crash_of(f"actor {actor.name}, exit hook", error))


def _boot(turn: Turn, spawn: Spawn) -> None:
    """Boots an actor; its initial facts are retracted, unless this turn asserts them again."""
    if spawn.initial:
        for handle in range(1, len(spawn.initial) + 1):
            turn.facet.actor.act(turn.home, (RETRACT, handle))
    turn.react(spawn.boot, *spawn.args, name=spawn.actor.name)


def _end_facets(root: Facet) -> None:
    """Ends a facet and all below it without stop actions; the claims end with the actor.

    A loop, as facets may nest deeper than calls.
    """
    below = [root]
    while below:
        facet = below.pop()
        below += facet.children
        if facet.ended:
            continue
        facet.ended = True
        endpoints, facet.endpoints, facet.children = facet.endpoints, {}, {}
        for endpoint in endpoints:
            if isinstance(endpoint, PatternWatch):
                for observer in endpoint.observers():
                    observer.live = False
                    observer.unregister()
            if endpoint.computation is not None:
                endpoint.computation.end()
        for computation in facet.computations or ():
            computation.end()
        for resource in list(facet.resources or ()):
            resource.close()
        facet.clear()


def _close_dropped(effects: Effects) -> None:
    """Closes what a turn had ended, or ended to observe, before it failed: its facets have let it go."""
    for unregister in effects.closed:
        unregister()
    for resource in effects.ended:
        resource.close()


def _each_called(functions: Iterable[Callable[[], object]]) -> Steps[None]:
    for at, function in enumerate(functions, 1):
        function()
        if not at % STEP:
            yield


@dataclass(frozen=True, slots=True)
class _Suspended:
    """A turn that the end of a slice has interrupted, and the state of the engine in it.

    ``running`` is None once the turn has committed.
    """

    event: ActorEvent
    rest: Steps[None]
    turn: int
    running: Actor | None
    scope: Facet | None
    actions: list[Action]
    effects: Effects | None
