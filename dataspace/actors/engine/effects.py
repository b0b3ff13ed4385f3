"""Drafts: what the running turn wants done, if it returns.

Always: nothing in a effects has had an effect outside of its actor; a turn that raises drops it whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dataspace.kernel.actions import Action
from index.errors import UsageError
from index.values.values import Value

if TYPE_CHECKING:
    from dataspace.actors.engine.actors import Actor
    from dataspace.actors.engine.events import ActorEvent
    from dataspace.actors.engine.facets import Facet, FacetResource, Handler, PatternObserver
    from dataspace.actors.engine.fields import Computation, DerivedField
    from dataspace.actors.engine.spaces import ActorSpace


class Effects:
    """All that one turn collects."""

    __slots__ = (
        "actions", "calls", "closed", "damaged", "elsewhere", "ended", "hooks", "opened", "scripts", "spawns",
        "stale", "starts", "stopping", "touched", "undecorated",
    )  # fmt: skip

    def __init__(self, actions: list[Action]) -> None:
        self.actions = actions
        self.elsewhere: dict[ActorSpace, list[Action]] = {}
        self.opened: list[PatternObserver] = []
        self.closed: list[PatternObserver] = []
        self.spawns: list[Spawn] = []
        self.calls: list[ActorEvent] = []
        self.starts: list[Callable[[], object]] = []
        self.ended: list[FacetResource] = []
        self.scripts: list[tuple[Facet, Handler]] = []
        self.stopping: list[Facet] = []
        self.hooks: list[tuple[Facet, Handler]] = []
        self.damaged: dict[Computation, None] = {}
        self.stale: dict[DerivedField[object], None] = {}
        self.touched: dict[Facet, None] = {}
        self.undecorated: dict[object, str] | None = None
        """Decorators that have been made and not been used, and what made them."""

    def check_decorated(self) -> None:
        """Raises ``UsageError`` if a decorator was made and nothing is called by what it decorates."""
        for verb in (self.undecorated or {}).values():
            raise UsageError(
                f"turn.{verb} installs nothing by itself: write @turn.{verb}(…) above a function"
            )


class Spawn:
    """An actor to be: it boots in a turn of its own once this turn has committed."""

    __slots__ = ("actor", "args", "boot", "initial")

    def __init__(self, actor: Actor, boot: Handler, args: tuple[object, ...], initial: list[Value]) -> None:
        self.actor = actor
        self.boot = boot
        self.args = args
        self.initial = initial
