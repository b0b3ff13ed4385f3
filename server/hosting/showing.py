"""The view of running actors: their facets as a tree, and their last turns.

Turns are recorded only while somebody looks: each question records for some seconds more, and without one no
turn costs anything.

Always: the view is bounded, in items and in characters; the engine's earlier tracer gets every turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from dataspace.actors.engine.actors import Actor, ActorEvent, Effects, Facet
from dataspace.actors.engine.tracing import Trace, TurnRecord
from index.values.values import Map, Value

if TYPE_CHECKING:
    from dataspace.actors.engine.engine import Engine
    from dataspace.actors.engine.tracing import Tracer

MOST: Final = 100
"""Actors in the tree of one hosted actor, and turns of it, at most."""

FACETS: Final = 200
"""Facets that are shown of one actor."""

WATCHED: Final = 10.0
"""Seconds for which turns are recorded after a question."""

ACTIONS: Final = 8
"""Actions of one turn that are shown."""

SHOWN: Final = 200
"""Characters of a name or of an action that are shown."""


def tree(actors: Sequence[Actor], most: int) -> tuple[Map, ...]:
    """Returns the first ``most`` actors with their facets, each facet as ``[depth, name, endpoints]``."""
    return tuple(
        [
            Map(
                {
                    "number": each.number,
                    "name": each.name[:SHOWN],
                    "turns": each.turns,
                    "facets": each.facets,
                    "tree": tuple(islice(_facets(each.root), FACETS)),
                }
            )
            for each in actors[: min(most, MOST)]
        ]
    )


def _facets(root: Facet) -> Iterator[tuple[Value, ...]]:
    """Yields a facet and all below it, parents first."""
    waiting = [(0, root)]
    while waiting:
        depth, facet = waiting.pop()
        yield depth, str(facet)[:SHOWN], len(facet.endpoints)
        # of a facet with very many below it no more are copied than are shown
        below = list(islice(facet.children, FACETS))
        waiting.extend((depth + 1, child) for child in reversed(below))


class RecentTurns:
    """The last turns of an engine, by the name that the actors of a program have in common."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._trace = Trace(report=self._take, keep=False)
        self._before: Tracer | None = None
        self._until = 0.0
        self._program = ""
        self._kept: dict[str, deque[TurnRecord]] = {}

    def of(self, program: str, most: int) -> tuple[Map, ...]:
        """Returns the last turns of a program, the newest last, and records for some seconds more."""
        self._until = self._engine.clock() + WATCHED
        if self._engine.tracer is not self:
            self._before, self._engine.tracer = self._engine.tracer, self
            self._kept.clear()
        kept = self._kept.get(program, ())
        return tuple([_shown(each) for each in list(kept)[-min(most, MOST) :]])

    def turn(self, number: int, event: ActorEvent, effects: Effects, failure: BaseException | None) -> None:
        """Records a turn, or records no more if nothing has been asked for some time."""
        if self._before is not None:
            self._before.turn(number, event, effects, failure)
        if self._goes_on():
            self._program = event.actor.program
            self._trace.turn(number, event, effects, failure)

    def fell(self, number: int, actor: str, event: str, failure: BaseException) -> None:
        """Records the crash of an actor outside of its turns."""
        if self._before is not None:
            self._before.fell(number, actor, event, failure)
        if self._goes_on():
            found = [each.program for each in self._engine.actors.values() if each.name == actor]
            self._program = found[0] if found else ""
            self._trace.fell(number, actor, event, failure)

    def _goes_on(self) -> bool:
        if self._engine.tracer is not self:  # the file of the tracer before failed, and it has ended tracing
            return False
        if self._engine.clock() < self._until:
            return True
        self._engine.tracer, self._before = self._before, None
        self._kept.clear()
        return False

    def _take(self, made: TurnRecord) -> None:
        self._kept.setdefault(self._program, deque(maxlen=MOST)).append(made)


def _shown(made: TurnRecord) -> Map:
    actions = [each[:SHOWN] for each in made.actions[:ACTIONS]]
    return Map(
        {
            "turn": made.number,
            "actor": made.actor[:SHOWN],
            "event": made.event[:SHOWN],
            "cause": made.cause,
            "actions": tuple(actions),
            "more": max(0, len(made.actions) - ACTIONS),
            "failure": None if made.failure is None else made.failure[:1000],
        }
    )
