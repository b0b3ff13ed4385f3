"""Conversations: a facet, or an actor, for each match of a pattern, for as long as the match is there.

They are apart from plain observations because they remember: what was begun for a match is ended by that
match's going, even if the pattern depends on a field and has changed since.

Always: each match has one facet or actor, though the pattern leaves it and comes back; an old pattern is
heard of while something begun for it lives.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from typing import TYPE_CHECKING

from dataspace.actors.engine.contexts import name_of
from dataspace.actors.engine.events import Call
from dataspace.actors.engine.facets import Facet, FacetResource, Handler, PatternObserver, PatternWatch
from index.values.values import Value, keys

if TYPE_CHECKING:
    from dataspace.actors.engine.actors import Actor
    from dataspace.actors.engine.turns import Turn


class _During:
    """What both kinds have in common: which match has begun what."""

    def __init__(self, turn: Turn, pattern: object, handler: Handler, *, quiet: bool = False) -> None:
        turn._check_endpoint("a conversation")
        self.handler = turn._bound(handler)
        self.watch = made = PatternWatch(turn.facet, turn.home, quiet=quiet)
        self.begun: dict[PatternObserver, dict[Hashable, object]] = {}
        made.added, made.removed, made.lingers = self._begin, self._end, self._lingers
        made.told = (handler,)
        turn._follow(made, pattern)

    def _lingers(self, observer: PatternObserver) -> bool:
        return bool(self.begun.get(observer))

    def _begin(self, turn: Turn, *row: Value) -> None:
        observer = self.watch.hearing
        assert observer is not None
        begun, at = self.begun.setdefault(observer, {}), keys(row)
        if at not in begun:  # else the pattern was left and is back
            begun[at] = self.start(turn, row)

    def _end(self, turn: Turn, *row: Value) -> None:
        observer = self.watch.hearing
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
    def start(self, turn: Turn, row: tuple[Value, ...]) -> object:
        """Begins what belongs to a match."""

    @abstractmethod
    def finish(self, turn: Turn, begun: object) -> None:
        """Ends it."""


class DuringFacets(_During):
    """``Turn.during``."""

    def start(self, turn: Turn, row: tuple[Value, ...]) -> object:
        """A facet that is not inert while the match is there."""

        def setup(inner: Turn) -> None:
            inner.facet.preventers += 1
            self.handler(inner, *row)

        return turn.react(setup)

    def finish(self, turn: Turn, begun: object) -> None:
        """Stops it, unless it has stopped itself."""
        assert isinstance(begun, Facet)
        turn.stop(begun)


class DuringActors(_During, FacetResource):
    """``Turn.during_spawn``: an actor begun is always booted before it is ended, and ends with the facet."""

    def __init__(self, turn: Turn, pattern: object, handler: Handler, name: str) -> None:
        self.name = name
        super().__init__(turn, pattern, handler)
        turn.facet.keep(self)

    def start(self, turn: Turn, row: tuple[Value, ...]) -> object:
        """An actor that does not end of itself while the match is there."""

        def boot(inner: Turn, *captures: Value) -> None:
            inner.facet.preventers += 1
            self.handler(inner, *captures)

        return turn.spawn(boot, *row, name=self.name or name_of(self.handler))

    def finish(self, turn: Turn, begun: object) -> None:
        """Asks it to end."""
        turn.end_actor(begun)  # type: ignore[arg-type]  # an actor, by start

    def close(self) -> None:
        """The facet has ended, by a crash perhaps: so do they all."""
        engine = self.watch.facet.actor.engine
        for rows in self.begun.values():
            for begun in rows.values():
                engine.end(begun, "its facet has ended")  # type: ignore[arg-type]  # an actor, by start


class FacetLink(FacetResource):
    """An actor that ends with a facet, and the facet with it."""

    __slots__ = ("actor", "facet")

    def __init__(self, facet: Facet, actor: Actor) -> None:
        self.facet = facet
        self.actor = actor
        facet.keep(self)
        actor.exits.append(self._ended)

    def close(self) -> None:
        """The facet has ended: so does the actor."""
        if not self.actor.ended:
            self.actor.engine.end(self.actor, "its link has ended")

    def _ended(self, crash: object) -> None:
        self.facet.release(self)
        if not self.facet.ended:
            self.facet.actor.engine.enqueue(Call(self.facet, "link ended", lambda turn: turn.stop()))
