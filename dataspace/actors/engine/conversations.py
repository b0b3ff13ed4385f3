"""Conversations: a facet, or an actor, for each match of a pattern, for as long as the match is there.

They are apart from plain pattern watches because they keep what was begun for each match: the removal of that
match ends it, even if the pattern depends on a field and has changed since.

Always: each match has one facet or actor, though the pattern changes and comes back; a former pattern is
observed while something begun for it lives.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from typing import TYPE_CHECKING

from dataspace.actors.engine.actors import Call, Facet, FacetResource
from dataspace.actors.engine.endpoints import PatternObserver, PatternWatch
from dataspace.actors.engine.handlers import name_of
from index.values.values import Value, keys

if TYPE_CHECKING:
    from dataspace.actors.engine.actors import Actor
    from dataspace.actors.engine.ports import Handler
    from dataspace.actors.engine.verbs import BasicTurn


class _During:
    """The facets and actors that were begun, by match."""

    def __init__(self, turn: BasicTurn, pattern: object, handler: Handler, *, quiet: bool = False) -> None:
        turn._check_endpoint("a conversation")
        self.handler = turn._bound(handler)
        self.watch = made = PatternWatch(turn.facet, turn.home, quiet=quiet)
        self.begun: dict[PatternObserver, dict[Hashable, object]] = {}
        made.added, made.removed, made.lingers = self._begin, self._end, self._lingers
        made.checked = (handler,)
        turn._follow(made, pattern)

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
                turn.actor.engine.effects.closed.append(observer)
        if begun is not None:
            self.finish(turn, begun)

    @abstractmethod
    def start(self, turn: BasicTurn, row: tuple[Value, ...]) -> object:
        """Begins what belongs to a match, and returns it."""

    @abstractmethod
    def finish(self, turn: BasicTurn, begun: object) -> None:
        """Ends what ``start`` returned."""


class DuringFacets(_During):
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


class DuringActors(_During, FacetResource):
    """``Turn.during_spawn``: an actor begun is always booted before it is ended, and ends with the facet."""

    def __init__(self, turn: BasicTurn, pattern: object, handler: Handler, name: str) -> None:
        self.name = name
        super().__init__(turn, pattern, handler)
        turn.facet.keep(self)

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


class FacetLink(FacetResource):
    """Ends an actor with a facet, and the facet with the actor."""

    __slots__ = ("actor", "facet")

    def __init__(self, facet: Facet, actor: Actor) -> None:
        self.facet = facet
        self.actor = actor
        facet.keep(self)
        actor.exits.append(self._ended)

    def close(self) -> None:
        """Ends the actor: the facet has ended."""
        if not self.actor.ended:
            self.actor.engine.end(self.actor, "its link has ended")

    def _ended(self, crash: object) -> None:
        self.facet.release(self)
        if not self.facet.ended:
            self.facet.actor.engine.enqueue(Call(self.facet, "link ended", lambda turn: turn.stop()))
