"""Actors: who owns facets and facts.

They are apart from the engine, which runs one event of one actor after another.

Always: an actor's claims go with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from dataspace.actors.engine.contexts import checked_name
from dataspace.actors.engine.spaces import ActorSpace
from dataspace.errors import ActorCrashed
from dataspace.kernel.actions import Action
from index.errors import UsageError
from index.values.values import Value

if TYPE_CHECKING:
    from dataspace.actors.engine.engine import Engine
    from dataspace.actors.engine.events import Delivery

FACETS: Final = 100_000
"""How many facets an actor may have; one that leaks them crashes then, and the others go on."""


class Actor:
    """One actor.  ``name`` is for people; ``owner`` is who its claims belong to."""

    __slots__ = (
        "_handle", "claims", "crash", "daemon", "delivery", "ended", "engine", "exits", "facets", "home",
        "inner", "name", "number", "opened", "owner", "program", "root", "touched", "turns",
    )  # fmt: skip

    def __init__(
        self, engine: Engine, number: int, name: str, home: ActorSpace, *, daemon: bool, program: str = ""
    ) -> None:
        self.engine = engine
        self.number = number
        self.name = checked_name(name, "an actor") or f"actor-{number}"
        self.program = program or self.name
        """The name of the first actor that it descends from."""
        self.owner = f"actor:{number}"
        self.home = home
        self.daemon = daemon
        self.claims: dict[int, tuple[ActorSpace, Value]] = {}
        """Ad-hoc claims, which belong to no facet."""
        self.exits: list[Callable[[ActorCrashed | None], object]] = []
        self.touched: dict[ActorSpace, None] = {}
        self.inner: ActorSpace | None = None
        self.delivery: Delivery | None = None
        self.crash: ActorCrashed | None = None
        self.ended = False
        self.turns = 0
        self.facets = 0
        self._handle = 0
        self.opened = 0
        """How many facets it has ever had."""
        self.root = engine.open_facet(self, None, "root")

    def next_handle(self) -> int:
        """A handle that was never used."""
        self._handle += 1
        return self._handle

    def next_facet(self) -> int:
        """A facet's number; ``UsageError`` if there are too many facets."""
        self.facets += 1
        if self.facets > FACETS:
            raise UsageError(f"actor {self.name} has {self.facets} facets, limit {FACETS}")
        self.opened += 1
        return self.opened

    def act(self, home: ActorSpace, action: Action) -> None:
        """Queues an action of the running turn."""
        if home is self.home:
            self.engine.actions.append(action)
        else:
            self.engine.effects.elsewhere.setdefault(home, []).append(action)

    def __repr__(self) -> str:
        return f"<actor {self.name}>"
