"""Settling: what a turn has left when the handlers of its event have returned, until no work is left.

Scripts run (``on_start``), facets that were stopped stop, computations whose fields changed run again, and
facets with nothing left to do end; each may cause more of the others.  It is apart from the engine, which may
interrupt it between two steps.

Always: a facet starts before it stops; children stop before their parent; stop actions before continuations,
and both in the context of the parent; a computation runs after all scripts and stops that were due; settling
ends, within ``ROUNDS``, ``ACTIONS`` and ``FACETS``.  A facet of n children stops in O(n).
"""

from __future__ import annotations

from typing import Final, NoReturn

from dataspace.actors.engine.actors import FACETS, ActorRuntime, Context, Effects, Facet, Handler
from dataspace.kernel.actions import RETRACT
from dataspace.steps import Steps
from index.errors import UsageError

STEP: Final = 64
"""Facets or observers that end or begin in one step of a turn, in less than a millisecond."""

ROUNDS: Final = 10_000
"""How many rounds one turn may take, each with what the last one caused."""
ACTIONS: Final = 500_000
"""How many scripts, stop actions, continuations and hooks one turn may run."""


class Settling:
    """The end of one turn, and how much has been done in it."""

    __slots__ = ("actions", "effects", "engine", "first")

    def __init__(self, engine: ActorRuntime, effects: Effects) -> None:
        self.engine = engine
        self.effects = effects
        self.actions = 0
        self.first: int | None = None
        """How many facets its actor had ever opened when the first one stopped."""

    def steps(self) -> Steps[None]:
        """Runs what the turn has left until no work is left; ``UsageError`` beyond the limits."""
        effects = self.effects
        for _ in range(ROUNDS):
            if effects.scripts:
                yield from self._start()
            elif effects.stopping:
                stopping, effects.stopping = effects.stopping, []
                for at, facet in enumerate(stopping, 1):
                    if not at % STEP:
                        yield
                    if facet.ended:
                        continue
                    if facet.children or facet.on_stop or effects.scripts:
                        yield from self._stop(facet)
                    else:  # as mostly
                        self._close(facet)
            elif effects.stale or effects.damaged:
                yield from _repair(effects)
            elif effects.touched:
                _end_inert(effects)
            elif effects.hooks:
                hooks, effects.hooks = effects.hooks, []
                for turn, hook in hooks:
                    self.engine.scope = turn.facet
                    self._call(turn.facet, "a hook before the commit", hook, turn)
            else:
                if effects.undecorated:
                    effects.check_decorated()
                return
        self._refuse(self.engine.scope, "each round brings about another", "rounds", ROUNDS)

    def _start(self) -> Steps[None]:
        """Runs the scripts of facets that have not ended."""
        scripts, self.effects.scripts = self.effects.scripts, []
        for at, (facet, script) in enumerate(scripts, 1):
            if at > 1:
                yield
            if not facet.ended:
                self._call(facet, "a script (on_start)", script, self.engine.enter(facet))

    def _stop(self, facet: Facet) -> Steps[None]:
        """Ends a facet in an orderly way: its children first, and the children that stop actions open
        meanwhile.

        A loop, as facets may nest deeper than calls.
        """
        opened, effects = facet.actor.opened, self.effects
        if self.first is None:
            self.first = opened
        due = [facet]
        done = 0
        while due:
            done += 1
            if not done % STEP:
                yield
            inner = due[-1]
            inner.stopping = True
            if effects.scripts:
                yield from self._start()  # what was opened meanwhile starts before it stops
            elif inner.children:
                due += reversed(inner.children)
            elif inner.on_stop:
                action = inner.on_stop.popleft()
                self.engine.scope = inner  # whose fields may be used
                self._call(inner, "a stop action", action, (inner.parent or inner).turn)
                yield
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
            facet.clear()
            return
        parent.children.pop(facet, None)
        effects.touched[parent] = None
        if facet.thens:
            for then in facet.thens:
                self._call(facet, "a continuation (then)", then, self.engine.enter(parent))
        facet.clear()

    def _call(self, facet: Facet, what: str, function: Handler, turn: Context) -> None:
        """Calls a function of a facet, and counts it."""
        self.actions += 1
        if self.actions > ACTIONS:
            self._refuse(facet, f"{what} brings about others again and again", "actions", ACTIONS)
        function(turn)

    def _refuse(self, facet: Facet | None, why: str, what: str, limit: int) -> NoReturn:
        actor = self.engine.running
        name = actor.name if actor is not None else "?"
        self.engine.scope = facet
        raise UsageError(f"a turn of actor {name}, facet {facet} does not end: {why}; {what}, limit {limit}")


def _repair(effects: Effects) -> Steps[None]:
    """Runs what depends on changed fields, derived fields first."""
    if effects.stale:
        due, effects.stale = effects.stale, {}
    else:
        due, effects.damaged = effects.damaged, {}
    for at, computation in enumerate(due):
        if at:
            yield
        computation.repair()


def _end_inert(effects: Effects) -> None:
    touched, effects.touched = effects.touched, {}
    for facet in touched:
        if facet.is_inert and not facet.ended and not facet.stopping:
            facet.stopping = True
            effects.stopping.append(facet)
