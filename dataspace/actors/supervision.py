"""Supervision: an actor that crashes is started again, but not again and again.

Always: an orderly end is not followed by a restart; more than ``intensity`` crashes within ``period`` seconds
are followed by a pause.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dataspace.actors.engine.actors import Actor, Call, Facet, FacetResource
from dataspace.actors.engine.handlers import name_of
from dataspace.actors.engine.ports import Handler
from dataspace.errors import ActorCrashed

if TYPE_CHECKING:
    from dataspace.actors.engine.turns import Turn


@dataclass(frozen=True, slots=True)
class Restart:
    """How often an actor may crash, in so many seconds, before it has to pause for so many."""

    intensity: int = 5
    period: float = 1.0
    pause: float = 10.0


class Supervised(FacetResource):
    """One supervised actor: what it is, and how it has fared."""

    def __init__(
        self,
        name: str,
        boot: Handler,
        args: tuple[object, ...],
        restart: Restart,
        told: Callable[[str], object] | None,
    ) -> None:
        self.name = name
        self._told = told
        self.boot = boot
        self.args = args
        self.restart = restart
        self.state = "starting"
        self.crashes = 0
        self.last: ActorCrashed | None = None
        self.actor: Actor | None = None
        self.turns_before = 0
        self._recent: deque[float] = deque(maxlen=restart.intensity + 1)

    @property
    def turns(self) -> int:
        """Turns that it has run, in all its lives."""
        return self.turns_before + (self.actor.turns if self.actor is not None else 0)

    @property
    def facets(self) -> int:
        """Facets that it has now."""
        return self.actor.facets if self.actor is not None and not self.actor.ended else 0

    def set_up(self, turn: Turn) -> None:
        """Starts it; the facet lives until it has ended in an orderly way, and ends it."""
        turn.facet.keep(self)
        self._start(turn)

    def _start(self, turn: Turn) -> None:
        if self.actor is not None:
            self.turns_before += self.actor.turns
        facet, engine = turn.facet, turn.actor.engine
        self._become("running")
        self.actor = turn.spawn(self.boot, *self.args, name=self.name, daemon=True)
        self.actor.exits.append(lambda crash: engine.enqueue(Call(facet, "child ended", self._ended, crash)))

    def _ended(self, turn: Turn, crash: ActorCrashed | None) -> None:
        if crash is None:
            self._become("ended")
            turn.stop()
            return
        self.crashes += 1
        self.last = crash
        self._recent.append(turn.now)
        if len(self._recent) > self.restart.intensity and turn.now - self._recent[0] <= self.restart.period:
            self._become("paused")
            self._recent.clear()
            turn.after(self.restart.pause)(self._start)
        else:
            self._start(turn)

    def _become(self, state: str) -> None:
        self.state = state
        if self._told is not None:
            self._told(state)

    def close(self) -> None:
        """The facet has ended, by a crash of the supervisor perhaps: so does the actor."""
        if self.actor is not None:
            self.actor.engine.end(self.actor, "its supervisor has ended")
        self.state = "ended"


def supervise(
    turn: Turn,
    boot: Handler,
    *args: object,
    name: str = "",
    restart: Restart | None = None,
    told: Callable[[str], object] | None = None,
) -> tuple[Supervised, Facet]:
    """Starts an actor, and again when it crashes, for as long as the facet that is returned lives.

    ``told`` is called, within a turn, when it is ``running``, ``paused`` after crashes, or ``ended``.
    """
    made = Supervised(name or name_of(boot, "actor"), boot, args, restart or Restart(), told)
    return made, turn.react(made.set_up, name=made.name)
