"""Settling: the end of a turn, repeated until no work is left.

The handlers have run.  Now scripts run (``on_start``), facets that were stopped stop, computations whose
fields changed run again, and facets with nothing left to do end; each may cause more of the others.

Always: a facet starts before it stops; children stop before their parent; stop actions before continuations,
and both in the parent's context; a computation runs after all scripts and stops that were due; it ends,
within ``ROUNDS``, ``ACTIONS`` and ``FACETS``.  A facet of n children stops in O(n).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

from dataspace.actors.engine.actors import FACETS, Effects, Facet
from dataspace.kernel.actions import RETRACT
from index.errors import UsageError

if TYPE_CHECKING:
    from dataspace.actors.engine.actors import ActorRuntime
    from dataspace.actors.engine.ports import Context, Handler, Scope

ROUNDS: Final = 10_000
"""How many rounds one turn may take, each with what the last one caused."""
ACTIONS: Final = 500_000
"""How many scripts, stop actions, continuations and hooks one turn may run."""


def settle(engine: ActorRuntime, effects: Effects) -> None:
    """Runs what a turn has left until no work is left; ``UsageError`` beyond the limits."""
    _Settling(engine, effects).run()


class _Settling:
    """The end of one turn, and how much has been done in it."""

    __slots__ = ("actions", "effects", "engine", "first")

    def __init__(self, engine: ActorRuntime, effects: Effects) -> None:
        self.engine = engine
        self.effects = effects
        self.actions = 0
        self.first: int | None = None
        """How many facets its actor had ever opened when the first one stopped."""

    def run(self) -> None:
        """Runs rounds until no work is left."""
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
        """Runs the scripts of facets that have not ended."""
        scripts, self.effects.scripts = self.effects.scripts, []
        for facet, script in scripts:
            if not facet.ended:
                self._call(facet, "a script (on_start)", script, self.engine.enter(facet))

    def _stop(self, facet: Facet) -> None:
        """Ends a facet in an orderly way: its children first, and the children that stop actions open
        meanwhile.

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
                self.engine.scope = inner  # whose fields may be used
                self._call(inner, "a stop action", action, (inner.parent or inner).turn)
            else:
                self._close(due.pop())
            if facet.actor.opened - self.first > FACETS:
                self._refuse(
                    facet, "what stops in it opens facets again", "facets opened while it settles", FACETS
                )

    def _close(self, facet: Facet) -> None:
        """Ends a facet that has no children left and whose stop actions have run."""
        actor, parent, effects = facet.actor, facet.parent, self.effects
        facet.stopping = facet.ended = True
        actor.facets -= 1
        if facet.endpoints:
            for endpoint in list(facet.endpoints):
                endpoint.end()
        if facet.computations:
            for computation in facet.computations:
                computation.end()
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

    def _call(self, facet: Facet, what: str, function: Handler, turn: Context) -> None:
        """Calls a function of a facet, and counts it."""
        self.actions += 1
        if self.actions > ACTIONS:
            self._refuse(facet, f"{what} brings about others again and again", "actions", ACTIONS)
        function(turn)

    def _refuse(self, facet: Scope | None, why: str, what: str, limit: int) -> NoReturn:
        actor = self.engine.running
        name = actor.name if actor is not None else "?"
        self.engine.scope = facet
        raise UsageError(f"a turn of actor {name}, facet {facet} does not end: {why}; {what}, limit {limit}")


def _repair(effects: Effects) -> None:
    """Runs what depends on changed fields, derived fields first."""
    if effects.stale:
        stale, effects.stale = effects.stale, {}
        for derived in stale:
            if derived._computation.live:
                derived._refresh()
        return
    damaged, effects.damaged = effects.damaged, {}
    for computation in damaged:
        if computation.live and not computation.facet.ended:
            computation.run()


def _end_inert(effects: Effects) -> None:
    touched, effects.touched = effects.touched, {}
    for facet in touched:
        if facet.is_inert and not facet.ended and not facet.stopping:
            facet.stopping = True
            effects.stopping.append(facet)
