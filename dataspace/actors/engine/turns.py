"""Turns: what code in an actor can do, as the argument that every boot function and handler gets.

A ``Turn`` stands for one facet; it can be used in the turns of its actor and nowhere else.  Endpoints that
are made with it belong to that facet and end with it.  Patterns are text (``"present($who)"``) or values.

Always: actions take effect when the turn commits, or not at all.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from dataspace.actors.engine import queries
from dataspace.actors.engine.actors import Call, Facet, FacetResource
from dataspace.actors.engine.conversations import DuringActors, DuringFacets, FacetLink
from dataspace.actors.engine.fields import Computation, DerivedField, Field
from dataspace.actors.engine.handlers import check_plain, checked_name, name_of
from dataspace.actors.engine.ports import AsyncFunction, Handler
from dataspace.actors.engine.records import pattern_of
from dataspace.actors.engine.timers import Timer
from dataspace.actors.engine.verbs import BasicTurn, Given, check_given
from dataspace.errors import ActorCrashed
from index.errors import UsageError
from index.values.values import Map, Value

if TYPE_CHECKING:
    from dataspace.actors.engine.actors import Actor

T = TypeVar("T")
H = TypeVar("H", bound=Handler)


class Turn(BasicTurn):
    """The context of one facet: what its code can do."""

    __slots__ = ()

    # -- observing -------------------------------------------------------------------------------------

    def on_asserted(self, pattern: Given) -> Callable[[H], H]:
        """Decorates a handler that is called with the captures of each match, present ones included."""
        check_given(pattern, "on_asserted")
        return self._decorator("on_asserted", lambda handler: self.observe(pattern, added=handler))

    def on_retracted(self, pattern: Given) -> Callable[[H], H]:
        """Decorates a handler that is called with the captures of each match that is removed."""
        check_given(pattern, "on_retracted")
        return self._decorator("on_retracted", lambda handler: self.observe(pattern, removed=handler))

    def on_message(self, pattern: Given) -> Callable[[H], H]:
        """Decorates a handler that is called with the captures of each message that matches."""
        check_given(pattern, "on_message")
        return self._decorator("on_message", lambda handler: self.observe(pattern, message=handler))

    def during(self, pattern: Given, *, quiet: bool = False) -> Callable[[H], H]:
        """Decorates the setup of a facet for each match; the facet stops when the match is removed."""
        check_given(pattern, "during")
        return self._decorator("during", lambda handler: DuringFacets(self, pattern, handler, quiet=quiet))

    def during_spawn(self, pattern: Given, *, name: str = "") -> Callable[[H], H]:
        """Decorates the boot of an actor for each match; the actor ends when the match is removed."""
        check_given(pattern, "during_spawn")
        return self._decorator("during_spawn", lambda handler: DuringActors(self, pattern, handler, name))

    def _decorator(self, verb: str, install: Callable[[Handler], object]) -> Callable[[H], H]:
        self._check()
        effects = self.facet.actor.engine.effects
        if effects.undecorated is None:
            effects.undecorated = {}
        waiting = effects.undecorated

        def decorate(handler: H) -> H:
            waiting.pop(decorate, None)  # also if it is refused: the actor may catch that
            check_plain(handler)
            install(handler)
            return handler

        waiting[decorate] = verb
        return decorate

    # -- facets ----------------------------------------------------------------------------------------

    def on_start(self, script: H) -> H:
        """Decorates a script that runs in this turn once the facet is set up."""
        self._check()
        self.facet.actor.engine.effects.scripts.append((self.facet, self._bound(script)))
        return script

    def on_stop(self, script: H) -> H:
        """Decorates a script that runs when the facet stops, in its parent's context; not on a crash."""
        self._check()
        self.facet.on_stop = self.facet.on_stop or deque()
        self.facet.on_stop.append(self._bound(script))
        return script

    def on_exit(self, hook: Callable[[ActorCrashed | None], object]) -> None:
        """Calls a function after the actor's end, outside of any turn, with the crash or None."""
        self._check()
        self.facet.actor.exits.append(self._bound(hook))

    def before_commit(self, hook: Handler) -> None:
        """Calls a function once before this turn commits; it may fail the turn."""
        self._check()
        self.facet.actor.engine.effects.hooks.append((self.facet, self._bound(hook)))

    def prevent_inert(self) -> Callable[[], None]:
        """Keeps the facet from ending as inert; returns the function that ends that."""
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

    # -- stopping on conditions ------------------------------------------------------------------------

    def stop_when(self, pattern: Given, then: Handler | None = None) -> None:
        """Stops the facet when a match is there; ``then`` gets a turn of its parent and captures, once."""
        self._watch(pattern, added=self._stopper(then), checked=(then,))

    def stop_when_retracted(self, pattern: Given, then: Handler | None = None) -> None:
        """Stops the facet when a match is removed."""
        self._watch(pattern, removed=self._stopper(then), checked=(then,))

    def stop_when_message(self, pattern: Given, then: Handler | None = None) -> None:
        """Stops the facet when a message matches."""
        self._watch(pattern, message=self._stopper(then), checked=(then,))

    def stop_when_true(self, condition: Callable[[], object], then: Handler | None = None) -> None:
        """Stops the facet when a condition on fields holds; also if it does already."""
        self.when_true(condition, self._stopper(then))

    def stop_after(self, seconds: float, then: Handler | None = None) -> None:
        """Stops the facet after a time."""
        self.after(seconds)(self._stopper(then))

    def _stopper(self, then: Handler | None) -> Handler:
        """Returns the handler of a condition that stops the facet: by its first event, and once, however many
        matches one turn brings."""
        is_over = False

        def stop(turn: Turn, *row: Value) -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                turn.stop(then=None if then is None else lambda parent: then(parent, *row))

        return stop

    def react_until(self, pattern: Given, setup: Handler, then: Handler | None = None) -> Facet:
        """Returns a new facet that lives until something matches: it ends once, and ``then`` runs once, with
        the first match, however many come in one turn."""

        def build(turn: Turn) -> None:
            turn.stop_when(pattern, then)
            setup(turn)

        return self.react(build)

    def when_true(self, condition: Callable[[], object], then: Handler) -> None:
        """Calls ``then`` whenever a condition on fields becomes true; also if it is true already."""
        known, then = [False], self._bound(then)

        def compute() -> None:
            before, known[0] = known[0], bool(condition())
            if known[0] and not before:
                self.facet.actor.engine.effects.scripts.append((self.facet, then))

        self.dataflow(compute)

    # -- fields ----------------------------------------------------------------------------------------

    def derived(self, name: str, function: Callable[[], T]) -> DerivedField[T]:
        """Returns a field that is computed from others."""
        self._check_endpoint("a derived field")
        made = DerivedField(self.facet, checked_name(name, "a field"), self._bound(function))
        self._own(made._computation)
        return made

    def dataflow(self, function: Callable[[], object], name: str = "") -> Computation:
        """Runs a function now, and once in each turn in which a field that it read has changed."""
        self._check_endpoint("a computation")
        return self._own(self._computation(name or name_of(function, "computation"), function))

    def _own(self, computation: Computation) -> Computation:
        self.facet.computations = self.facet.computations or []
        self.facet.computations.append(computation)
        return computation

    def query_value(
        self,
        name: str,
        pattern: Given,
        default: Any = None,
        *,
        added: Handler | None = None,
        removed: Handler | None = None,
    ) -> Field[Any]:
        """Returns the field of the value that matched last; ``default`` while there is none."""
        return queries.value_query(self, name, pattern, default, added, removed)

    def query_set(
        self, name: str, pattern: Given, *, added: Handler | None = None, removed: Handler | None = None
    ) -> Field[tuple[Any, ...]]:
        """Returns the field of all matches, in the order in which they appeared."""
        return queries.set_query(self, name, pattern, added, removed)

    def query_map(
        self, name: str, pattern: Given, *, added: Handler | None = None, removed: Handler | None = None
    ) -> Field[Map]:
        """Returns the field of a map from the first capture to the second; the last of equal keys counts."""
        return queries.map_query(self, name, pattern, added, removed)

    def query_count(
        self, name: str, pattern: Given, *, added: Handler | None = None, removed: Handler | None = None
    ) -> Field[Map]:
        """Returns the field of a map from the first capture to how many matches have it."""
        return queries.count_query(self, name, pattern, added, removed)

    # -- actors ----------------------------------------------------------------------------------------

    def spawn_link(self, boot: Handler, *args: object, name: str = "", daemon: bool = False) -> Actor:
        """Returns a new actor; its end or crash stops this facet, and it ends when this facet does."""
        actor = self.spawn(boot, *args, name=name, daemon=daemon)
        FacetLink(self.facet, actor)
        return actor

    # -- later -----------------------------------------------------------------------------------------

    def later(self, function: H) -> H:
        """Decorates a function that is called in a further turn, if the facet still lives."""
        self._check()
        self._call("later", function)
        return function

    sync = later
    """Like ``later``: the turn comes after every message sent until now was handled, outside of layers
    too."""

    def snapshot(self, pattern: object, then: Callable[[Turn, list[tuple[Value, ...]]], object]) -> None:
        """Calls ``then`` once, with what matches after this turn has committed."""
        self._check()
        matched, home = pattern_of(pattern), self.home
        self._call("snapshot", lambda turn: then(turn, home.space.matches(matched)))

    def _call(self, what: str, function: Handler) -> None:
        """Calls a function in a further turn; until then the facet is not inert."""
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
        """Decorates a handler that is called once after a time, while the facet lives."""
        _check_seconds(seconds, "after")
        return self._decorator("after", lambda handler: self._timer(self.now + seconds, None, handler))

    def every(self, seconds: float) -> Callable[[H], H]:
        """Decorates a handler that is called every ``seconds``, while the facet lives."""
        _check_seconds(seconds, "every")
        if seconds <= 0:
            raise UsageError(f"every {seconds} seconds, must be more than 0")
        return self._decorator("every", lambda handler: self._timer(self.now + seconds, seconds, handler))

    def at_time(self, instant: datetime) -> Callable[[H], H]:
        """Decorates a handler that is called at a time, given with its zone; at once if that is past."""
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
        return tasks.start(self.facet, function, args, keep=keep)


def _check_seconds(seconds: object, verb: str) -> None:
    if callable(seconds):
        raise UsageError(
            f"{verb} needs seconds, as @turn.{verb}(5), but got {name_of(seconds, 'a function')}"
        )
