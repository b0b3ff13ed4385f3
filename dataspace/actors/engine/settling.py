"""Settling: what is done at the end of a turn, until nothing is left to do.

Handlers have run.  Now scripts run (``on_start``), facets that were stopped stop, blocks whose fields changed
run again, and facets with nothing left to do end; each may bring about more of the others.

Always: a facet starts before it stops; children stop before their parent; stop actions before continuations,
and both in the parent's context; a block runs after all scripts and stops that were due; it ends, within
``ROUNDS``, ``ACTIONS`` and ``FACETS``.  It costs what there is to do: a facet of n children stops in O(n).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

from dataspace.actors.engine.actors import FACETS
from dataspace.actors.engine.effects import Effects
from dataspace.actors.engine.facets import Facet, Handler
from dataspace.kernel.actions import RETRACT
from index.errors import UsageError

if TYPE_CHECKING:
    from dataspace.actors.engine.engine import Engine
    from dataspace.actors.engine.turns import Turn

ROUNDS: Final = 10_000
"""How often one turn may begin again with what its last round has brought about."""
ACTIONS: Final = 500_000
"""How many scripts, stop actions, continuations and hooks one turn may run."""


def settle(engine: Engine, effects: Effects) -> None:
    """Goes on until the turn is quiet; ``UsageError`` if it does not become so."""
    _Settling(engine, effects).run()


class _Settling:
    """The end of one turn, and how much has been done in it."""

    __slots__ = ("actions", "effects", "engine", "first")

    def __init__(self, engine: Engine, effects: Effects) -> None:
        self.engine = engine
        self.effects = effects
        self.actions = 0
        self.first: int | None = None
        """How many facets its actor had ever opened when the first one stopped."""

    def run(self) -> None:
        """Goes on until nothing is left to do."""
        effects = self.effects
        for _ in range(ROUNDS):
            if effects.scripts:
                self._start()
            elif effects.stopping:
                stopping, effects.stopping = effects.stopping, []
                for facet in stopping:
                    if facet.ended:
                        continue
                    if facet.children or facet.on_stop or effects.scripts:
                        self._stop(facet)
                    else:  # as mostly
                        self._close(facet)
            elif effects.stale or effects.damaged:
                _repair(effects)
            elif effects.touched:
                _end_inert(effects)
            elif effects.hooks:
                hooks, effects.hooks = effects.hooks, []
                for facet, hook in hooks:
                    self._call(facet, "a hook before the commit", hook, self.engine.enter(facet))
            else:
                if effects.undecorated:
                    effects.check_decorated()
                return
        self._refuse(self.engine.scope, "each round brings about another", "rounds", ROUNDS)

    def _start(self) -> None:
        """Runs the scripts that wait, of facets that live."""
        scripts, self.effects.scripts = self.effects.scripts, []
        for facet, script in scripts:
            if not facet.ended:
                self._call(facet, "a script (on_start)", script, self.engine.enter(facet))

    def _stop(self, facet: Facet) -> None:
        """Ends a facet in an orderly way: its children first, those too that stop actions open meanwhile.

        A loop, as facets may nest deeper than calls.
        """
        opened, effects = facet.actor.opened, self.effects
        if self.first is None:
            self.first = opened
        due = [facet]
        while due:
            inner = due[-1]
            inner.stopping = True
            if effects.scripts:
                self._start()  # what was opened meanwhile starts before it stops
            elif inner.children:
                due += reversed(inner.children)
            elif inner.on_stop:
                action = inner.on_stop.popleft()
                self.engine.scope = inner  # whose fields are in sight
                self._call(inner, "a stop action", action, (inner.parent or inner).turn)
            else:
                self._close(due.pop())
            if facet.actor.opened - self.first > FACETS:
                self._refuse(
                    facet, "what stops in it opens facets again", "facets opened while it settles", FACETS
                )

    def _close(self, facet: Facet) -> None:
        """Ends a facet that has no children and whose stop actions have run."""
        actor, parent, effects = facet.actor, facet.parent, self.effects
        facet.stopping = facet.ended = True
        actor.facets -= 1
        if facet.endpoints:
            for endpoint in list(facet.endpoints):
                endpoint.end()
        if facet.blocks:
            for block in facet.blocks:
                block.end()
        if facet.resources:
            effects.ended.extend(facet.resources)
        if parent is None:
            for handle, (home, _) in actor.claims.items():
                actor.act(home, (RETRACT, handle))
            actor.claims = {}
            return
        parent.children.pop(facet, None)
        effects.touched[parent] = None
        if facet.thens:
            for then in facet.thens:
                self._call(facet, "a continuation (then)", then, self.engine.enter(parent))

    def _call(self, facet: Facet, what: str, function: Handler, turn: Turn) -> None:
        """Runs one of them, which may open, stop and change whatever it likes."""
        self.actions += 1
        if self.actions > ACTIONS:
            self._refuse(facet, f"{what} brings about others again and again", "actions", ACTIONS)
        function(turn)

    def _refuse(self, facet: Facet | None, why: str, what: str, limit: int) -> NoReturn:
        actor = self.engine.running
        name = actor.name if actor is not None else "?"
        self.engine.scope = facet
        raise UsageError(f"a turn of actor {name}, facet {facet} does not end: {why}; {what}, limit {limit}")


def _repair(effects: Effects) -> None:
    """Runs what depends on changed fields, derived fields first."""
    if effects.stale:
        stale, effects.stale = effects.stale, {}
        for derived in stale:
            if derived._block.live:
                derived._refresh()
        return
    damaged, effects.damaged = effects.damaged, {}
    for block in damaged:
        if block.live and not block.facet.ended:
            block.run()


def _end_inert(effects: Effects) -> None:
    touched, effects.touched = effects.touched, {}
    for facet in touched:
        if facet.is_inert and not facet.ended and not facet.stopping:
            facet.stopping = True
            effects.stopping.append(facet)
