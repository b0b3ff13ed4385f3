"""The kinds of actors, by the names that plans have for them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from tests.simulation import claiming, deriving, dividing, keeping, topics, working
from tests.simulation.actors import Actor

KINDS: Final[Mapping[str, Callable[[Actor], Awaitable[None]]]] = {
    "writer": Actor.write,
    "guest": Actor.visit,
    "borrower": Actor.borrow,
    "keeper": keeping.keep,
    "locker": Actor.lock,
    "claimer": claiming.claim,
    "publisher": topics.publish,
    "subscriber": topics.subscribe,
    "worker": working.work,
    "divider": dividing.divide,
    "cheat": working.cheat,
    "deriver": deriving.derive,
    "watcher": Actor.watch,
    "peeker": Actor.peek,
    "glancer": Actor.glance,
    "mark": Actor.mark,
    "end of topic": topics.end,
    "end of work": working.finish,
    "end of items": dividing.finish,
}

LASTING: Final = ("watcher", "peeker", "subscriber", "worker", "divider", "cheat")
"""Those that go on until a life ends."""
