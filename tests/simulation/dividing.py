"""Dividing: members of a group that divides the topic; each item leaves a fact in the turn that does it.

A *divider* has a durable owner.  It takes items, does most of them, gives some back, forgets some, and may
vanish with what it has.  In the end each item of each completed epoch must be done, once.

Always: as ``actors``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import trio

import dataspace
from dataspace.errors import Refused
from tests.guarantees.groups import entries_of
from tests.model import groups as model
from tests.simulation.actors import Actor
from tests.simulation.occurrences import Occurrence
from tests.simulation.plan import TOPIC
from tests.simulation.working import (
    ACK_WITHIN,
    FAITHFUL,
    GOES_ON,
    finish as finish_work,
    give_back,
    misgiven,
    misreported,
    note_told,
    report,
)
from tests.simulation.world import World

GROUP: Final = "items"


async def divide(actor: Actor) -> None:
    """Takes items until the life ends."""
    async with actor.connected(owner=f"divider{actor.part.rank}") as space:
        while True:
            in_flight = actor.random.choice((1, 1, 3, 8))
            try:
                async with space.consume(
                    topic=TOPIC, group=GROUP, start=1, in_flight=in_flight, ack_within=ACK_WITHIN, attempts=0
                ) as jobs:
                    async for job in jobs:
                        await _take(actor, space, jobs, job)
            except Refused as refusal:
                if refusal.code not in (*GOES_ON, "no-topic"):  # no publisher has come yet
                    raise
            await trio.sleep(0.1)


async def _take(actor: Actor, space: dataspace.RemoteSpace, jobs: dataspace.Jobs, job: dataspace.Job) -> None:
    world, random = actor.world, actor.random
    note_told(actor, GROUP, job)
    world.count(Occurrence.ITEM)
    await trio.sleep(random.choice((0.0, 0.0, 0.02, 0.2)))
    chance = random.random() if trio.current_time() < FAITHFUL else 1.0
    if chance < 0.03 and actor.part.rank:
        await actor.vanish()
    if chance < 0.1:
        return  # it comes again once its time is over
    if chance < 0.2:
        await give_back(actor, GROUP, job, after=random.choice((0.0, 0.3)), blame=random.random() < 0.5)
        return
    if chance < 0.25:
        await trio.sleep(ACK_WITHIN + 0.2)  # somebody else may have it by now
    await report(actor, space, jobs, job, "divided")


async def finish(actor: Actor) -> None:
    """Waits until no item is left, and that is on disk."""
    await finish_work(actor, GROUP)


def misdivided(world: World) -> Iterator[str]:
    """Yields what is wrong with the items of a life, by the log and the journal.

    Nothing says which of both came first: here all items are there before any is done.
    """
    noted = [each for each in entries_of(world.entries, GROUP) if not isinstance(each, model.Epoch)]
    if noted:
        items = [model.Epoch(each.number, (), each.items, ()) for each in world.topic.epochs]
        entries = [noted[0], *items, *[each for each in noted if not isinstance(each, model.Begun)]]
        told, reports = world.told[GROUP], world.reports[GROUP]
        history = model.GroupHistory(lambda value: (value,), entries, told, None, reports)
        yield from misreported(history, world.entries, GROUP, "divided")
        yield from misgiven(world, GROUP)
