"""Turns: what code in an actor can do, as the argument that every boot function and handler gets.

A ``Turn`` stands for one facet; it can be used in the turns of its actor and nowhere else.  Endpoints that
are made with it belong to that facet and go with it.  Patterns are text (``"present($who)"``) or values.

Always: what is done here is done when the turn commits, or not at all.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from dataspace.actors.engine import queries
from dataspace.actors.engine.contexts import bound, check_plain, checked_name, name_of, takes
from dataspace.actors.engine.conversations import DuringActors, DuringFacets, FacetLink
from dataspace.actors.engine.effects import Spawn
from dataspace.actors.engine.events import Call
from dataspace.actors.engine.facets import (
    NO_VALUE,
    Assertion,
    AsyncFunction,
    Facet,
    FacetResource,
    Handler,
    NoValue,
    PatternWatch,
    Rank,
)
from dataspace.actors.engine.fields import Computation, DerivedField, Field
from dataspace.actors.engine.records import pattern_of
from dataspace.actors.engine.timers import Timer
from dataspace.errors import ActorCrashed
from dataspace.kernel.actions import ASSERT, RETRACT, SEND
from dataspace.saying import fact_of
from index.errors import UsageError
from index.patterns.patterns import Pattern, matcher
from index.values.freezing import is_flat
from index.values.values import Map, Value

if TYPE_CHECKING:
    from dataspace.actors.engine.actors import Actor
    from dataspace.actors.engine.spaces import ActorSpace

T = TypeVar("T")
H = TypeVar("H", bound=Handler)
F = TypeVar("F", bound=Callable[..., object])

Given = object
"""A pattern as text or value, or a function that computes one from fields (None: nothing now)."""


class Turn:
    """The context of one facet."""

    __slots__ = ("facet", "home")

    def __init__(self, facet: Facet, home: ActorSpace) -> None:
        self.facet = facet
        self.home = home

    @property
    def actor(self) -> Actor:
        """The actor that this is a turn of."""
        return self.facet.actor

    @property
    def now(self) -> float:
        """The clock of timers, in seconds."""
        return self.facet.actor.engine.clock()

    def at(self, home: ActorSpace) -> Turn:
        """The same facet, speaking to another space."""
        return Turn(self.facet, home)

    @property
    def inside(self) -> Turn:
        """The same facet, speaking to the knowledge of this actor alone."""
        actor = self.facet.actor
        if actor.inner is None:
            actor.inner = actor.engine.home(f"{actor.name}-inside")
        return self.at(actor.inner)

    # -- saying ---------------------------------------------------------------------------------------

    def assert_(self, value: object, *, when: Callable[[], object] | None = None) -> Assertion:
        """Keeps a fact up while the facet lives; a function is computed again when its fields change.

        With ``when``, or where the function gives None, only while there is something to say; None itself is
        a value like any other.
        """
        self._check_endpoint("an assertion")
        made = Assertion(self.facet, self.home)
        if callable(value):
            say = partial(_computed, value)
        else:
            fact = value if is_flat(value) else fact_of(value)
            if when is None:
                made.set(fact)
                return made
            say = partial(_same, fact)
        made.block = self._block("assertion", lambda: made.set(say() if when is None or when() else NO_VALUE))
        return made

    def send(self, message: object) -> None:
        """Sends a message to all who are interested when the turn commits."""
        facet = self.facet
        actor = facet.actor
        if actor.engine.running is not actor or facet.ended:
            self._check()
        said = message if is_flat(message) else fact_of(message)
        if self.home is actor.home:
            actor.engine.actions.append((SEND, said))
        else:
            actor.act(self.home, (SEND, said))

    def claim(self, value: object) -> int:
        """Asserts a fact for the actor, not the facet, until ``retract`` or the actor's end."""
        facet, home = self.facet, self.home
        actor = facet.actor
        if actor.engine.running is not actor or facet.ended:
            self._check()
        fact = value if is_flat(value) else fact_of(value)
        handle = actor.next_handle()
        actor.claims[handle] = (home, fact)
        if home is actor.home:
            actor.engine.actions.append((ASSERT, handle, fact))
        else:
            actor.act(home, (ASSERT, handle, fact))
        return handle

    def retract(self, claim: int) -> None:
        """Ends what ``claim`` began; ``UsageError`` if it is not there."""
        facet = self.facet
        actor = facet.actor
        if actor.engine.running is not actor or facet.ended:
            self._check()
        claimed = actor.claims.pop(claim, None)
        if claimed is None:
            raise UsageError(f"actor {actor.name} has no claim {claim}")
        if claimed[0] is actor.home:
            actor.engine.actions.append((RETRACT, claim))
        else:
            actor.act(claimed[0], (RETRACT, claim))

    def retract_matching(self, pattern: object) -> int:
        """Ends all ad-hoc claims of this actor here that match a pattern: how many; O(claims)."""
        match = matcher(pattern_of(pattern))
        mine = [at for at, (home, fact) in self.facet.actor.claims.items() if home is self.home]
        found = [at for at in mine if match(self.facet.actor.claims[at][1]) is not None]
        for at in found:
            self.retract(at)
        return len(found)

    # -- hearing --------------------------------------------------------------------------------------

    def observe(
        self,
        pattern: Given,
        *,
        added: Handler | None = None,
        message: Handler | None = None,
        removed: Handler | None = None,
        quiet: bool = False,
        rank: Rank = Rank.NORMAL,
    ) -> PatternWatch:
        """Hears of a pattern: handlers get a turn and the captures, or ``UsageError`` is raised.

        ``quiet`` announces no interest; of one event, handlers of a higher ``rank`` run first.
        """
        told = (added, message, removed)
        return self._hear(pattern, added, message, removed, quiet=quiet, rank=rank, told=told)

    def _hear(
        self,
        pattern: Given,
        added: Handler | None = None,
        message: Handler | None = None,
        removed: Handler | None = None,
        *,
        quiet: bool = False,
        rank: Rank = Rank.NORMAL,
        told: tuple[Handler | None, ...],
    ) -> PatternWatch:
        """The same; those that are ``told`` in the end have to take what is captured."""
        self._check_endpoint("an observation")
        made = PatternWatch(self.facet, self.home, quiet=quiet, rank=rank)
        made.added, made.messaged, made.removed = [
            None if each is None else self._bound(each) for each in (added, message, removed)
        ]
        made.told = tuple([each for each in told if each is not None])
        self._follow(made, pattern)
        return made

    def _follow(self, made: PatternWatch, pattern: Given) -> None:
        """Sets the pattern, now and when its fields change."""
        if callable(pattern):
            _check_given(pattern, "observe")
            compute = pattern
            made.block = self._block("interest", lambda: made.set(_pattern(compute())))
        else:
            made.set(pattern_of(pattern))
            made.told = ()  # it has been looked at, once and for all

    def on_asserted(self, pattern: Given) -> Callable[[H], H]:
        """Decorates what is called with each captures that appear, those that are there already included."""
        _check_given(pattern, "on_asserted")
        return self._decorator("on_asserted", lambda handler: self.observe(pattern, added=handler))

    def on_retracted(self, pattern: Given) -> Callable[[H], H]:
        """Decorates what is called with each captures that go."""
        _check_given(pattern, "on_retracted")
        return self._decorator("on_retracted", lambda handler: self.observe(pattern, removed=handler))

    def on_message(self, pattern: Given) -> Callable[[H], H]:
        """Decorates what is called with the captures of each message."""
        _check_given(pattern, "on_message")
        return self._decorator("on_message", lambda handler: self.observe(pattern, message=handler))

    def during(self, pattern: Given, *, quiet: bool = False) -> Callable[[H], H]:
        """Decorates what sets up a facet for each match, which is stopped when the match goes."""
        _check_given(pattern, "during")
        return self._decorator("during", lambda handler: DuringFacets(self, pattern, handler, quiet=quiet))

    def during_spawn(self, pattern: Given, *, name: str = "") -> Callable[[H], H]:
        """Decorates what boots an actor for each match, which ends when the match goes."""
        _check_given(pattern, "during_spawn")
        return self._decorator("during_spawn", lambda handler: DuringActors(self, pattern, handler, name))

    def _decorator(self, verb: str, install: Callable[[Handler], object]) -> Callable[[H], H]:
        self._check()
        effects = self.facet.actor.engine.effects
        if effects.undecorated is None:
            effects.undecorated = {}
        waiting = effects.undecorated

        def decorate(handler: H) -> H:
            check_plain(handler)
            install(handler)
            waiting.pop(decorate, None)
            return handler

        waiting[decorate] = verb
        return decorate

    def _bound(self, function: F) -> F:
        """What is called later, under the context variables of now (``contexts``)."""
        return bound(self.facet.actor.engine.context, function)

    # -- facets ---------------------------------------------------------------------------------------

    def react(self, setup: Handler, *args: object, name: str = "") -> Facet:
        """A facet below this one: ``setup`` runs at once, with a turn of the new facet."""
        self._check()
        check_plain(setup)
        engine = self.facet.actor.engine
        made = engine.open_facet(self.facet.actor, self.facet, name)
        if self.home is not self.facet.actor.home:
            made.turn = Turn(made, self.home)
        scope, block = engine.scope, engine.block
        engine.scope, engine.block = made, None  # what the setup reads is not read by the block around it
        try:
            setup(made.turn, *args)
        except BaseException as error:
            engine.note_raised(error, made)
            raise
        finally:
            engine.scope, engine.block = scope, block
        engine.effects.touched[made] = None
        return made

    def stop(self, facet: Facet | None = None, then: Handler | None = None) -> None:
        """Stops a facet of this actor, this one unless told; ``then`` runs in its parent's context.

        All handlers of the event still run; several ``then`` all run.
        """
        facet = self.facet if facet is None else facet
        self.check_running()
        if facet.actor is not self.facet.actor:
            raise UsageError(
                f"facet {facet} belongs to actor {facet.actor.name}, not {self.facet.actor.name}"
            )
        if facet.ended:
            return
        if then is not None:
            facet.thens = facet.thens or []
            facet.thens.append(self._bound(then))
        if not facet.stopping:
            facet.stopping = True
            self.facet.actor.engine.effects.stopping.append(facet)

    def stop_actor(self) -> None:
        """Ends this actor in an orderly way."""
        self.stop(self.facet.actor.root)

    def on_start(self, script: H) -> H:
        """Decorates what runs in this turn once the facet is set up."""
        self._check()
        self.facet.actor.engine.effects.scripts.append((self.facet, self._bound(script)))
        return script

    def on_stop(self, script: H) -> H:
        """Decorates what runs when the facet stops, in its parent's context; not on a crash."""
        self._check()
        self.facet.on_stop = self.facet.on_stop or deque()
        self.facet.on_stop.append(self._bound(script))
        return script

    def on_exit(self, hook: Callable[[ActorCrashed | None], object]) -> None:
        """Has a function called after the actor's end, with the crash or None; there is no turn any more."""
        self._check()
        self.facet.actor.exits.append(self._bound(hook))

    def before_commit(self, hook: Handler) -> None:
        """Has a function called once before this turn commits; it may fail the turn."""
        self._check()
        self.facet.actor.engine.effects.hooks.append((self.facet, self._bound(hook)))

    def prevent_inert(self) -> Callable[[], None]:
        """Keeps the facet although it has nothing to do; the function that is returned ends that."""
        self._check()
        facet = self.facet
        facet.preventers += 1
        held = [True]

        def release() -> None:
            self.check_running()
            if held.pop() if held else False:
                facet.preventers -= 1
                facet.actor.engine.effects.touched[facet] = None

        return release

    # -- stopping on conditions -----------------------------------------------------------------------

    def stop_when(self, pattern: Given, then: Handler | None = None) -> None:
        """Stops the facet when something matches; ``then`` gets a turn of the parent and the captures."""
        self._hear(pattern, added=self._stopper(then), told=(then,))

    def stop_when_retracted(self, pattern: Given, then: Handler | None = None) -> None:
        """Stops the facet when a match goes."""
        self._hear(pattern, removed=self._stopper(then), told=(then,))

    def stop_when_message(self, pattern: Given, then: Handler | None = None) -> None:
        """Stops the facet when a message matches."""
        self._hear(pattern, message=self._stopper(then), told=(then,))

    def stop_when_true(self, condition: Callable[[], object], then: Handler | None = None) -> None:
        """Stops the facet when a condition on fields holds, also at once."""
        self.when_true(condition, self._stopper(then))

    def stop_after(self, seconds: float, then: Handler | None = None) -> None:
        """Stops the facet after a time."""
        self.after(seconds)(self._stopper(then))

    def _stopper(self, then: Handler | None) -> Handler:
        def stop(turn: Turn, *row: Value) -> None:
            turn.stop(then=None if then is None else lambda parent: then(parent, *row))

        return stop

    def react_until(self, pattern: Given, setup: Handler, then: Handler | None = None) -> Facet:
        """A facet that lives until something matches."""

        def build(turn: Turn) -> None:
            turn.stop_when(pattern, then)
            setup(turn)

        return self.react(build)

    def when_true(self, condition: Callable[[], object], then: Handler) -> None:
        """Calls ``then`` whenever a condition on fields becomes true, also if it is at the beginning."""
        known, then = [False], self._bound(then)

        def compute() -> None:
            before, known[0] = known[0], bool(condition())
            if known[0] and not before:
                self.facet.actor.engine.effects.scripts.append((self.facet, then))

        self.dataflow(compute)

    # -- fields ---------------------------------------------------------------------------------------

    def field(self, name: str, value: T) -> Field[T]:
        """A cell of state, of this facet and those below it."""
        self._check()
        return Field(self.facet, checked_name(name, "a field"), value)

    def derived(self, name: str, function: Callable[[], T]) -> DerivedField[T]:
        """A field that is computed from others."""
        self._check_endpoint("a derived field")
        made = DerivedField(self.facet, checked_name(name, "a field"), self._bound(function))
        self._own(made._block)
        return made

    def dataflow(self, function: Callable[[], object], name: str = "") -> Computation:
        """Runs a function now, and once in each turn in which a field that it read has changed."""
        self._check_endpoint("a block")
        return self._own(self._block(name or name_of(function, "block"), function))

    def _own(self, block: Computation) -> Computation:
        self.facet.blocks = self.facet.blocks or []
        self.facet.blocks.append(block)
        return block

    def _block(self, name: str, action: Callable[[], object]) -> Computation:
        block = Computation(self.facet, checked_name(name, "a block"), self._bound(action))
        block.run()
        return block

    def query_value(
        self,
        name: str,
        pattern: Given,
        default: Any = None,
        *,
        added: Handler | None = None,
        removed: Handler | None = None,
    ) -> Field[Any]:
        """The field of the value that matched last; ``default`` while there is none."""
        return queries.value_query(self, name, pattern, default, added, removed)

    def query_set(
        self, name: str, pattern: Given, *, added: Handler | None = None, removed: Handler | None = None
    ) -> Field[tuple[Any, ...]]:
        """The field of all that match, in the order in which they came."""
        return queries.set_query(self, name, pattern, added, removed)

    def query_map(
        self, name: str, pattern: Given, *, added: Handler | None = None, removed: Handler | None = None
    ) -> Field[Map]:
        """The field of a map from the first capture to the second; of equal keys the last one counts."""
        return queries.map_query(self, name, pattern, added, removed)

    def query_count(
        self, name: str, pattern: Given, *, added: Handler | None = None, removed: Handler | None = None
    ) -> Field[Map]:
        """The field of a map from the first capture to how many matches have it."""
        return queries.count_query(self, name, pattern, added, removed)

    # -- actors ---------------------------------------------------------------------------------------

    def spawn(
        self,
        boot: Handler,
        *args: object,
        name: str = "",
        daemon: bool = False,
        initial: Iterable[object] = (),
        home: ActorSpace | None = None,
    ) -> Actor:
        """An actor that boots when this turn has committed; ``initial`` facts are its own from then on.

        What it does not assert again when it boots goes at the end of that turn.
        """
        self._check()
        engine = self.facet.actor.engine
        name = name or name_of(boot)
        actor = engine.make(name, home or self.home, daemon=daemon, program=self.actor.program)
        engine.effects.spawns.append(
            Spawn(actor, self._bound(boot), args, [fact_of(each) for each in initial])
        )
        return actor

    def spawn_link(self, boot: Handler, *args: object, name: str = "", daemon: bool = False) -> Actor:
        """An actor whose end, however it comes, stops this facet, and that ends when this facet does."""
        actor = self.spawn(boot, *args, name=name, daemon=daemon)
        FacetLink(self.facet, actor)
        return actor

    def end_actor(self, actor: Actor) -> None:
        """Asks another actor to end, once this turn has committed."""
        self._check()
        self.facet.actor.engine.effects.calls.append(
            Call(actor.root, f"ended by {self.actor.name}", Turn.stop_actor)
        )

    # -- later ----------------------------------------------------------------------------------------

    def later(self, function: H) -> H:
        """Decorates what is called in a further turn, if the facet still lives."""
        self._check()
        self._call("later", function)
        return function

    sync = later
    """The further turn comes after all that was sent until now has been handled, outside of layers too."""

    def snapshot(self, pattern: object, then: Callable[[Turn, list[tuple[Value, ...]]], object]) -> None:
        """Calls ``then`` once with what matches when this turn has committed, what it did included."""
        self._check()
        asked, home = pattern_of(pattern), self.home
        self._call("snapshot", lambda turn: then(turn, home.space.matches(asked)))

    def _call(self, what: str, function: Handler) -> None:
        """Has a further turn call a function; until then the facet is not inert."""
        facet, bound_function = self.facet, self._bound(function)
        facet.preventers += 1
        rounds = [2 * self.home.depth]  # out of the layers and in again, which takes a turn each

        def call(turn: Turn) -> None:
            if rounds[0]:
                rounds[0] -= 1
                facet.actor.engine.effects.calls.append(Call(facet, what, call))
                return
            facet.preventers -= 1
            bound_function(turn)

        facet.actor.engine.effects.calls.append(Call(facet, what, call))

    def after(self, seconds: float) -> Callable[[H], H]:
        """Decorates what is called once after a time, while the facet lives."""
        _check_seconds(seconds, "after")
        return self._decorator("after", lambda handler: self._timer(self.now + seconds, None, handler))

    def every(self, seconds: float) -> Callable[[H], H]:
        """Decorates what is called again and again, while the facet lives."""
        _check_seconds(seconds, "every")
        if seconds <= 0:
            raise UsageError(f"every {seconds} seconds, must be more than 0")
        return self._decorator("every", lambda handler: self._timer(self.now + seconds, seconds, handler))

    def at_time(self, instant: datetime) -> Callable[[H], H]:
        """Decorates what is called at a time, with its zone; at once if that is past."""
        if getattr(instant, "tzinfo", None) is None:
            raise UsageError(f"a time with its zone is needed, not {instant!r}")
        wait = instant.timestamp() - self.facet.actor.engine.wall() / 1e6
        return self.after(max(0.0, wait))

    def _timer(self, at: float, period: float | None, handler: Handler) -> Timer:
        engine = self.facet.actor.engine
        if math.isnan(at):
            raise UsageError("a timer after nan seconds: when would that be?")
        timer = Timer(engine.timers, self.facet, at, period, self._bound(handler))
        self.facet.keep(timer)
        engine.effects.starts.append(lambda: engine.timers.add(timer))
        return timer

    def task(self, function: AsyncFunction, *args: object, keep: bool = False) -> FacetResource:
        """Starts an async function when this turn has committed; it is cancelled when the facet stops.

        It gets an ``Outside`` of this facet before its own arguments.  Its error crashes the actor, its end
        stops the facet unless ``keep``.  ``UsageError`` without a shell that can run it.
        """
        self._check()
        tasks = self.facet.actor.engine.tasks
        if tasks is None:
            raise UsageError("linked tasks need a shell: see dataspace.running.actors")
        return tasks.start(self, function, args, keep=keep)

    # -- checks ---------------------------------------------------------------------------------------

    def check_running(self) -> None:
        """Raises ``UsageError`` unless a turn of this actor runs."""
        actor = self.facet.actor
        running = actor.engine.running
        if running is not actor:
            who = f"a turn of {running.name}" if running is not None else "no turn; enter by external"
            raise UsageError(f"this turn is of actor {actor.name}, used in {who}")

    def _check(self) -> None:
        self.check_running()
        if self.facet.ended:
            raise UsageError(f"facet {self.facet} of actor {self.facet.actor.name} has ended")

    def _check_endpoint(self, what: str) -> None:
        """The same, and that it is not made by what runs again and again: there would be ever more."""
        self._check()
        block = self.facet.actor.engine.block
        if block is not None:
            raise UsageError(
                f"{what} made in {block.name}, which runs again whenever a field changes:"
                " make it around that, or in a facet of its own (turn.react)"
            )


def _check_given(pattern: Given, verb: str) -> None:
    """Raises ``UsageError`` for what is decorated where a pattern should be."""
    if callable(pattern) and takes(pattern)[0]:
        raise UsageError(
            f'{verb} needs a pattern, as @turn.{verb}("present($who)"), or a function without arguments that'
            f" computes one, but got {name_of(pattern, 'a function')}, which has some"
        )


def _check_seconds(seconds: object, verb: str) -> None:
    if callable(seconds):
        raise UsageError(
            f"{verb} needs seconds, as @turn.{verb}(5), but got {name_of(seconds, 'a function')}"
        )


def _pattern(given: object) -> Pattern | NoValue:
    return NO_VALUE if given is None else pattern_of(given)


def _same(fact: Value) -> Value | NoValue:
    return fact


def _computed(compute: Callable[[], object]) -> Value | NoValue:
    given = compute()
    return NO_VALUE if given is None else fact_of(given)
