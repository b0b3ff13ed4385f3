"""Supervision: an actor that crashes is started again, with a pause after several crashes.

Always: an orderly end is not followed by a restart; more than ``intensity`` crashes within ``period`` seconds
are followed by a pause.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dataspace.actors.engine.actors import Actor, Call, Facet, FacetResource, Handler
from dataspace.actors.engine.handlers import name_of
from dataspace.errors import ActorCrashed

if TYPE_CHECKING:
    from dataspace.actors.engine.turns import Turn


@dataclass(frozen=True, slots=True)
class Restart:
    """How often an actor may crash within ``period`` seconds before it pauses for ``pause`` seconds."""

    intensity: int = 5
    period: float = 1.0
    pause: float = 10.0


class Supervised(FacetResource):
    """One supervised actor, its state and its crashes."""

    def __init__(
        self,
        name: str,
        boot: Handler,
        args: tuple[object, ...],
        restart: Restart,
        on_state: Callable[[str], object] | None,
    ) -> None:
        self.name = name
        self._on_state = on_state
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
        """Turns that it has run, those before restarts included."""
        return self.turns_before + (self.actor.turns if self.actor is not None else 0)

    @property
    def facets(self) -> int:
        """How many facets it has now."""
        return self.actor.facets if self.actor is not None and not self.actor.ended else 0

    def set_up(self, turn: Turn) -> None:
        """Starts it; the facet lives until the actor has ended in an orderly way, and ends it."""
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
        if self._on_state is not None:
            self._on_state(state)

    def close(self) -> None:
        """Ends the actor: the facet has ended, perhaps by a crash of the supervisor."""
        if self.actor is not None:
            self.actor.engine.end(self.actor, "its supervisor has ended")
        self.state = "ended"


def supervise(
    turn: Turn,
    boot: Handler,
    *args: object,
    name: str = "",
    restart: Restart | None = None,
    on_state: Callable[[str], object] | None = None,
) -> tuple[Supervised, Facet]:
    """Starts an actor, and again when it crashes, while the returned facet lives.

    ``on_state`` is called, within a turn, with ``running``, ``paused`` (after crashes) or ``ended``.
    """
    made = Supervised(name or name_of(boot, "actor"), boot, args, restart or Restart(), on_state)
    return made, turn.react(made.set_up, name=made.name)
