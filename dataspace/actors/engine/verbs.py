"""Verbs: what every other thing that a turn can do is made of.

A ``BasicTurn`` asserts, sends, observes, opens and stops facets, and spawns actors.  ``Turn``, the class that
handlers get, is built on it, with its conversations and queries.

Always: actions take effect when the turn commits, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Self, TypeAlias, TypeVar

from dataspace.actors.engine.actors import (
    NO_VALUE,
    Actor,
    ActorSpace,
    Call,
    Context,
    Facet,
    Handler,
    NoValue,
    Spawn,
)
from dataspace.actors.engine.endpoints import Assertion, PatternWatch, Rank
from dataspace.actors.engine.fields import Computation, Field
from dataspace.actors.engine.handlers import bound, check_plain, checked_name, name_of, takes
from dataspace.actors.engine.records import pattern_of
from dataspace.facts import fact_of
from dataspace.kernel.actions import ASSERT, RETRACT, SEND
from index.errors import UsageError
from index.patterns.patterns import Pattern, matcher
from index.values.freezing import is_flat
from index.values.values import Value

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])

Given: TypeAlias = object
"""A pattern as text or value, or a function that computes one from fields (None: nothing now)."""


class BasicTurn(Context):
    """The verbs of one facet in one space."""

    __slots__ = ()

    @property
    def actor(self) -> Actor:
        """The actor of the facet."""
        return self.facet.actor

    @property
    def now(self) -> float:
        """The clock of timers, in seconds."""
        return self.facet.actor.engine.clock()

    @property
    def term(self) -> int:
        """The term in which a daemon hosts the actor: a fencing token for resources outside of the space.

        It rises each time that a daemon begins to lead the space, at a restart as well; 0 in other programs.
        """
        return self.home.term

    @property
    def inside(self) -> Self:
        """The turn of the same facet for a space that only this actor sees."""
        actor = self.facet.actor
        if actor.inner is None:
            actor.inner = actor.engine.home(f"{actor.name}-inside")
            actor.inner.term = actor.home.term
        return self.at(actor.inner)

    # -- asserting -------------------------------------------------------------------------------------

    def assert_(self, value: object, *, when: Callable[[], object] | None = None) -> Assertion:
        """Asserts a fact while the facet lives; a function is computed again when its fields change.

        With ``when``, the fact is asserted only while that returns something true.  A function that returns
        None asserts nothing for now; None itself, given as the fact, is a value like any other.
        """
        self._check_endpoint("an assertion")
        assertion = Assertion(self.facet, self.home)
        if callable(value):
            compute = partial(_computed, value)
        else:
            fact = value if is_flat(value) else fact_of(value)
            if when is None:
                assertion.set(fact)
                return assertion
            compute = partial(_same, fact)
        assertion.computation = self._computation(
            "assertion", lambda: assertion.set(compute() if when is None or when() else NO_VALUE)
        )
        return assertion

    def send(self, message: object) -> None:
        """Sends a message to all its observers, when the turn commits."""
        facet = self.facet
        actor = facet.actor
        if actor.engine.running is not actor or facet.ended:
            self._check()
        value = message if is_flat(message) else fact_of(message)
        if self.home is actor.home:
            actor.engine.actions.append((SEND, value))
        else:
            actor.act(self.home, (SEND, value))

    def claim(self, value: object) -> int:
        """Asserts a fact for the actor, not the facet, until ``retract`` or its end; returns the handle."""
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
        """Ends a claim by its handle; ``UsageError`` if the actor has no such claim."""
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
        """Ends all claims (``claim``) of this actor in this space that match; returns how many; O(claims)."""
        match = matcher(pattern_of(pattern))
        mine = [at for at, (home, fact) in self.facet.actor.claims.items() if home is self.home]
        found = [at for at in mine if match(self.facet.actor.claims[at][1]) is not None]
        for at in found:
            self.retract(at)
        return len(found)

    # -- observing -------------------------------------------------------------------------------------

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
        """Calls handlers with a turn and the captures of what matches a pattern.

        ``UsageError`` if a handler cannot take what the pattern captures.  ``quiet`` asserts no interest; of
        one event, handlers of a higher ``rank`` run first.
        """
        checked = (added, message, removed)
        return self._watch(pattern, added, message, removed, quiet=quiet, rank=rank, checked=checked)

    def _watch(
        self,
        pattern: Given,
        added: Handler | None = None,
        message: Handler | None = None,
        removed: Handler | None = None,
        *,
        quiet: bool = False,
        rank: Rank = Rank.NORMAL,
        checked: tuple[Handler | None, ...],
    ) -> PatternWatch:
        """Observes a pattern; the ``checked`` handlers must be able to take what it captures."""
        self._check_endpoint("an observation")
        watch = PatternWatch(self.facet, self.home, quiet=quiet, rank=rank)
        watch.added, watch.messaged, watch.removed = [
            None if each is None else self._bound(each) for each in (added, message, removed)
        ]
        watch.checked = tuple([each for each in checked if each is not None])
        self._follow(watch, pattern)
        return watch

    def _follow(self, watch: PatternWatch, pattern: Given) -> None:
        """Sets the pattern, now and whenever its fields change."""
        if callable(pattern):
            check_given(pattern, "observe")
            compute = pattern
            watch.computation = self._computation("interest", lambda: watch.set(_pattern(compute())))
        else:
            watch.set(pattern_of(pattern))
            watch.checked = ()  # checked by now, and the pattern does not change

    # -- facets ----------------------------------------------------------------------------------------

    def react(self, setup: Handler, *args: object, name: str = "") -> Facet:
        """Returns a new facet below this one; ``setup`` runs at once, with a turn of the new facet."""
        self._check()
        check_plain(setup)
        engine = self.facet.actor.engine
        facet = engine.open_facet(self.facet.actor, self.facet, name)
        if self.home is not self.facet.actor.home:
            facet.turn = facet.turn.at(self.home)
        scope, computation = engine.scope, engine.computation
        engine.scope, engine.computation = facet, None  # a computation around it does not depend on its reads
        try:
            setup(facet.turn, *args)
        except BaseException as error:
            engine.note_raised(error, facet)
            raise
        finally:
            engine.scope, engine.computation = scope, computation
        engine.effects.touched[facet] = None
        return facet

    def stop(self, facet: Facet | None = None, then: Handler | None = None) -> None:
        """Stops a facet of this actor, by default this one; ``then`` runs in its parent's context.

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

    # -- fields ----------------------------------------------------------------------------------------

    def field(self, name: str, value: T) -> Field[T]:
        """Returns a cell of state for this facet and those below it."""
        self._check()
        return Field(self.facet, checked_name(name, "a field"), value)

    def _computation(self, name: str, action: Callable[[], object]) -> Computation:
        computation = Computation(self.facet, checked_name(name, "a computation"), self._bound(action))
        computation.run()
        return computation

    def _bound(self, function: F) -> F:
        """Returns a function that runs under the present context variables (``handlers``)."""
        return bound(self.facet.actor.engine.context, function)

    # -- actors ----------------------------------------------------------------------------------------

    def spawn(
        self,
        boot: Handler,
        *args: object,
        name: str = "",
        daemon: bool = False,
        initial: Iterable[object] = (),
        home: ActorSpace | None = None,
    ) -> Actor:
        """Returns an actor that boots once this turn has committed; it owns the ``initial`` facts.

        Initial facts that it does not assert again when it boots are retracted at the end of that turn.
        """
        self._check()
        engine = self.facet.actor.engine
        name = name or name_of(boot)
        actor = engine.make(name, home or self.home, daemon=daemon, program=self.actor.program)
        engine.effects.spawns.append(
            Spawn(actor, self._bound(boot), args, [fact_of(each) for each in initial])
        )
        return actor

    def end_actor(self, actor: Actor) -> None:
        """Ends another actor in an orderly way, once this turn has committed."""
        self._check()
        self.facet.actor.engine.effects.calls.append(
            Call(actor.root, f"ended by {self.actor.name}", BasicTurn.stop_actor)
        )

    # -- checks ----------------------------------------------------------------------------------------

    def _check(self) -> None:
        self.check_running()
        if self.facet.ended:
            raise UsageError(f"facet {self.facet} of actor {self.facet.actor.name} has ended")

    def _check_endpoint(self, what: str) -> None:
        """Raises as ``_check`` does, and within a computation, where each run would make one more."""
        self._check()
        computation = self.facet.actor.engine.computation
        if computation is not None:
            raise UsageError(
                f"{what} made in {computation.name}, which runs again whenever a field changes:"
                " make it around that, or in a facet of its own (turn.react)"
            )


def check_given(pattern: Given, verb: str) -> None:
    """Raises ``UsageError`` if a handler is given where a pattern should be."""
    if callable(pattern) and takes(pattern)[0]:
        raise UsageError(
            f'{verb} needs a pattern, as @turn.{verb}("present($who)"), or a function without arguments that'
            f" computes one, but got {name_of(pattern, 'a function')}, which has some"
        )


def _pattern(given: object) -> Pattern | NoValue:
    return NO_VALUE if given is None else pattern_of(given)


def _same(fact: Value) -> Value | NoValue:
    return fact


def _computed(compute: Callable[[], object]) -> Value | NoValue:
    given = compute()
    return NO_VALUE if given is None else fact_of(given)
