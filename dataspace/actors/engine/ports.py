"""Ports: what the parts of the engine require of each other.

Actors, facets, fields and turns refer to one another.  Each lower part names here, as a protocol, only what
it uses of a higher one, so that imports go one way.  ``ActorRuntime`` in ``actors`` extends ``Runtime`` by
what names actors and facets.

Always: nothing here imports another part of the engine except spaces.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from dataspace.actors.engine.spaces import ActorSpace
    from dataspace.kernel.changes import Changes

Handler: TypeAlias = Callable[..., object]
AsyncFunction: TypeAlias = Callable[..., Awaitable[object]]


class Context(Protocol):
    """What a handler gets as its first argument (``Turn``), as far as endpoints and facets use it."""

    @property
    def home(self) -> ActorSpace:
        """The space that it asserts and observes in."""

    def at(self, home: ActorSpace) -> Context:
        """Returns the context of the same facet for another space."""

    def check_running(self) -> None:
        """Raises ``UsageError`` unless a turn of its actor runs."""


class Owned(Protocol):
    """An endpoint or a computation, as the facet sees it that owns it."""

    def end(self) -> None:
        """Ends it; its facet ends, or a turn of its actor has closed it."""


class Registration(Protocol):
    """An observer of a pattern, as a turn sees it that has yet to commit."""

    @property
    def live(self) -> bool:
        """True until it is closed."""

    def register(self) -> None:
        """Registers it with its space, and offers it what matches now."""

    def unregister(self) -> None:
        """Removes it from its space; does nothing if it is not registered."""


class OpenDelivery(Protocol):
    """The delivery that collects the changes of one epoch for an actor."""

    @property
    def epoch(self) -> int:
        """The number of the epoch."""

    @property
    def home(self) -> ActorSpace:
        """The space whose epoch it is."""

    @property
    def parts(self) -> list[tuple[Any, Changes]]:
        """Observers with the changes that concern them."""


class Alarm(Protocol):
    """A timer, as the queue of timers sees it."""

    @property
    def at(self) -> float:
        """When it is due, by the clock of the engine."""

    @property
    def closed(self) -> bool:
        """True if it must not fire any more."""

    def fire(self) -> None:
        """Queues its event."""


class TimerQueue(Protocol):
    """Where timers wait until they are due."""

    def add(self, timer: Alarm) -> None:
        """Adds a timer."""


class Owner(Protocol):
    """An actor, as its fields see it."""

    @property
    def name(self) -> str:
        """Its name, for messages."""

    @property
    def engine(self) -> Runtime:
        """What runs it."""


class Scope(Protocol):
    """A facet, as its fields see it."""

    @property
    def actor(self) -> Owner:
        """The actor that it belongs to."""

    @property
    def parent(self) -> Scope | None:
        """The facet around it; None for the root."""

    @property
    def turn(self) -> Context:
        """What its handlers get."""

    @property
    def ended(self) -> bool:
        """True once it has stopped, or its actor has crashed."""

    def encloses(self, inner: Scope | None) -> bool:
        """True if another facet is this one or below it."""


class Dependent(Protocol):
    """A computation, as the fields see it that it reads."""

    @property
    def name(self) -> str:
        """Its name, for messages."""

    @property
    def reads(self) -> MutableMapping[Any, None]:
        """The fields that it read when it last ran."""

    def damage(self) -> None:
        """Marks it: a field that it read has changed."""


class FieldEffects(Protocol):
    """The effects that must run again before the turn commits."""

    @property
    def damaged(self) -> MutableMapping[Any, None]:
        """Computations that read a changed field."""

    @property
    def stale(self) -> MutableMapping[Any, None]:
        """Derived fields that read a changed field."""


class Runtime(Protocol):
    """An engine, as fields see it."""

    turns: int
    """Turns run so far; the number of the running one."""
    scope: Scope | None
    """The facet whose code runs."""
    computation: Dependent | None
    """The computation that runs and depends on the fields that it reads."""

    @property
    def running(self) -> Owner | None:
        """The actor whose turn runs; None between turns."""

    @property
    def effects(self) -> FieldEffects:
        """What the running turn has still to do."""

    def note_raised(self, error: BaseException, facet: Scope) -> None:
        """Records in which facet an error was raised first."""
