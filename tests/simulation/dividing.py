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
from dataspace import Record
from dataspace.errors import Refused
from dataspace.kernel.changes import Epoch
from relay.log.notes import Note
from tests.guarantees.groups import GroupHistory, done_in
from tests.simulation.actors import Actor
from tests.simulation.occurrences import Occurrence
from tests.simulation.plan import TOPIC
from tests.simulation.working import ACK_WITHIN, FAITHFUL, GOES_ON, finish as finish_work, give_back, report
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
    world.trace("item", actor.host.name, job.epoch, job.position, job.token)
    world.count(Occurrence.ITEM)
    await trio.sleep(random.choice((0.0, 0.0, 0.02, 0.2)))
    chance = random.random() if trio.current_time() < FAITHFUL else 1.0
    if chance < 0.03 and actor.part.rank:
        await actor.vanish()
    if chance < 0.1:
        return  # it comes again once its time is over
    if chance < 0.2:
        await give_back(job, after=random.choice((0.0, 0.3)), blame=random.random() < 0.5)
        return
    if chance < 0.25:
        await trio.sleep(ACK_WITHIN + 0.2)  # somebody else may have it by now
    await report(actor, space, jobs, job, "divided")


async def finish(actor: Actor) -> None:
    """Waits until no item is left, and that is on disk."""
    await finish_work(actor, GROUP)


def misdivided(world: World) -> Iterator[str]:
    """Yields what is wrong with the items of a life, by the log and the journal."""
    entries = world.entries
    divided = [
        fact.fields
        for entry in entries
        if isinstance(entry, Epoch)
        for fact in entry.added
        if isinstance(fact, Record) and fact.label == "divided"
    ]
    done = set(done_in(GroupHistory(GROUP, lambda _value: False, list(entries))))
    if len(set(divided)) < len(divided):
        yield "an item has two results"
    if set(divided) != done:
        yield f"items with a result or done, and not both: {set(divided) ^ done}"
    if not any(isinstance(entry, Note) and entry.fields[:1] == (GROUP,) for entry in entries):
        return
    there = {(each.number, index) for each in world.topic.epochs for index in range(len(each.items))}
    if done != there:
        yield f"items that are done or in the topic, and not both: {sorted(done ^ there)}"
