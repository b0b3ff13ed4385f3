"""Supervision: an actor that crashes is started again, with a pause after several crashes.

Whether crashes follow each other closely is not judged by the clock alone: where each takes half a second of
the loop, or others have the loop meanwhile, no two are within a second, and the actor would be restarted for
ever.  So the time in which the engine had turns to run does not count.

Always: an orderly end is not followed by a restart; more than ``intensity`` crashes within ``period`` seconds
in which the engine rested are followed by a pause, whatever a crash costs; pauses grow while such crashes go
on.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dataspace.actors.engine.actors import Actor, Call, Facet, FacetResource, Handler
from dataspace.actors.engine.handlers import name_of
from dataspace.errors import ActorCrashed

if TYPE_CHECKING:
    from dataspace.actors.engine.turns import Turn


@dataclass(frozen=True, slots=True)
class Restart:
    """How often an actor may crash within ``period`` seconds before it pauses for ``pause`` seconds.

    The seconds in which an engine runs turns do not count as part of the period.  Each further pause is
    twice as long as the one before, up to ``GROWTH`` times the first, until the actor has run for longer
    than it paused.
    """

    intensity: int = 5
    period: float = 1.0
    pause: float = 10.0


GROWTH: Final = 32
"""How many times as long as the first one a pause may become."""

BUSY: Final = 600.0
"""Seconds after which a crash is forgotten even where the engine never rests."""


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
        self._recent: deque[tuple[float, float]] = deque(maxlen=restart.intensity + 1)
        """When it crashed: by the clock, and in seconds in which the engine rested."""
        self._pause = 0.0
        """How long the last pause was."""
        self._resumed = (-math.inf, -math.inf)
        """When the last pause ended."""

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
        turn.facet.own(self)
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
        restart, now = self.restart, _now(turn)
        self._recent.append(now)
        if len(self._recent) <= restart.intensity or not _is_within(restart.period, self._recent[0], now):
            self._start(turn)
            return
        self._become("paused")
        self._recent.clear()
        again = _is_within(self._pause, self._resumed, now)
        self._pause = min(2 * self._pause, GROWTH * restart.pause) if again else restart.pause
        turn.after(self._pause)(self._resume)

    def _resume(self, turn: Turn) -> None:
        self._resumed = _now(turn)
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


def _now(turn: Turn) -> tuple[float, float]:
    """Returns the time by the clock, and in seconds in which the engine rested."""
    return turn.now, turn.actor.engine.rested


def _is_within(seconds: float, since: tuple[float, float], now: tuple[float, float]) -> bool:
    """True if there are not more seconds in between, without those in which the engine had turns to run."""
    return now[1] - since[1] <= seconds and now[0] - since[0] <= max(BUSY, seconds)


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
