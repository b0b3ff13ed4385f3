"""The watchdog: a thread that reports an actor whose turn or task step lasts too long.

It only reads: the engine's thread itself is stuck, and another thread cannot interrupt it.

Always: one turn, or one step of a linked task, is reported once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable

from dataspace.actors.engine.actors import Actor
from dataspace.actors.engine.engine import Engine

logger = logging.getLogger("dataspace.actors")


class Watchdog:
    """Reports, within its ``with`` block, turns and steps that do not end within ``limit`` seconds."""

    def __init__(
        self, engine: Engine, *, limit: float = 0.8, report: Callable[[str], None] | None = None
    ) -> None:
        self.engine = engine
        self.limit = limit
        self.report = report or logger.error
        self.stalls: Counter[str] = Counter()
        """How often an actor of each program did not yield in time."""
        self.stuck: str | None = None
        """The name of the actor that does not yield now; None if all do."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Watchdog:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        seen, since = self._running(), time.monotonic()
        while not self._ended.wait(self.limit / 8):
            now = self._running()
            actor, what = now
            if now != seen or actor is None:
                seen, since, self.stuck = now, time.monotonic(), None
            elif self.stuck is None and time.monotonic() - since >= self.limit:
                self.stuck = actor.name
                self.stalls[actor.program] += 1
                self.report(f"actor {actor.name} does not yield: {what} lasts {self.limit} s and more")

    def _running(self) -> tuple[Actor | None, str]:
        """Returns the actor that runs, and which turn or step of it."""
        engine = self.engine
        if (actor := engine.running) is not None:
            return actor, f"its turn {engine.turn}"
        return engine.stepping, f"step {engine.steps} of its tasks"
