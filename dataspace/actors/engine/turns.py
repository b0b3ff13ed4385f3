"""Turns: what code in an actor can do, as the argument that every boot function and handler gets.

A ``Turn`` stands for one facet; it can be used in the turns of its actor and nowhere else.  Endpoints that
are made with it belong to that facet and end with it.  Patterns are text (``"present($who)"``) or values.

A *conversation* is a facet, or an actor, for each match of a pattern, for as long as the match is there: the
removal of that match ends it, even if the pattern depends on a field and has changed since.  A *query* is a
field that is kept up to date from what matches a pattern.

Always: actions take effect when the turn commits, or not at all; each match has one facet or actor, though
the pattern changes and comes back; a former pattern is observed while something begun for it lives.  The
field of a query holds what the handlers of its actor have been called with, and is up to date before any
other handler of the same additions, or of the same removals, runs; the callbacks of queries come next.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Hashable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from dataspace.actors.engine.actors import Actor, AsyncFunction, Call, Facet, FacetResource, Handler, Timer
from dataspace.actors.engine.endpoints import PatternObserver, PatternWatch, Rank
from dataspace.actors.engine.fields import Computation, DerivedField, Field, QueryField
from dataspace.actors.engine.handlers import check_plain, checked_name, name_of
from dataspace.actors.engine.records import pattern_of
from dataspace.actors.engine.verbs import BasicTurn, Given, check_given
from dataspace.errors import ActorCrashed
from index.errors import UsageError
from index.values.values import Map, Value, key, keys

if TYPE_CHECKING:
    from dataspace.actors.engine.actors import Handler
    from dataspace.actors.engine.verbs import BasicTurn


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
        return self._decorator("during", lambda handler: _DuringFacets(self, pattern, handler, quiet=quiet))

    def during_spawn(self, pattern: Given, *, name: str = "") -> Callable[[H], H]:
        """Decorates the boot of an actor for each match; the actor ends when the match is removed."""
        check_given(pattern, "during_spawn")
        return self._decorator("during_spawn", lambda handler: _DuringActors(self, pattern, handler, name))

    def _decorator(self, verb: str, install: Callable[[Handler], object]) -> Callable[[H], H]:
        self._check()
        effects = self.facet.actor.engine.effects
        if effects.undecorated is None:
            effects.undecorated = {}
        waiting, mark = effects.undecorated, object()  # and not the function, which would refer to itself

        def decorate(handler: H) -> H:
            waiting.pop(mark, None)  # also if it is refused: the actor may catch that
            check_plain(handler)
            install(handler)
            return handler

        waiting[mark] = verb
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
        self.facet.actor.engine.effects.hooks.append((self.facet.turn, self._bound(hook)))

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
        return _value_query(self, name, pattern, default, added, removed)

    def query_set(
        self, name: str, pattern: Given, *, added: Handler | None = None, removed: Handler | None = None
    ) -> Field[tuple[Any, ...]]:
        """Returns the field of all matches, in the order in which they appeared."""
        return _set_query(self, name, pattern, added, removed)

    def query_map(
        self, name: str, pattern: Given, *, added: Handler | None = None, removed: Handler | None = None
    ) -> Field[Map]:
        """Returns the field of a map from the first capture to the second; the last of equal keys counts."""
        return _map_query(self, name, pattern, added, removed)

    def query_count(
        self, name: str, pattern: Given, *, added: Handler | None = None, removed: Handler | None = None
    ) -> Field[Map]:
        """Returns the field of a map from the first capture to how many matches have it."""
        return _count_query(self, name, pattern, added, removed)

    # -- actors ----------------------------------------------------------------------------------------

    def spawn_link(self, boot: Handler, *args: object, name: str = "", daemon: bool = False) -> Actor:
        """Returns a new actor; its end or crash stops this facet, and it ends when this facet does."""
        actor = self.spawn(boot, *args, name=name, daemon=daemon)
        _FacetLink(self.facet, actor)
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
        facet = self.facet
        facet.preventers += 1
        rounds = 2 * self.home.depth  # out of the layers and in again, which takes a turn each
        facet.actor.engine.effects.calls.append(
            Call(facet, what, _called, what, rounds, self._bound(function))
        )

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
        self.facet.own(timer)
        engine.effects.starts.append(lambda: engine.timers.add(timer))
        return timer

    def task(self, function: AsyncFunction, *args: object, keep: bool = False) -> FacetResource:
        """Starts an async function when this turn has committed; it is cancelled when the facet stops.

        It gets an ``Outside`` of this facet before its own arguments.  Its error crashes the actor, its end
        stops the facet unless ``keep``.  ``UsageError`` without a shell that can run it.
        """
        self._check()
        start = self.facet.actor.engine.start_task
        if start is None:
            raise UsageError("linked tasks need a shell: see dataspace.running.actors")
        return start(self.facet, function, args, keep)


def _called(turn: Turn, what: str, rounds: int, function: Handler) -> None:
    """Calls a function in a turn that is so many turns later."""
    facet = turn.facet
    if rounds:
        facet.actor.engine.effects.calls.append(Call(facet, what, _called, what, rounds - 1, function))
        return
    facet.preventers -= 1
    function(turn)


def _check_seconds(seconds: object, verb: str) -> None:
    if callable(seconds):
        raise UsageError(
            f"{verb} needs seconds, as @turn.{verb}(5), but got {name_of(seconds, 'a function')}"
        )


# -- conversations ---------------------------------------------------------------------------------


class _During:
    """The facets and actors that were begun, by match."""

    def __init__(self, turn: BasicTurn, pattern: object, handler: Handler, *, quiet: bool = False) -> None:
        turn._check_endpoint("a conversation")
        self.handler = turn._bound(handler)
        self.watch = watch = PatternWatch(turn.facet, turn.home, quiet=quiet)
        self.begun: dict[PatternObserver, dict[Hashable, object]] = {}
        watch.added, watch.removed, watch.lingers = self._begin, self._end, self._lingers
        watch.checked = (handler,)
        turn._follow(watch, pattern)

    def _lingers(self, observer: PatternObserver) -> bool:
        return bool(self.begun.get(observer))

    def _begin(self, turn: BasicTurn, *row: Value) -> None:
        observer = self.watch.reporting
        assert observer is not None
        begun, at = self.begun.setdefault(observer, {}), keys(row)
        if at not in begun:  # else the pattern had changed and has come back
            begun[at] = self.start(turn, row)

    def _end(self, turn: BasicTurn, *row: Value) -> None:
        observer = self.watch.reporting
        assert observer is not None
        rows = self.begun.get(observer, {})
        begun = rows.pop(keys(row), None)
        if not rows:
            self.begun.pop(observer, None)
            if observer is not self.watch.observer:
                observer.live = False
                self.watch.old.pop(observer, None)
                turn.actor.engine.effects.closed.append(observer.unregister)
        if begun is not None:
            self.finish(turn, begun)

    @abstractmethod
    def start(self, turn: BasicTurn, row: tuple[Value, ...]) -> object:
        """Begins what belongs to a match, and returns it."""

    @abstractmethod
    def finish(self, turn: BasicTurn, begun: object) -> None:
        """Ends what ``start`` returned."""


class _DuringFacets(_During):
    """``Turn.during``."""

    def start(self, turn: BasicTurn, row: tuple[Value, ...]) -> object:
        """Returns a facet that is not inert while the match is there."""

        def setup(inner: BasicTurn) -> None:
            inner.facet.preventers += 1
            self.handler(inner, *row)

        return turn.react(setup)

    def finish(self, turn: BasicTurn, begun: object) -> None:
        """Stops the facet, unless it has stopped itself."""
        assert isinstance(begun, Facet)
        turn.stop(begun)


class _DuringActors(_During, FacetResource):
    """``Turn.during_spawn``: an actor begun is always booted before it is ended, and ends with the facet."""

    def __init__(self, turn: BasicTurn, pattern: object, handler: Handler, name: str) -> None:
        self.name = name
        super().__init__(turn, pattern, handler)
        turn.facet.own(self)

    def start(self, turn: BasicTurn, row: tuple[Value, ...]) -> object:
        """Returns an actor that does not end by itself while the match is there."""

        def boot(inner: BasicTurn, *captures: Value) -> None:
            inner.facet.preventers += 1
            self.handler(inner, *captures)

        return turn.spawn(boot, *row, name=self.name or name_of(self.handler))

    def finish(self, turn: BasicTurn, begun: object) -> None:
        """Queues the orderly end of the actor."""
        turn.end_actor(begun)  # type: ignore[arg-type]  # an actor, by start

    def close(self) -> None:
        """Ends the actors: the facet has ended, perhaps by a crash."""
        engine = self.watch.facet.actor.engine
        for rows in self.begun.values():
            for begun in rows.values():
                engine.end(begun, "its facet has ended")  # type: ignore[arg-type]  # an actor, by start


class _FacetLink(FacetResource):
    """Ends an actor with a facet, and the facet with the actor."""

    __slots__ = ("actor", "facet")

    def __init__(self, facet: Facet, actor: Actor) -> None:
        self.facet = facet
        self.actor = actor
        facet.own(self)
        actor.exits.append(self._ended)

    def close(self) -> None:
        """Ends the actor: the facet has ended."""
        if not self.actor.ended:
            self.actor.engine.end(self.actor, "its link has ended")

    def _ended(self, crash: object) -> None:
        self.facet.release(self)
        if not self.facet.ended:
            self.facet.actor.engine.enqueue(Call(self.facet, "link ended", lambda turn: turn.stop()))


# -- queries ---------------------------------------------------------------------------------------


Rows: TypeAlias = dict[object, tuple[Value, ...]]
"""The rows that match now, by key, in the order in which they appeared."""


def _value_query(
    turn: BasicTurn, name: str, pattern: object, default: Any, added: Handler | None, removed: Handler | None
) -> Field[Any]:
    """Returns the field of the value that matched last; ``default`` while there is none."""

    def latest(rows: Rows) -> Any:
        return _unpacked(next(reversed(rows.values()))) if rows else default

    return _query(turn, name, pattern, latest, added, removed)


def _set_query(
    turn: BasicTurn, name: str, pattern: object, added: Handler | None, removed: Handler | None
) -> Field[tuple[Any, ...]]:
    """Returns the field of all matches, in the order in which they appeared."""
    return _query(turn, name, pattern, lambda rows: tuple(map(_unpacked, rows.values())), added, removed)


def _map_query(
    turn: BasicTurn, name: str, pattern: object, added: Handler | None, removed: Handler | None
) -> Field[Map]:
    """Returns the field of a map from the first capture to the second; the last of equal keys counts."""

    def mapped(rows: Rows) -> Map:
        return Map({key(row[0]): (row[0], row[1]) for row in rows.values()}.values())

    def query_map(_turn: BasicTurn, key: Value, value: Value, *more: Value) -> None:
        """Its parameters are what a pattern has to capture."""

    return _query(turn, name, pattern, mapped, added, removed, query_map)


def _count_query(
    turn: BasicTurn, name: str, pattern: object, added: Handler | None, removed: Handler | None
) -> Field[Map]:
    """Returns the field of a map from the first capture to how many matches have it."""

    def counted(rows: Rows) -> Map:
        firsts = {key(row[0]): row[0] for row in rows.values()}
        counts = Counter([key(row[0]) for row in rows.values()])
        return Map([(firsts[at], count) for at, count in counts.items()])

    def query_count(_turn: BasicTurn, key: Value, *more: Value) -> None:
        """Its parameters are what a pattern has to capture."""

    return _query(turn, name, pattern, counted, added, removed, query_count)


def _query(
    turn: BasicTurn,
    name: str,
    pattern: object,
    value_of: Callable[[Rows], T],
    added: Handler | None,
    removed: Handler | None,
    needs: Handler | None = None,
) -> Field[T]:
    """Returns the field of a value computed from what matches; empty again when the pattern changes.

    The pattern must capture what ``needs`` can be called with.
    """
    rows: Rows = {}
    turn._check()
    field = QueryField(turn.facet, checked_name(name, "a field"), lambda: value_of(rows))

    def gain(_: BasicTurn, *row: Value) -> None:
        rows[key(row)] = row
        field.change()

    def lose(_: BasicTurn, *row: Value) -> None:
        if rows.pop(key(row), None) is not None:
            field.change()

    def clear(_: BasicTurn) -> None:
        rows.clear()
        field.change()

    turn._watch(pattern, gain, None, lose, rank=Rank.QUERY, checked=(needs,)).moved = clear
    if added is not None or removed is not None:
        turn.observe(pattern, added=added, removed=removed, quiet=True, rank=Rank.QUERY_HANDLER)
    return field


def _unpacked(row: tuple[Value, ...]) -> Any:
    """Returns the value of a single capture, or the captures as a tuple."""
    return row[0] if len(row) == 1 else row
