"""Endpoints: what a facet asserts and observes in a space, for as long as it lives.

An *assertion* asserts one fact; a *pattern watch* calls handlers for what matches a pattern, through a
``PatternObserver`` that it registers with the space.  What an epoch means to all watches of one actor is one
``EventDelivery``.

Always: an endpoint has a handle exactly while its fact is, or in this turn becomes, claimed; a delivery calls
handlers of additions, then of messages, then of removals.
"""

from __future__ import annotations

import enum
from bisect import insort_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dataspace.actors.engine.actors import (
    NO_VALUE,
    Actor,
    ActorEvent,
    ActorSpace,
    Endpoint,
    Facet,
    Handler,
    NoValue,
)
from dataspace.actors.engine.handlers import check_takes
from dataspace.kernel.changes import Captures, Changes
from dataspace.steps import Steps
from index.patterns.patterns import Pattern, observe, skeleton
from index.values.values import Value, same

if TYPE_CHECKING:
    from dataspace.kernel.interests import Interest


class Assertion(Endpoint):
    """Asserts one fact, or none while its value is ``NO_VALUE``."""

    __slots__ = ("value",)

    def __init__(self, facet: Facet, home: ActorSpace) -> None:
        super().__init__(facet, home)
        self.value: Value | NoValue = NO_VALUE

    def set(self, value: Value | NoValue) -> None:
        """Claims another fact, unless it is the same.  ``UsageError`` outside of its actor's turns."""
        known, facet = self.value, self.facet
        actor = facet.actor
        if actor.engine.running is not actor or self not in facet.endpoints:
            self._check()
        if known is value or (known is not NO_VALUE and value is not NO_VALUE and same(known, value)):
            return
        self.value = value
        self.claim(value)


# -- observing ----------------------------------------------------------------------------------------


class Rank(enum.IntEnum):
    """The order of an event's handlers, among the handlers of additions, of messages, and of removals."""

    QUERY = 0
    """What keeps the field of a query up to date, so that all other handlers read its new value."""
    QUERY_HANDLER = 1
    """The callbacks of queries."""
    NORMAL = 2


class PatternObserver:
    """The observer of one pattern of a pattern watch."""

    __slots__ = ("interest", "live", "pattern", "watch")

    def __init__(self, watch: PatternWatch, pattern: Pattern) -> None:
        self.watch = watch
        self.pattern = pattern
        self.interest: Interest | None = None
        self.live = True

    def register(self) -> None:
        """Registers it with its space if it lives, and offers it what matches now."""
        if not self.live:
            return
        watch = self.watch
        space = watch.home.space
        self.interest = space.observe(self.pattern, self)
        if watch.added is not None:
            rows = space.matches(self.pattern)
            if rows:
                self.offer(Changes(space.epoch, space.time, rows))

    def unregister(self) -> None:
        """Removes it from its space; does nothing if it is not registered."""
        if self.interest is not None:
            self.watch.home.space.ignore(self.interest, self)
            self.interest = None
        watch = self.watch
        if watch.observer is self:  # else they refer to each other
            watch.observer = None
        if watch not in watch.facet.endpoints:
            watch.clear()

    def offer(self, changes: Changes) -> None:
        """Adds one epoch's changes to the delivery of that epoch to the actor."""
        watch = self.watch
        if (
            (changes.added and watch.added is not None)
            or (changes.messages and watch.messaged is not None)
            or (changes.removed and watch.removed is not None)
        ):
            actor, home, epoch = watch.facet.actor, watch.home, changes.number
            delivery = actor.delivery
            if type(delivery) is not EventDelivery or delivery.epoch != epoch or delivery.home is not home:
                made = actor.delivery = delivery = EventDelivery(actor, home, epoch)
                actor.engine.enqueue(made)
            delivery.parts.append((self, changes))


class RankedObserver(PatternObserver):
    """An observer whose rank is above the normal one: it comes before observers of a lower rank."""

    __slots__ = ()

    def offer(self, changes: Changes) -> None:
        """Adds changes to the delivery, before the changes of lower ranks; O(log observers in the
        delivery)."""
        super().offer(changes)
        delivery = self.watch.facet.actor.delivery
        if type(delivery) is EventDelivery and delivery.parts[-1] == (self, changes):
            part = delivery.parts.pop()
            insort_right(delivery.parts, part, key=_rank)


def _rank(part: tuple[PatternObserver, Changes]) -> Rank:
    return part[0].watch.rank


class PatternWatch(Endpoint):
    """Calls handlers for what matches a pattern: what appears, passes and goes.  Each may be None."""

    __slots__ = (
        "added", "checked", "lingers", "messaged", "moved", "observer", "old", "quiet", "rank", "removed",
        "reporting", "turn",
    )  # fmt: skip

    def __init__(
        self, facet: Facet, home: ActorSpace, *, quiet: bool = False, rank: Rank = Rank.NORMAL
    ) -> None:
        super().__init__(facet, home)
        self.rank = rank
        self.turn = facet.turn if facet.turn.home is home else facet.turn.at(home)
        """What its handlers get: they act in the space that they observe."""
        self.added: Handler | None = None
        self.messaged: Handler | None = None
        self.removed: Handler | None = None
        self.moved: Handler | None = None
        """Called when the pattern changes."""
        self.lingers: Callable[[PatternObserver], bool] | None = None
        """Returns True if a former pattern must still be observed, for removals only."""
        self.quiet = quiet
        self.observer: PatternObserver | None = None
        self.reporting: PatternObserver | None = None
        """The observer whose rows the handlers are being called with."""
        self.checked: tuple[Handler, ...] = ()
        """Handlers that must accept what a pattern captures."""
        self.old: dict[PatternObserver, None] = {}
        """The observers of former patterns, as long as they linger."""

    def set(self, pattern: Pattern | NoValue) -> None:
        """Observes another pattern from this turn's commit on, or none; does nothing if it is the same.

        ``UsageError`` outside of its actor's turns, and if its handlers cannot take what it captures.
        """
        before, facet = self.observer, self.facet
        actor = facet.actor
        if actor.engine.running is not actor or self not in facet.endpoints:
            self._check()
        if before is not None and pattern is not NO_VALUE and same(before.pattern, pattern):
            return
        effects = actor.engine.effects
        if before is not None:
            if self.lingers is None or not self.lingers(before):
                before.live = False
                effects.closed.append(before.unregister)
            else:
                self.old[before] = None
            if self.moved is not None:
                self.moved(self.facet.turn)
        if pattern is not NO_VALUE:  # what is no pattern fails this turn, and not the engine later
            captures = len(skeleton(pattern).captures)
            for handler in self.checked:
                check_takes(handler, captures, pattern)
        self.observer = None
        if pattern is not NO_VALUE:
            self.observer = self._lingering(pattern) or self._observer_of(pattern)
            effects.opened.append(self.observer.register)
        if not self.quiet:
            self.claim(NO_VALUE if pattern is NO_VALUE else observe(pattern))

    def _observer_of(self, pattern: Pattern) -> PatternObserver:
        return (PatternObserver if self.rank is Rank.NORMAL else RankedObserver)(self, pattern)

    def _lingering(self, pattern: Pattern) -> PatternObserver | None:
        """Takes the observer of a former pattern, if it lingers, and returns it."""
        for observer in self.old:
            if same(observer.pattern, pattern):
                del self.old[observer]
                return observer
        return None

    def end(self) -> None:
        """Ends it: its handlers are not called any more."""
        for observer in self.observers():
            observer.live = False
            self.facet.actor.engine.effects.closed.append(observer.unregister)
        super().end()

    def clear(self) -> None:
        """Drops its handlers, once it has ended, so that it is in no cycle of references."""
        self.added = self.messaged = self.removed = self.moved = self.lingers = None
        self.reporting = self.observer = None

    def observers(self) -> list[PatternObserver]:
        """Returns the observers of former patterns and of the present one."""
        return [*self.old, *(() if self.observer is None else (self.observer,))]


# -- delivery -----------------------------------------------------------------------------------------


class EventDelivery(ActorEvent):
    """One epoch of one space, as far as it concerns an actor: additions, then messages, then removals."""

    __slots__ = ("epoch", "home", "parts")

    def __init__(self, actor: Actor, home: ActorSpace, epoch: int) -> None:
        self.actor = actor
        self.cause = actor.engine.turn
        self.home = home
        self.epoch = epoch
        self.parts: list[tuple[PatternObserver, Changes]] = []

    def run(self) -> Steps[None] | None:
        """Calls all handlers that match, even if an early one stops the facet of a later one."""
        if self.actor.delivery is self:
            self.actor.delivery = None
        observer, changes = self.parts[0]
        if len(self.parts) > 1 or len(changes.added) + len(changes.messages) + len(changes.removed) > 1:
            return self._steps()
        if observer.live:
            if changes.added and observer is observer.watch.observer:
                _handle(observer, observer.watch.added, changes.added)
            if changes.messages and observer is observer.watch.observer:
                _handle(observer, observer.watch.messaged, changes.messages)
            if changes.removed:
                _handle(observer, observer.watch.removed, changes.removed)
        return None

    def _steps(self) -> Steps[None]:
        """Does it in steps of one row."""
        parts = [part for part in self.parts if part[0].live]
        for observer, changes in parts:
            if changes.added and observer is observer.watch.observer:
                yield from _handle_each(observer, observer.watch.added, changes.added)
        for observer, changes in parts:
            if changes.messages and observer is observer.watch.observer:
                yield from _handle_each(observer, observer.watch.messaged, changes.messages)
        for observer, changes in parts:
            if changes.removed:
                yield from _handle_each(observer, observer.watch.removed, changes.removed)

    def __str__(self) -> str:
        return f"epoch {self.epoch} of {self.home.name}"


def _handle_each(observer: PatternObserver, handler: Handler | None, rows: Sequence[Captures]) -> Steps[None]:
    """Calls a handler with each row, in a step of its own."""
    for row in rows:
        _handle(observer, handler, (row,))
        yield


def _handle(observer: PatternObserver, handler: Handler | None, rows: Sequence[Captures]) -> None:
    """Calls a handler with each row."""
    if handler is None:
        return
    watch = observer.watch
    watch.reporting = observer
    watch.facet.actor.engine.scope = watch.facet
    turn = watch.turn
    for row in rows:
        if len(row) == 1:  # as mostly; unpacking costs three times the call
            handler(turn, row[0])
        else:
            handler(turn, *row)
