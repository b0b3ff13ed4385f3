"""Actors: an actor, its facets, its events, and what a running turn collects for it.

An actor has facets and gets events, a facet belongs to an actor, and a turn collects effects of facets.
These classes refer to each other both ways, so they are one file, with the state of the engine that they use
(``ActorRuntime``).  They only record state: ``engine`` runs turns and ends them.  What asserts and observes
for a facet is in ``endpoints``, its fields are in ``fields``.  Timers read no clock: ``due`` returns the
timers that are due at a given time, ``next`` the time of the next one.

Always: every change of actors to a space goes through ``commit`` and ``end`` of an ``ActorSpace``; the claims
of an actor end with it; a timer ends with its facet, and a repeating one keeps to multiples of its period; a
facet is in the list of its parent while it lives; events of one actor are handled in the order in which they
were queued; nothing in the effects of a turn has changed anything outside of its actor, and a turn that
raises drops them whole.
"""

from __future__ import annotations

import enum
import heapq
import math
from abc import abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import copy_context
from itertools import count
from typing import Any, Final, Self, TypeAlias

from dataspace.actors.engine.handlers import checked_name
from dataspace.errors import ActorCrashed
from dataspace.kernel.actions import ASSERT, REPLACE, RETRACT, Action
from dataspace.kernel.space import Space
from dataspace.steps import Steps
from index.errors import UsageError
from index.values.values import Value

Handler: TypeAlias = Callable[..., object]
AsyncFunction: TypeAlias = Callable[..., Awaitable[object]]

FACETS: Final = 100_000
"""Facets that an actor may have; an actor that leaks facets crashes, and the others go on."""


Commit: TypeAlias = Callable[[str, Sequence[Action], int], object]
End: TypeAlias = Callable[[str], None]


class ActorSpace:
    """One space, and how turns are committed to it; a daemon commits through its log."""

    __slots__ = ("commit", "depth", "end", "name", "space", "term")

    def __init__(self, space: Space, wall: Callable[[], int], commit: Commit | None, end: End | None) -> None:
        self.space = space
        self.name = checked_name(space.name, "a space")
        self.depth = 0
        """How many layers lie between this space and the outermost one."""
        self.term = 0
        """The term of the daemon that leads the outermost one; 0 where no daemon hosts the actors."""
        self.commit: Commit = commit or space.act
        """Commits the actions of an owner; the time is in microseconds since 1970 UTC."""
        self.end: End = end or (lambda owner: (space.end((owner,), wall()), None)[1])


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
        self.delivery: ActorEvent | None = None
        """The event of the newest epoch, while it waits."""
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
        self.endpoints: dict[Endpoint, None] = {}
        self.resources: dict[FacetResource, None] | None = None
        self.computations: list[Dependent] | None = None
        self.on_stop: deque[Handler] | None = None
        self.thens: list[Handler] | None = None
        self.preventers = 0
        self.stopping = False
        self.ended = False
        self.turn: Context
        """What its handlers get, until it ends."""
        if parent is not None:
            parent.children[self] = None

    @property
    def is_inert(self) -> bool:
        """True if nothing can happen in it any more."""
        return not (self.endpoints or self.children or self.resources or self.preventers)

    def check_running(self) -> None:
        """Raises ``UsageError`` unless a turn of its actor runs."""
        actor = self.actor
        running = actor.engine.running
        if running is not actor:
            used = f"a turn of {running.name}" if running is not None else "no turn; enter by external"
            raise UsageError(f"this turn is of actor {actor.name}, used in {used}")

    def clear(self) -> None:
        """Drops what it has, once it has ended, so that it is in no cycle of references.

        The facets of a large turn would else stay until the collector has gone through all objects, which a
        daemon does rarely.
        """
        del self.turn
        self.resources = self.computations = self.on_stop = self.thens = None

    def encloses(self, inner: Facet | None) -> bool:
        """True if another facet is this one or below it; O(depth)."""
        while inner is not None:
            if inner is self:
                return True
            inner = inner.parent
        return False

    def own(self, resource: FacetResource) -> None:
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


class Context:
    """One facet and one space: what the handlers of the facet get, as a ``Turn``."""

    __slots__ = ("facet", "home")

    def __init__(self, facet: Facet, home: ActorSpace) -> None:
        self.facet = facet
        self.home = home

    def at(self, home: ActorSpace) -> Self:
        """Returns the turn of the same facet for another space."""
        return self.__class__(self.facet, home)

    def check_running(self) -> None:
        """Raises ``UsageError`` unless a turn of this actor runs."""
        self.facet.check_running()


# -- what belongs to a facet ---------------------------------------------------------------------------


class FacetResource:
    """Something that keeps a facet from being inert and ends with it: a task, a timer, a link."""

    __slots__ = ()

    def close(self) -> None:
        """Ends it: the facet has ended."""


class Dependent:
    """A computation, as fields, facets and turns see it: it runs again when a field that it read changes."""

    __slots__ = ("facet", "live", "name", "reads")

    def __init__(self, facet: Facet, name: str) -> None:
        self.facet = facet
        self.name = name
        self.reads: dict[Any, None] = {}
        """The fields that it read when it last ran."""
        self.live = True

    @abstractmethod
    def damage(self) -> None:
        """Marks it to run again before the turn commits: a field that it read has changed."""

    @abstractmethod
    def repair(self) -> None:
        """Runs it again, unless it has ended."""

    @abstractmethod
    def end(self) -> None:
        """Ends it; the caller has checked that a turn of its actor runs."""


class NoValue(enum.Enum):
    """Stands for no fact and no pattern; ``None`` is a value."""

    NO_VALUE = "no value"


NO_VALUE: Final = NoValue.NO_VALUE


class Endpoint:
    """One fact that a facet claims in a space, or none for the moment."""

    __slots__ = ("computation", "facet", "handle", "home")

    def __init__(self, facet: Facet, home: ActorSpace) -> None:
        self.facet = facet
        self.home = home
        self.handle: int | None = None
        self.computation: Dependent | None = None
        facet.endpoints[self] = None

    def claim(self, value: Value | NoValue) -> None:
        """Claims a fact in place of the one before, or none; observers see no gap."""
        actor, before = self.facet.actor, self.handle
        if value is NO_VALUE:
            if before is not None:
                actor.act(self.home, (RETRACT, before))
            self.handle = None
            return
        self.handle = actor.next_handle()
        if before is None:
            actor.act(self.home, (ASSERT, self.handle, value))
        else:
            actor.act(self.home, (REPLACE, before, self.handle, value))

    def close(self) -> None:
        """Ends it, in a turn of its actor, unless it has ended.  ``UsageError`` elsewhere."""
        facet = self.facet
        facet.check_running()
        if self in facet.endpoints:
            self.end()
            facet.actor.engine.effects.touched[facet] = None  # which may have nothing left to do

    def end(self) -> None:
        """Ends it; the caller has checked that it has not ended."""
        if self.computation is not None:
            self.computation.end()
        if self.handle is not None:
            self.claim(NO_VALUE)
        self.facet.endpoints.pop(self, None)

    def _check(self) -> None:
        """Raises ``UsageError`` unless a turn of its actor runs and it has not ended."""
        self.facet.check_running()
        if self not in self.facet.endpoints:
            raise UsageError(f"an endpoint of facet {self.facet} of actor {self.facet.actor.name} has ended")


class Timer(FacetResource):
    """One timer; ``period`` is in seconds, None for once."""

    __slots__ = ("at", "closed", "facet", "function", "period", "timers")

    def __init__(
        self, timers: Timers, facet: Facet, at: float, period: float | None, function: Handler
    ) -> None:
        self.timers = timers
        self.facet = facet
        self.at = at
        self.period = period
        self.function = function
        self.closed = False

    def fire(self) -> None:
        """Queues a call of its function, unless it is closed; adds it again if it repeats."""
        if self.closed:
            return
        engine = self.facet.actor.engine
        if self.period is None:
            function = self.function
            self.close()
            engine.enqueue(Call(self.facet, "timer", self._last, function))
        else:
            engine.enqueue(Call(self.facet, "timer", self.function))
            now = engine.clock()
            self.at += self.period * max(1, -(-(now - self.at) // self.period))
            self.timers.add(self)

    def _last(self, turn: object, function: Handler) -> None:
        self.facet.release(self)
        function(turn)

    def close(self) -> None:
        """Ends it: it does not fire any more."""
        if not self.closed:
            self.closed = True
            self.function = _nothing  # which has what its facet had
            self.timers.note_closed()


def _nothing(_turn: object) -> None:
    """The function of a timer that is closed."""


FEW: Final = 64


class Timers:
    """All timers of an engine, the next one first.

    Always: at most half of the timers are closed, or ``FEW``.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = count()
        self._closed = 0

    def note_closed(self) -> None:
        """Notes that a timer was closed, and removes all such where they are most; O(1) on average."""
        self._closed += 1
        if self._closed > max(FEW, len(self._heap) // 2):
            self._heap = [entry for entry in self._heap if not entry[2].closed]
            heapq.heapify(self._heap)
            self._closed = 0

    def add(self, timer: Timer) -> None:
        """Adds a timer; O(log timers)."""
        heapq.heappush(self._heap, (timer.at, next(self._order), timer))

    def due(self, now: float) -> list[Timer]:
        """Removes the timers that are due and returns them in order of time."""
        due = []
        while self._heap and self._heap[0][0] <= now:
            due.append(heapq.heappop(self._heap)[2])
        return due

    @property
    def next(self) -> float | None:
        """When the next one is due, None if none waits."""
        while self._heap and self._heap[0][2].closed:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None


# -- events -------------------------------------------------------------------------------------------


class ActorEvent:
    """What an actor handles in one turn: a ``Delivery`` of an epoch, or a ``Call``."""

    __slots__ = ("actor", "cause")

    def __init__(self, actor: Actor, cause: int = 0) -> None:
        self.actor = actor
        self.cause = cause
        """The number of the turn that caused it, 0 if none did."""

    @abstractmethod
    def run(self) -> Steps[None] | None:
        """Handles it, within the turn; returns the steps of that where it is much."""

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
        self.opened: list[Callable[[], object]] = []
        """Functions that register observers of patterns with their spaces, if they still live."""
        self.closed: list[Callable[[], object]] = []
        """Functions that remove observers of patterns from their spaces."""
        self.spawns: list[Spawn] = []
        self.calls: list[ActorEvent] = []
        self.starts: list[Callable[[], object]] = []
        """Functions to be called after the commit: they start timers and tasks."""
        self.ended: list[FacetResource] = []
        self.scripts: list[tuple[Facet, Handler]] = []
        self.stopping: list[Facet] = []
        self.hooks: list[tuple[Context, Handler]] = []
        self.damaged: dict[Dependent, None] = {}
        """Computations that read a changed field."""
        self.stale: dict[Dependent, None] = {}
        """Computations of derived fields that read a changed field."""
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


StartTask: TypeAlias = Callable[[Facet, AsyncFunction, tuple[object, ...], bool], FacetResource]
"""Starts a linked task of a facet when the running turn has committed; True keeps the facet after its end."""


# -- what runs them -----------------------------------------------------------------------------------


class ActorRuntime:
    """The state of an engine that actors, facets, fields and turns use; ``Engine`` runs turns with it.

    ``clock`` gives seconds for timers, ``wall`` microseconds since 1970 UTC for epochs, and ``context`` is
    the class of what handlers get.
    """

    def __init__(self, clock: Callable[[], float], wall: Callable[[], int], context: type[Context]) -> None:
        self.clock = clock
        self.wall = wall
        self.context = copy_context()
        """The usual context variables; handlers that are made under others run under those."""
        self.timers = Timers()
        self.actors: dict[int, Actor] = {}
        self.start_task: StartTask | None = None
        """Runs linked tasks, if a shell does."""
        self.on_ready: Callable[[], None] | None = None
        self.turns = 0
        """Turns run so far; the number of the running one."""
        self.turn = 0
        """The number of the running turn; 0 between turns."""
        self.running: Actor | None = None
        self.scope: Facet | None = None
        """The facet whose code runs; its fields and the fields of the facets around it may be used."""
        self.computation: Dependent | None = None
        """The computation that runs and depends on the fields that it reads."""
        self.actions: list[Action] = []
        """What the running turn does in its actor's own space; empty between turns."""
        self._effects: Effects | None = None
        self._queue: deque[ActorEvent] = deque()
        self._until: float | None = None
        """When the slice ends."""
        self.rested = 0.0
        """Seconds in which no event was queued, up to the last event that came then."""
        self._rests_since = clock()
        self._numbered = 0
        self._raised: tuple[BaseException | None, Facet | None] = (None, None)
        self._context: type[Context] = context

    def home(self, space: Space | str, *, commit: Commit | None = None, end: End | None = None) -> ActorSpace:
        """Returns a space for actors: a new one by name, or an existing one with its way of committing."""
        return ActorSpace(
            space if isinstance(space, Space) else Space(checked_name(space, "a space")),
            self.wall,
            commit,
            end,
        )

    def make(self, name: str, home: ActorSpace, *, daemon: bool, program: str = "") -> Actor:
        """Returns an actor that is not started."""
        self._numbered += 1
        return Actor(self, self._numbered, name, home, daemon=daemon, program=program)

    def open_facet(self, actor: Actor, parent: Facet | None, name: str = "") -> Facet:
        """Returns a new facet with the turn that its handlers get."""
        facet = Facet(actor, parent, name)
        facet.turn = self._context(facet, actor.home)
        return facet

    def end(self, actor: Actor, why: str = "ended from outside") -> None:
        """Queues the orderly end of an actor, in a turn of its own; does nothing if it has ended."""
        if actor.number in self.actors:
            self.enqueue(Call(actor.root, why, lambda turn: turn.stop_actor()))

    def enqueue(self, event: ActorEvent) -> None:
        """Queues an event for a turn of its own."""
        self._queue.append(event)
        if len(self._queue) == 1:
            if not self.turn:
                self._note_rest()
            if self.on_ready is not None:
                self.on_ready()

    def _note_rest(self) -> None:
        """Counts the time until now in which no event was queued."""
        now = self.clock()
        if now > self._rests_since:
            self.rested += now - self._rests_since
        self._rests_since = math.inf  # until ``run`` has no more to do

    @property
    def effects(self) -> Effects:
        """What the running turn must still do besides its actions; made on first use, in most turns never."""
        made = self._effects
        if made is None:
            made = self._effects = Effects(self.actions)
        return made

    def enter(self, facet: Facet) -> Context:
        """Makes a facet the running scope; returns its context."""
        self.scope = facet
        return facet.turn

    def note_raised(self, error: BaseException, facet: Facet) -> None:
        """Records in which facet an error was raised, before facets around it pass it on."""
        if self._raised[0] is not error:
            self._raised = (error, facet)
