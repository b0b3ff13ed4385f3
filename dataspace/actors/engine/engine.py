"""The engine: runs the events of actors, each as one turn, all or nothing.

A turn runs the handlers of one event; then scripts, stops, computations and inert facets are settled until
no work is left; then all of it is committed to the spaces as one patch, and spawns, new observers, tasks and
calls take effect.  If anything raises before that, nothing of it happened; the actor has crashed.  The engine
waits for nothing and reads no clock: a shell (``dataspace.running.actors``) or a test steps it.

*Settling*: scripts run (``on_start``), facets that were stopped stop, computations whose fields changed run
again, and facets with nothing left to do end; each may cause more of the others.

Always: one turn runs at a time, and events are handled in the order in which they were queued; after an
actor's end nothing that it claimed is in any space, and its end is reported once.  A facet starts before it
stops; children stop before their parent; stop actions before continuations, and both in the parent's context;
a computation runs after all scripts and stops that were due; settling ends, within ``ROUNDS``, ``ACTIONS``
and ``FACETS``.  A facet of n children stops in O(n).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NoReturn

from dataspace.actors.engine.actors import (
    FACETS,
    Actor,
    ActorEvent,
    ActorRuntime,
    ActorSpace,
    Call,
    Context,
    Effects,
    Facet,
    Handler,
    Spawn,
)
from dataspace.actors.engine.endpoints import PatternWatch
from dataspace.actors.engine.handlers import bound, crash_of, is_within, name_of
from dataspace.actors.engine.tracing import Tracer
from dataspace.actors.engine.turns import Turn
from dataspace.errors import ActorCrashed
from dataspace.kernel.actions import ASSERT, RETRACT, Action
from index.errors import UsageError


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
            waiting=len(self._queue),
        )

    # -- events ---------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """True if no event is queued."""
        return not self._queue

    def step(self) -> bool:
        """Runs one turn, if an event is queued; returns True if so.  ``UsageError`` within a turn."""
        self._check_at_rest()
        if not self._queue:
            return False
        event = self._queue.popleft()
        if not event.actor.ended:
            self._run(event)
        return True

    def run(self, limit: int | None = None) -> int:
        """Runs turns until no event is queued or ``limit`` have run; returns how many ran.

        ``UsageError`` within a turn or an exit hook: one turn runs at a time.
        """
        self._check_at_rest()
        done = 0
        queue = self._queue
        while queue and done != limit:
            event = queue.popleft()
            if not event.actor.ended:
                self._run(event)
            done += 1
        return done

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
            event.run()
            if self._effects is not None:
                _settle(self, self._effects)
                self._commit(actor, self._effects)
            elif self.actions:
                actor.home.commit(actor.owner, self.actions, self.wall())
        except BaseException as error:  # noqa: BLE001  # the fence: whatever it was, the turn is undone
            failure = error
        actions, self.actions = self.actions, []
        effects, self._effects = self._effects, None
        self.running = self.computation = None
        if self.tracer is not None:
            self.tracer.turn(self.turn, event, effects or Effects(actions), failure)
        if failure is not None:
            self._crash(actor, event, failure)
        elif effects is not None:
            self._conclude(effects)
            if actor.root.ended and not actor.ended:
                self._remove(actor, None)
        self.turn = 0
        if self._escaping is not None:
            self._escape()

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

    def _conclude(self, effects: Effects) -> None:
        """Carries out the other effects of a turn that has committed."""
        for unregister in effects.closed:
            unregister()
        for register in effects.opened:
            register()
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

    def _crash(self, actor: Actor, event: ActorEvent, failure: BaseException) -> None:
        error, raised_in = self._raised
        facet = raised_in if error is failure else self.scope
        self._raised = (None, None)
        crash = crash_of(f"actor {actor.name}, facet {facet}, {event}", failure)
        self._keep_escaping(failure)
        self._remove(actor, crash)
        self._record_crash(crash)

    def fell(self, actor: Actor, event: str, crash: ActorCrashed) -> None:
        """Ends an actor that crashed outside of its turns; records the crash even if it had ended."""
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

    def _remove(self, actor: Actor, crash: ActorCrashed | None) -> None:
        """Removes an actor and its claims, and calls its exit hooks."""
        actor.ended, actor.crash = True, crash
        actor.delivery = None
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
        for notice in actor.exits:
            try:
                notice(crash)
            except BaseException as error:  # noqa: BLE001  # its actor has ended already, and the others go on
                self._record_crash(crash_of(f"actor {actor.name}, exit hook", error))
                self._keep_escaping(error)


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
        facet.ended = True
        for endpoint in facet.endpoints:
            if isinstance(endpoint, PatternWatch):
                for observer in endpoint.observers():
                    observer.live = False
                    observer.unregister()
        for resource in list(facet.resources or ()):
            resource.close()


# -- settling --------------------------------------------------------------------------------------


ROUNDS: Final = 10_000
"""How many rounds one turn may take, each with what the last one caused."""
ACTIONS: Final = 500_000
"""How many scripts, stop actions, continuations and hooks one turn may run."""


def _settle(engine: ActorRuntime, effects: Effects) -> None:
    """Runs what a turn has left until no work is left; ``UsageError`` beyond the limits."""
    _Settling(engine, effects).run()


class _Settling:
    """The end of one turn, and how much has been done in it."""

    __slots__ = ("actions", "effects", "engine", "first")

    def __init__(self, engine: ActorRuntime, effects: Effects) -> None:
        self.engine = engine
        self.effects = effects
        self.actions = 0
        self.first: int | None = None
        """How many facets its actor had ever opened when the first one stopped."""

    def run(self) -> None:
        """Runs rounds until no work is left."""
        effects = self.effects
        for _ in range(ROUNDS):
            if effects.scripts:
                self._start()
            elif effects.stopping:
                stopping, effects.stopping = effects.stopping, []
                for facet in stopping:
                    if facet.ended:
                        continue
                    if facet.children or facet.on_stop or effects.scripts:
                        self._stop(facet)
                    else:  # as mostly
                        self._close(facet)
            elif effects.stale or effects.damaged:
                _repair(effects)
            elif effects.touched:
                _end_inert(effects)
            elif effects.hooks:
                hooks, effects.hooks = effects.hooks, []
                for facet, hook in hooks:
                    self._call(facet, "a hook before the commit", hook, self.engine.enter(facet))
            else:
                if effects.undecorated:
                    effects.check_decorated()
                return
        self._refuse(self.engine.scope, "each round brings about another", "rounds", ROUNDS)

    def _start(self) -> None:
        """Runs the scripts of facets that have not ended."""
        scripts, self.effects.scripts = self.effects.scripts, []
        for facet, script in scripts:
            if not facet.ended:
                self._call(facet, "a script (on_start)", script, self.engine.enter(facet))

    def _stop(self, facet: Facet) -> None:
        """Ends a facet in an orderly way: its children first, and the children that stop actions open
        meanwhile.

        A loop, as facets may nest deeper than calls.
        """
        opened, effects = facet.actor.opened, self.effects
        if self.first is None:
            self.first = opened
        due = [facet]
        while due:
            inner = due[-1]
            inner.stopping = True
            if effects.scripts:
                self._start()  # what was opened meanwhile starts before it stops
            elif inner.children:
                due += reversed(inner.children)
            elif inner.on_stop:
                action = inner.on_stop.popleft()
                self.engine.scope = inner  # whose fields may be used
                self._call(inner, "a stop action", action, (inner.parent or inner).turn)
            else:
                self._close(due.pop())
            if facet.actor.opened - self.first > FACETS:
                self._refuse(
                    facet, "what stops in it opens facets again", "facets opened while it settles", FACETS
                )

    def _close(self, facet: Facet) -> None:
        """Ends a facet that has no children left and whose stop actions have run."""
        actor, parent, effects = facet.actor, facet.parent, self.effects
        facet.stopping = facet.ended = True
        actor.facets -= 1
        if facet.endpoints:
            for endpoint in list(facet.endpoints):
                endpoint.end()
        if facet.computations:
            for computation in facet.computations:
                computation.end()
        if facet.resources:
            effects.ended.extend(facet.resources)
        if parent is None:
            for handle, (home, _) in actor.claims.items():
                actor.act(home, (RETRACT, handle))
            actor.claims = {}
            return
        parent.children.pop(facet, None)
        effects.touched[parent] = None
        if facet.thens:
            for then in facet.thens:
                self._call(facet, "a continuation (then)", then, self.engine.enter(parent))

    def _call(self, facet: Facet, what: str, function: Handler, turn: Context) -> None:
        """Calls a function of a facet, and counts it."""
        self.actions += 1
        if self.actions > ACTIONS:
            self._refuse(facet, f"{what} brings about others again and again", "actions", ACTIONS)
        function(turn)

    def _refuse(self, facet: Facet | None, why: str, what: str, limit: int) -> NoReturn:
        actor = self.engine.running
        name = actor.name if actor is not None else "?"
        self.engine.scope = facet
        raise UsageError(f"a turn of actor {name}, facet {facet} does not end: {why}; {what}, limit {limit}")


def _repair(effects: Effects) -> None:
    """Runs what depends on changed fields, derived fields first."""
    if effects.stale:
        due, effects.stale = effects.stale, {}
    else:
        due, effects.damaged = effects.damaged, {}
    for computation in due:
        computation.repair()


def _end_inert(effects: Effects) -> None:
    touched, effects.touched = effects.touched, {}
    for facet in touched:
        if facet.is_inert and not facet.ended and not facet.stopping:
            facet.stopping = True
            effects.stopping.append(facet)
