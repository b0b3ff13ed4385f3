"""Claiming: clients that take what is free, under conditions, for themselves and for a store at once.

A *claimer* has a durable owner, and takes *seats*, each only if no other has it; with the seat comes a fact
of a second owner in the same turn.  It gives some back, if it still knows the state that it has seen.

Always: as ``actors``.
"""

from __future__ import annotations

from typing import Final

import trio

import dataspace
from dataspace import Record, absent, exactly, unchanged
from dataspace.errors import ExpectationFailed, Refused
from tests.simulation.actors import OF_THE_DISK, Actor

SEATS: Final = 4


async def claim(actor: Actor) -> None:
    """Takes seats and gives them back."""
    random, me = actor.random, actor.host.name
    held: dict[int, list[dataspace.Claim]] = {}
    async with actor.connected(owner=f"claimer{actor.part.rank}") as space:
        epoch = 0
        for _ in range(random.randint(3, 12)):
            seat = random.randrange(SEATS)
            if seat in held:
                draft = space.draft(expect=[exactly(f"seat({seat}, $)", [(me,)])])
                for each in held.pop(seat):
                    draft.retract(each)
            else:
                free = absent(f"seat({seat}, _)")
                draft = space.draft(expect=_conditions(free, epoch, later=random.random() < 0.3))
                taken = draft.assert_(Record("seat", seat, me))
                stored = draft.assert_(Record("stored", seat, me), owner=f"store{actor.part.rank}")
                held[seat] = [taken, stored]
            after = actor.world.last[actor.part.space]
            ticket = await space.submit(draft)
            await actor.note(f"owner:claimer{actor.part.rank}", ticket, after)
            try:
                epoch = await ticket.wait()
            except ExpectationFailed:
                held.pop(seat, None)
            except Refused as refusal:
                if refusal.code not in (*OF_THE_DISK, "epoch-lost"):
                    raise
                held.pop(seat, None)
            await trio.sleep(random.choice((0.0, 0.05, 0.3)))


def _conditions(free: dataspace.Expectation, epoch: int, *, later: bool) -> list[dataspace.Expectation]:
    return [free, unchanged("seat(_, _)", since=epoch)] if later and epoch else [free]
