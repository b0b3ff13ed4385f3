"""Facets: the tree of what an actor is engaged in, and what each of them owns.

An *assertion* is an endpoint that asserts one fact; a *pattern watch* is one that calls handlers for what
matches a pattern, through a ``PatternObserver`` that it registers with the space.  These classes only record
state: what they change in a space is added to the effects of the running turn.

Always: a facet is in the list of its parent while it lives; an endpoint has a handle exactly while its fact
is, or in this turn becomes, claimed.
"""

from __future__ import annotations

import enum
from bisect import insort_right
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from dataspace.actors.engine.contexts import check_takes, checked_name
from dataspace.actors.engine.events import Delivery
from dataspace.actors.engine.fields import Computation
from dataspace.kernel.actions import ASSERT, REPLACE, RETRACT
from dataspace.kernel.changes import Changes
from index.errors import UsageError
from index.patterns.patterns import Pattern, observe, skeleton
from index.values.values import Value, same

if TYPE_CHECKING:
    from dataspace.actors.engine.actors import Actor
    from dataspace.actors.engine.spaces import ActorSpace
    from dataspace.actors.engine.turns import Turn
    from dataspace.kernel.interests import Interest

Handler = Callable[..., object]
AsyncFunction = Callable[..., Awaitable[object]]


class Facet:
    """One conversation of an actor: endpoints, child facets, tasks, timers and what to do at its end."""

    __slots__ = (
        "actor", "blocks", "children", "ended", "endpoints", "resources", "name", "number", "on_stop",
        "parent", "preventers", "stopping", "thens", "turn",
    )  # fmt: skip

    def __init__(self, actor: Actor, parent: Facet | None, name: str = "") -> None:
        self.actor = actor
        self.parent = parent
        self.number = actor.next_facet()
        self.name = name if name.__class__ is str and name.isascii() else checked_name(name, "a facet")
        self.children: dict[Facet, None] = {}
        self.endpoints: dict[Endpoint, None] = {}
        self.resources: dict[FacetResource, None] | None = None
        self.blocks: list[Computation] | None = None
        self.on_stop: deque[Handler] | None = None
        self.thens: list[Handler] | None = None
        self.preventers = 0
        self.stopping = False
        self.ended = False
        self.turn: Turn
        if parent is not None:
            parent.children[self] = None

    @property
    def is_inert(self) -> bool:
        """Whether nothing can happen in it any more."""
        return not (self.endpoints or self.children or self.resources or self.preventers)

    def encloses(self, inner: Facet | None) -> bool:
        """Whether another facet is this one or within it; O(depth)."""
        while inner is not None:
            if inner is self:
                return True
            inner = inner.parent
        return False

    def keep(self, resource: FacetResource) -> None:
        """Owns a task, a timer or a link."""
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
        """The facet has ended."""


class NoValue(enum.Enum):
    """What is said, or asked for, by what says or asks for nothing now; ``None`` is a value."""

    NO_VALUE = "nothing"


NO_VALUE: Final = NoValue.NO_VALUE


class Endpoint:
    """What a facet says to a space for as long as it lives."""

    __slots__ = ("block", "facet", "handle", "home")

    def __init__(self, facet: Facet, home: ActorSpace) -> None:
        self.facet = facet
        self.home = home
        self.handle: int | None = None
        self.block: Computation | None = None
        facet.endpoints[self] = None

    def say(self, value: Value | NoValue) -> None:
        """Claims a fact in the place of the one before, or none; no blink."""
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
        """Ends it, in a turn of its actor; nothing if it has ended.  ``UsageError`` elsewhere."""
        facet = self.facet
        facet.turn.check_running()
        if self in facet.endpoints:
            self.end()
            facet.actor.engine.effects.touched[facet] = None  # which may have nothing left to do

    def end(self) -> None:
        """The same, where it is known to be there."""
        if self.block is not None:
            self.block.end()
        if self.handle is not None:
            self.say(NO_VALUE)
        self.facet.endpoints.pop(self, None)

    def _check(self) -> None:
        """Raises ``UsageError`` unless a turn of its actor runs and it is there."""
        self.facet.turn.check_running()
        if self not in self.facet.endpoints:
            raise UsageError(f"an endpoint of facet {self.facet} of actor {self.facet.actor.name} has ended")


class Assertion(Endpoint):
    """Keeps one fact up, or none while its value is ``NO_VALUE``."""

    __slots__ = ("value",)

    def __init__(self, facet: Facet, home: ActorSpace) -> None:
        super().__init__(facet, home)
        self.value: Value | NoValue = NO_VALUE

    def set(self, value: Value | NoValue) -> None:
        """Claims another fact; nothing if it is the same.  ``UsageError`` outside of its actor's turns."""
        known, facet = self.value, self.facet
        actor = facet.actor
        if actor.engine.running is not actor or self not in facet.endpoints:
            self._check()
        if known is value or (known is not NO_VALUE and value is not NO_VALUE and same(known, value)):
            return
        self.value = value
        self.say(value)


class PatternObserver:
    """The observer of one pattern for one observation."""

    __slots__ = ("interest", "live", "watch", "pattern")

    def __init__(self, watch: PatternWatch, pattern: Pattern) -> None:
        self.watch = watch
        self.pattern = pattern
        self.interest: Interest | None = None
        self.live = True

    def offer(self, changes: Changes) -> None:
        """One epoch's changes, as the space tells them: into the delivery of this epoch to the actor."""
        watch = self.watch
        if (
            (changes.added and watch.added is not None)
            or (changes.messages and watch.messaged is not None)
            or (changes.removed and watch.removed is not None)
        ):
            actor, home, epoch = watch.facet.actor, watch.home, changes.number
            delivery = actor.delivery
            if delivery is None or delivery.epoch != epoch or delivery.home is not home:
                delivery = actor.delivery = Delivery(actor, home, epoch)
                actor.engine.enqueue(delivery)
            delivery.parts.append((self, changes))


class Rank(enum.IntEnum):
    """Which handlers of one event come first, among those of additions, of messages, and of removals."""

    QUERY = 0
    """What keeps a field in step, so that all others find it so."""
    QUERY_HANDLER = 1
    """What is told of that."""
    NORMAL = 2


class RankedObserver(PatternObserver):
    """One whose rank is above the normal one: it comes before those of a lower one."""

    __slots__ = ()

    def offer(self, changes: Changes) -> None:
        """Into the delivery, before what ranks lower; O(log observations that it concerns)."""
        super().offer(changes)
        delivery = self.watch.facet.actor.delivery
        if delivery is not None and delivery.parts[-1] == (self, changes):
            part = delivery.parts.pop()
            insort_right(delivery.parts, part, key=_rank)


def _rank(part: tuple[PatternObserver, Changes]) -> Rank:
    return part[0].watch.rank


class PatternWatch(Endpoint):
    """Hears of a pattern: what appears, passes and goes.  Each may be None."""

    __slots__ = (
        "added",
        "hearing",
        "lingers",
        "messaged",
        "moved",
        "old",
        "quiet",
        "rank",
        "removed",
        "told",
        "turn",
        "observer",
    )

    def __init__(
        self, facet: Facet, home: ActorSpace, *, quiet: bool = False, rank: Rank = Rank.NORMAL
    ) -> None:
        super().__init__(facet, home)
        self.rank = rank
        self.turn = facet.turn if facet.turn.home is home else facet.turn.at(home)
        """What its handlers get: they speak to the space in which they hear."""
        self.added: Handler | None = None
        self.messaged: Handler | None = None
        self.removed: Handler | None = None
        self.moved: Handler | None = None
        self.lingers: Callable[[PatternObserver], bool] | None = None
        """Whether an old pattern is to be heard of still: only of what goes."""
        self.quiet = quiet
        self.observer: PatternObserver | None = None
        self.hearing: PatternObserver | None = None
        """Whose rows the handlers are being called with."""
        self.told: tuple[Handler, ...] = ()
        """What is called in the end, and has to take what a pattern captures."""
        self.old: dict[PatternObserver, None] = {}
        """The patterns before, as far as they linger."""

    def set(self, pattern: Pattern | NoValue) -> None:
        """Hears of another pattern from this turn's commit on, or of none; nothing if it is the same.

        ``UsageError`` outside of its actor's turns, and if its handlers cannot take what it captures.
        """
        before, facet = self.observer, self.facet
        actor = facet.actor
        if actor.engine.running is not actor or self not in facet.endpoints:
            self._check()
        if before is not None and pattern is not NO_VALUE and same(before.pattern, pattern):
            return
        effects = self.facet.actor.engine.effects
        if before is not None:
            if self.lingers is None or not self.lingers(before):
                before.live = False
                effects.closed.append(before)
            else:
                self.old[before] = None
            if self.moved is not None:
                self.moved(self.facet.turn)
        if pattern is not NO_VALUE:  # what is no pattern fails this turn, and not the engine later
            captures = len(skeleton(pattern).captures)
            for handler in self.told:
                check_takes(handler, captures, pattern)
        self.observer = None if pattern is NO_VALUE else self._lingering(pattern) or self._watch_of(pattern)
        if self.observer is not None:
            effects.opened.append(self.observer)
        if not self.quiet:
            self.say(NO_VALUE if pattern is NO_VALUE else observe(pattern))

    def _watch_of(self, pattern: Pattern) -> PatternObserver:
        return (PatternObserver if self.rank is Rank.NORMAL else RankedObserver)(self, pattern)

    def _lingering(self, pattern: Pattern) -> PatternObserver | None:
        """The observer of a pattern that was left and lingers, if there is one; it does no more."""
        for observer in self.old:
            if same(observer.pattern, pattern):
                del self.old[observer]
                return observer
        return None

    def end(self) -> None:
        """Ends it: it hears nothing more."""
        for observer in self.observers():
            observer.live = False
            self.facet.actor.engine.effects.closed.append(observer)
        super().end()

    def observers(self) -> list[PatternObserver]:
        """All that are to be told."""
        return [*self.old, *(() if self.observer is None else (self.observer,))]
