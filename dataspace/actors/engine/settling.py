"""Settling: what is done at the end of a turn, until nothing is left to do.

Handlers have run.  Now scripts run (``on_start``), facets that were stopped stop, blocks whose fields changed
run again, and facets with nothing left to do end; each may bring about more of the others.

Always: children stop before their parent; stop actions before continuations, and both in the parent's
context; a block runs after all scripts and stops that were due.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataspace.actors.engine.actors import FACETS
from dataspace.actors.engine.effects import Draft
from dataspace.actors.engine.facets import Facet
from dataspace.kernel.actions import RETRACT
from index.errors import UsageError

if TYPE_CHECKING:
    from dataspace.actors.engine.engine import Engine


def settle(engine: Engine, draft: Draft) -> None:
    """Goes on until the turn is quiet."""
    while True:
        if draft.scripts:
            scripts, draft.scripts = draft.scripts, []
            for facet, script in scripts:
                if not facet.ended:
                    script(engine.enter(facet))
        elif draft.stopping:
            stopping, draft.stopping = draft.stopping, []
            for facet in stopping:
                if not facet.ended:
                    _stop(engine, facet, draft)
        elif draft.stale or draft.damaged:
            _repair(draft)
        elif draft.touched:
            _end_inert(draft)
        elif draft.hooks:
            hooks, draft.hooks = draft.hooks, []
            for facet, hook in hooks:
                hook(engine.enter(facet))
        else:
            return


def _repair(draft: Draft) -> None:
    """Runs what depends on changed fields, derived fields first."""
    if draft.stale:
        stale, draft.stale = draft.stale, {}
        for derived in stale:
            if derived._block.live:
                derived._refresh()
        return
    damaged, draft.damaged = draft.damaged, {}
    for block in damaged:
        if block.live and not block.facet.ended:
            block.run()


def _end_inert(draft: Draft) -> None:
    touched, draft.touched = draft.touched, {}
    for facet in touched:
        if facet.is_inert and not facet.ended and not facet.stopping:
            facet.stopping = True
            draft.stopping.append(facet)


def _stop(engine: Engine, facet: Facet, draft: Draft) -> None:
    """Ends a facet in an orderly way: its children first, those too that stop actions open meanwhile.

    A loop, as facets may nest deeper than calls.
    """
    due, closed = [facet], 0
    while due:
        inner = due[-1]
        inner.stopping = True
        if inner.children:
            due.append(next(iter(inner.children)))
        elif inner.on_stop:
            _run_stop_action(engine, inner)
        else:
            _close(engine, due.pop(), draft)
            closed += 1
            if closed > FACETS:
                raise UsageError(f"facet {facet} does not end: what stops in it opens facets again")


def _close(engine: Engine, facet: Facet, draft: Draft) -> None:
    """Ends a facet that has no children and whose stop actions have run."""
    actor, parent = facet.actor, facet.parent
    facet.ended = True
    actor.facets -= 1
    for endpoint in list(facet.endpoints):
        endpoint.close()
    for block in facet.blocks or ():
        block.close()
    if facet.keepers:
        draft.ended.extend(facet.keepers)
    if parent is None:
        for handle, (home, _) in actor.claims.items():
            actor.act(home, (RETRACT, handle))
        actor.claims = {}
        return
    parent.children.pop(facet, None)
    draft.touched[parent] = None
    for then in facet.thens or ():
        then(engine.enter(parent))


def _run_stop_action(engine: Engine, facet: Facet) -> None:
    """The first, in the parent's context, and with the facet's own fields in sight."""
    assert facet.on_stop
    action = facet.on_stop.pop(0)
    engine.scope = facet
    action((facet.parent or facet).turn)
