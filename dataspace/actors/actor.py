"""Actors: who owns facets and facts, and the events that wait for it.

They are apart from the engine, which runs one event of one actor after another.

Always: an actor's claims go with it; events of one actor are handled in the order in which they came.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from dataspace.actors.facets import Facet, Handler, Watch
from dataspace.actors.homes import Home
from dataspace.changes import Captures, Changes
from dataspace.errors import ActorCrashed
from dataspace.wire.packets import Action
from index.errors import UsageError
from index.values import Value

if TYPE_CHECKING:
    from dataspace.actors.engine import Engine

FACETS: Final = 100_000
"""How many facets an actor may have; one that leaks them crashes then, and the others go on."""


class Actor:
    """One actor.  ``name`` is for people; ``owner`` is who its claims belong to."""

    __slots__ = (
        "_facet", "_handle", "claims", "crash", "daemon", "delivery", "ended", "engine", "exits", "facets",
        "home", "inner", "name", "number", "owner", "program", "root", "touched", "turns",
    )  # fmt: skip

    def __init__(
        self, engine: Engine, number: int, name: str, home: Home, *, daemon: bool, program: str = ""
    ) -> None:
        self.engine = engine
        self.number = number
        self.name = name or f"actor-{number}"
        self.program = program or self.name
        """The name of the first actor that it descends from."""
        self.owner = f"actor:{number}"
        self.home = home
        self.daemon = daemon
        self.claims: dict[int, tuple[Home, Value]] = {}
        """Ad-hoc claims, which belong to no facet."""
        self.exits: list[Callable[[ActorCrashed | None], object]] = []
        self.touched: dict[Home, None] = {}
        self.inner: Home | None = None
        self.delivery: Delivery | None = None
        self.crash: ActorCrashed | None = None
        self.ended = False
        self.turns = 0
        self.facets = 0
        self._handle = 0
        self._facet = 0
        self.root = engine.open_facet(self, None, "root")

    def next_handle(self) -> int:
        """A handle that was never used."""
        self._handle += 1
        return self._handle

    def next_facet(self) -> int:
        """A facet's number; ``UsageError`` if there are too many facets."""
        self.facets += 1
        if self.facets > FACETS:
            raise UsageError(f"actor {self.name} has {self.facets} facets, limit {FACETS}")
        self._facet += 1
        return self._facet

    def act(self, home: Home, action: Action) -> None:
        """Queues an action of the running turn."""
        if home is self.home:
            self.engine.actions.append(action)
        else:
            self.engine.draft.elsewhere.setdefault(home, []).append(action)

    def deliver(self, home: Home, epoch: int) -> Delivery:
        """A new delivery, of an epoch of which this actor hears the first; queued."""
        self.delivery = made = Delivery(self, home, epoch)
        self.engine.enqueue(made)
        return made

    def __repr__(self) -> str:
        return f"<actor {self.name}>"


class Event:
    """What an actor is to handle in one turn."""

    __slots__ = ("actor", "cause")

    def __init__(self, actor: Actor, cause: int = 0) -> None:
        self.actor = actor
        self.cause = cause
        """The number of the turn that brought it about, 0 if none did."""

    def run(self) -> None:
        """Handles it, within the turn."""
        raise NotImplementedError

    def __str__(self) -> str:
        raise NotImplementedError


class Delivery(Event):
    """One epoch of one space, as far as it concerns an actor: additions, then messages, then removals."""

    __slots__ = ("epoch", "home", "parts")

    def __init__(self, actor: Actor, home: Home, epoch: int) -> None:
        self.actor = actor
        self.cause = actor.engine.turn
        self.home = home
        self.epoch = epoch
        self.parts: list[tuple[Watch, Changes]] = []

    def run(self) -> None:
        """Runs all handlers that match, whatever the first ones decide."""
        if self.actor.delivery is self:
            self.actor.delivery = None
        parts = self.parts
        if len(parts) == 1:
            self._run_one(*parts[0])
            return
        parts = [part for part in parts if part[0].live]
        for watch, changes in parts:
            if changes.added and watch is watch.observation.watch:
                _tell(watch, watch.observation.added, changes.added)
        for watch, changes in parts:
            if changes.messages and watch is watch.observation.watch:
                _tell(watch, watch.observation.messaged, changes.messages)
        for watch, changes in parts:
            if changes.removed:
                _tell(watch, watch.observation.removed, changes.removed)

    def _run_one(self, watch: Watch, changes: Changes) -> None:
        """As most are: one pattern."""
        if not watch.live:
            return
        observation = watch.observation
        if changes.added and watch is observation.watch:
            _tell(watch, observation.added, changes.added)
        if changes.messages and watch is observation.watch:
            _tell(watch, observation.messaged, changes.messages)
        if changes.removed:
            _tell(watch, observation.removed, changes.removed)

    def __str__(self) -> str:
        return f"epoch {self.epoch} of {self.home.name}"


def _tell(watch: Watch, handler: Handler | None, rows: Sequence[Captures]) -> None:
    """Calls a handler with each row."""
    if handler is None:
        return
    observation = watch.observation
    observation.hearing = watch
    turn = observation.context()
    for row in rows:
        handler(turn, *row)


class Call(Event):
    """A function to be called in a facet, if that still lives: a boot, a timer, an entry from outside."""

    __slots__ = ("args", "facet", "function", "what")

    def __init__(self, facet: Facet, what: str, function: Handler, *args: object) -> None:
        super().__init__(facet.actor, facet.actor.engine.turn)
        self.facet = facet
        self.what = what
        self.function = function
        self.args = args

    def run(self) -> None:
        """Calls it."""
        if not self.facet.ended:
            self.function(self.actor.engine.enter(self.facet), *self.args)
            self.actor.engine.draft.touched[self.facet] = None

    def __str__(self) -> str:
        return self.what
