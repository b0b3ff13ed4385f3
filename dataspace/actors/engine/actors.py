"""Actors: an actor, its facets, its events, and what a running turn collects for it.

An actor has facets and gets events, a facet belongs to an actor, and a turn collects effects of facets.
These classes refer to each other both ways, so they are one file.  They only record state: ``engine`` runs
turns, ``settling`` ends them.  What asserts and observes for a facet is in ``endpoints``.

Always: the claims of an actor end with it; a facet is in the list of its parent while it lives; events of
one actor are handled in the order in which they were queued; nothing in the effects of a turn has changed
anything outside of its actor, and a turn that raises drops them whole.
"""

from __future__ import annotations

import contextvars
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from dataspace.actors.engine.handlers import checked_name
from dataspace.actors.engine.ports import AsyncFunction, Context, Handler, Runtime, Scope
from dataspace.actors.engine.spaces import ActorSpace
from dataspace.errors import ActorCrashed
from dataspace.kernel.actions import Action
from index.errors import UsageError
from index.values.values import Value

if TYPE_CHECKING:
    from dataspace.actors.engine.fields import Computation, DerivedField
    from dataspace.actors.engine.ports import OpenDelivery, Owned, Registration, TimerQueue

FACETS: Final = 100_000
"""Facets that an actor may have; an actor that leaks facets crashes, and the others go on."""


class Actor:
    """One actor.  ``name`` is for messages; ``owner`` is the owner of its claims."""

    __slots__ = (
        "_handle", "claims", "crash", "daemon", "delivery", "ended", "engine", "exits", "facets", "home",
        "inner", "name", "number", "opened", "owner", "program", "root", "touched", "turns",
    )  # fmt: skip

    def __init__(
        self,
        engine: ActorRuntime,
        number: int,
        name: str,
        home: ActorSpace,
        *,
        daemon: bool,
        program: str = "",
    ) -> None:
        self.engine = engine
        self.number = number
        self.name = checked_name(name, "an actor") or f"actor-{number}"
        self.program = program or self.name
        """The name of the first actor that it descends from."""
        self.owner = f"actor:{number}"
        self.home = home
        self.daemon = daemon
        self.claims: dict[int, tuple[ActorSpace, Value]] = {}
        """Ad-hoc claims, which belong to no facet."""
        self.exits: list[Callable[[ActorCrashed | None], object]] = []
        self.touched: dict[ActorSpace, None] = {}
        """The other spaces in which it has claimed something."""
        self.inner: ActorSpace | None = None
        self.delivery: OpenDelivery | None = None
        self.crash: ActorCrashed | None = None
        self.ended = False
        self.turns = 0
        self.facets = 0
        self._handle = 0
        self.opened = 0
        """How many facets it has ever had."""
        self.root = engine.open_facet(self, None, "root")

    def next_handle(self) -> int:
        """Returns a handle that was never used."""
        self._handle += 1
        return self._handle

    def next_facet(self) -> int:
        """Returns the number of a new facet; ``UsageError`` if there are too many facets."""
        self.facets += 1
        if self.facets > FACETS:
            raise UsageError(f"actor {self.name} has {self.facets} facets, limit {FACETS}")
        self.opened += 1
        return self.opened

    def act(self, home: ActorSpace, action: Action) -> None:
        """Queues an action of the running turn."""
        if home is self.home:
            self.engine.actions.append(action)
        else:
            self.engine.effects.elsewhere.setdefault(home, []).append(action)

    def __repr__(self) -> str:
        return f"<actor {self.name}>"


class Facet:
    """One conversation of an actor: endpoints, child facets, tasks, timers and what to do at its end."""

    __slots__ = (
        "actor", "children", "computations", "ended", "endpoints", "name", "number", "on_stop", "parent",
        "preventers", "resources", "stopping", "thens", "turn",
    )  # fmt: skip

    def __init__(self, actor: Actor, parent: Facet | None, name: str = "") -> None:
        self.actor = actor
        self.parent = parent
        self.number = actor.next_facet()
        self.name = name if name.__class__ is str and name.isascii() else checked_name(name, "a facet")
        self.children: dict[Facet, None] = {}
        self.endpoints: dict[Owned, None] = {}
        self.resources: dict[FacetResource, None] | None = None
        self.computations: list[Owned] | None = None
        self.on_stop: deque[Handler] | None = None
        self.thens: list[Handler] | None = None
        self.preventers = 0
        self.stopping = False
        self.ended = False
        self.turn: Context
        if parent is not None:
            parent.children[self] = None

    @property
    def is_inert(self) -> bool:
        """True if nothing can happen in it any more."""
        return not (self.endpoints or self.children or self.resources or self.preventers)

    def encloses(self, inner: Scope | None) -> bool:
        """True if another facet is this one or below it; O(depth)."""
        while inner is not None:
            if inner is self:
                return True
            inner = inner.parent
        return False

    def keep(self, resource: FacetResource) -> None:
        """Owns a task, a timer or a link from now on."""
        if self.resources is None:
            self.resources = {}
        self.resources[resource] = None

    def release(self, resource: FacetResource) -> None:
        """Owns it no longer."""
        if self.resources is not None:
            self.resources.pop(resource, None)

    def __str__(self) -> str:
        return self.name or str(self.number)


class FacetResource:
    """Something that keeps a facet from being inert and ends with it: a task, a timer, a link."""

    __slots__ = ()

    def close(self) -> None:
        """Ends it: the facet has ended."""


# -- events -------------------------------------------------------------------------------------------


class ActorEvent:
    """What an actor handles in one turn: a ``Delivery`` of an epoch, or a ``Call``."""

    __slots__ = ("actor", "cause")

    def __init__(self, actor: Actor, cause: int = 0) -> None:
        self.actor = actor
        self.cause = cause
        """The number of the turn that caused it, 0 if none did."""

    @abstractmethod
    def run(self) -> None:
        """Handles it, within the turn."""

    @abstractmethod
    def __str__(self) -> str:
        """Returns what it is, for traces and errors."""


class Call(ActorEvent):
    """A function to be called in a facet, if that still lives: a boot, a timer, an entry from outside."""

    __slots__ = ("args", "facet", "function", "what")

    def __init__(self, facet: Facet, what: str, function: Handler, *args: object) -> None:
        super().__init__(facet.actor, facet.actor.engine.turn)
        self.facet = facet
        self.what = what
        self.function = function
        self.args = args

    def run(self) -> None:
        """Calls the function."""
        if not self.facet.ended:
            self.function(self.actor.engine.enter(self.facet), *self.args)
            self.actor.engine.effects.touched[self.facet] = None

    def __str__(self) -> str:
        return self.what


# -- effects of a turn --------------------------------------------------------------------------------


class Effects:
    """What the running turn must still do when its handlers have returned, or when it has committed."""

    __slots__ = (
        "actions", "calls", "closed", "damaged", "elsewhere", "ended", "hooks", "opened", "scripts", "spawns",
        "stale", "starts", "stopping", "touched", "undecorated",
    )  # fmt: skip

    def __init__(self, actions: list[Action]) -> None:
        self.actions = actions
        self.elsewhere: dict[ActorSpace, list[Action]] = {}
        """Actions in spaces other than the actor's."""
        self.opened: list[Registration] = []
        self.closed: list[Registration] = []
        self.spawns: list[Spawn] = []
        self.calls: list[ActorEvent] = []
        self.starts: list[Callable[[], object]] = []
        """Functions to be called after the commit: they start timers and tasks."""
        self.ended: list[FacetResource] = []
        self.scripts: list[tuple[Facet, Handler]] = []
        self.stopping: list[Facet] = []
        self.hooks: list[tuple[Facet, Handler]] = []
        self.damaged: dict[Computation, None] = {}
        self.stale: dict[DerivedField[object], None] = {}
        self.touched: dict[Facet, None] = {}
        """Facets that may have become inert."""
        self.undecorated: dict[object, str] | None = None
        """Decorators that were made and not used yet, with the verb that made each."""

    def check_decorated(self) -> None:
        """Raises ``UsageError`` if a decorator was made and decorates nothing."""
        for verb in (self.undecorated or {}).values():
            raise UsageError(
                f"turn.{verb} installs nothing by itself: write @turn.{verb}(…) above a function"
            )


class Spawn:
    """An actor to be started: it boots in a turn of its own once this turn has committed."""

    __slots__ = ("actor", "args", "boot", "initial")

    def __init__(self, actor: Actor, boot: Handler, args: tuple[object, ...], initial: list[Value]) -> None:
        self.actor = actor
        self.boot = boot
        self.args = args
        self.initial = initial


# -- what runs them -----------------------------------------------------------------------------------


class Tasks(Protocol):
    """Runs linked tasks, which the engine cannot do."""

    def start(
        self, facet: Facet, function: AsyncFunction, args: tuple[object, ...], *, keep: bool
    ) -> FacetResource:
        """Starts a task of a facet when the running turn has committed."""


class ActorRuntime(Runtime, Protocol):
    """An engine, as actors, facets and turns see it."""

    turn: int
    """The number of the running turn; 0 between turns."""
    actions: list[Action]
    """What the running turn does in the space of its actor."""

    @property
    def running(self) -> Actor | None:
        """The actor whose turn runs; None between turns."""

    @property
    def effects(self) -> Effects:
        """What the running turn must still do besides its actions."""

    @property
    def actors(self) -> Mapping[int, Actor]:
        """The actors that live, by number."""

    @property
    def clock(self) -> Callable[[], float]:
        """The clock of timers, in seconds."""

    @property
    def wall(self) -> Callable[[], int]:
        """The time in microseconds since 1970 UTC."""

    @property
    def context(self) -> contextvars.Context:
        """The context variables under which handlers run unless others were set."""

    @property
    def timers(self) -> TimerQueue:
        """Where timers wait."""

    @property
    def tasks(self) -> Tasks | None:
        """What runs linked tasks, if anything does."""

    def home(self, space: str) -> ActorSpace:
        """Returns a new space for actors."""

    def make(self, name: str, home: ActorSpace, *, daemon: bool, program: str = "") -> Actor:
        """Returns an actor that is not started."""

    def open_facet(self, actor: Actor, parent: Facet | None, name: str = "") -> Facet:
        """Returns a new facet with the context that its handlers get."""

    def enter(self, facet: Facet) -> Context:
        """Makes a facet the running scope; returns its context."""

    def enqueue(self, event: ActorEvent) -> None:
        """Queues an event for a turn of its own."""

    def end(self, actor: Actor, why: str) -> None:
        """Queues the orderly end of an actor; does nothing if it has ended."""
