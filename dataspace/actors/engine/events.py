"""Events: what an actor is to handle in one turn.

A *delivery* is one epoch as far as it concerns an actor, a *call* anything else.  They are apart from actors
because facets make them.

Always: events of one actor are handled in the order in which they came.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataspace.actors.engine.actors import Actor
    from dataspace.actors.engine.facets import Facet, Handler, PatternObserver
    from dataspace.actors.engine.spaces import ActorSpace
    from dataspace.kernel.changes import Captures, Changes


class ActorEvent:
    """What an actor is to handle in one turn."""

    __slots__ = ("actor", "cause")

    def __init__(self, actor: Actor, cause: int = 0) -> None:
        self.actor = actor
        self.cause = cause
        """The number of the turn that brought it about, 0 if none did."""

    @abstractmethod
    def run(self) -> None:
        """Handles it, within the turn."""

    @abstractmethod
    def __str__(self) -> str:
        """What it is, for traces and errors."""


class Delivery(ActorEvent):
    """One epoch of one space, as far as it concerns an actor: additions, then messages, then removals."""

    __slots__ = ("epoch", "home", "parts")

    def __init__(self, actor: Actor, home: ActorSpace, epoch: int) -> None:
        self.actor = actor
        self.cause = actor.engine.turn
        self.home = home
        self.epoch = epoch
        self.parts: list[tuple[PatternObserver, Changes]] = []

    def run(self) -> None:
        """Runs all handlers that match, whatever the first ones decide."""
        if self.actor.delivery is self:
            self.actor.delivery = None
        if len(self.parts) > 1:
            self._run_all()
            return
        observer, changes = self.parts[0]  # as mostly
        if observer.live:
            if changes.added and observer is observer.watch.observer:
                _tell(observer, observer.watch.added, changes.added)
            if changes.messages and observer is observer.watch.observer:
                _tell(observer, observer.watch.messaged, changes.messages)
            if changes.removed:
                _tell(observer, observer.watch.removed, changes.removed)

    def _run_all(self) -> None:
        parts = [part for part in self.parts if part[0].live]
        for observer, changes in parts:
            if changes.added and observer is observer.watch.observer:
                _tell(observer, observer.watch.added, changes.added)
        for observer, changes in parts:
            if changes.messages and observer is observer.watch.observer:
                _tell(observer, observer.watch.messaged, changes.messages)
        for observer, changes in parts:
            if changes.removed:
                _tell(observer, observer.watch.removed, changes.removed)

    def __str__(self) -> str:
        return f"epoch {self.epoch} of {self.home.name}"


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
        """Calls it."""
        if not self.facet.ended:
            self.function(self.actor.engine.enter(self.facet), *self.args)
            self.actor.engine.effects.touched[self.facet] = None

    def __str__(self) -> str:
        return self.what


def _tell(observer: PatternObserver, handler: Handler | None, rows: Sequence[Captures]) -> None:
    """Calls a handler with each row."""
    if handler is None:
        return
    watch = observer.watch
    watch.hearing = observer
    watch.facet.actor.engine.scope = watch.facet
    turn = watch.turn
    for row in rows:
        if len(row) == 1:  # as mostly; what is unpacked costs three times the call
            handler(turn, row[0])
        else:
            handler(turn, *row)
