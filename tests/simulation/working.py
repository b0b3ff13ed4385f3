"""Working: members of a group that divides what writers say; each job leaves a fact in the turn that does it.

A *worker* has a durable owner.  It takes jobs, does most of them, gives some back, forgets some, and may
vanish with what it has.  In the end all jobs must be done, each once.

Always: as ``actors``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import trio

import dataspace
from dataspace import Record
from dataspace.client.reports import forget, refused
from dataspace.errors import Broken, DataspaceError, DeliveryLost, Refused
from dataspace.kernel.changes import Epoch
from index.patterns.text import parse_pattern
from relay.log.notes import Note
from tests.guarantees.groups import entries_of
from tests.model.groups import GroupHistory, Told, broken_groups, done_in, left
from tests.model.patterns import match
from tests.simulation.actors import OF_THE_DISK, Actor
from tests.simulation.occurrences import Occurrence
from tests.simulation.plan import SECONDS
from tests.simulation.world import World

GROUP: Final = "work"
PATTERN: Final = "said($who, $n)"
ACK_WITHIN: Final = 1.5
FAITHFUL: Final = SECONDS + 2.0
"""From when on workers do each job at once: a clock that stands still makes all that is put off later."""

GOES_ON: Final = (*OF_THE_DISK, "epoch-lost", "no-group", "not-applied")
"""Codes after which a worker joins again."""


async def work(actor: Actor) -> None:
    """Takes jobs until the life ends."""
    key = actor.world.random("key").choice((None, "who"))
    async with actor.connected(owner=f"worker{actor.part.rank}") as space:
        while True:
            in_flight = actor.random.choice((1, 1, 3, 8))
            try:
                async with space.consume(
                    PATTERN, group=GROUP, key=key, in_flight=in_flight, ack_within=ACK_WITHIN, attempts=0
                ) as jobs:
                    async for job in jobs:
                        await _take(actor, space, jobs, job)
            except Refused as refusal:
                if refusal.code not in GOES_ON:
                    raise
            await trio.sleep(0.1)


async def _take(actor: Actor, space: dataspace.RemoteSpace, jobs: dataspace.Jobs, job: dataspace.Job) -> None:
    world, random = actor.world, actor.random
    note_told(actor, GROUP, job)
    await trio.sleep(random.choice((0.0, 0.0, 0.02, 0.2)))
    chance = random.random() if trio.current_time() < FAITHFUL else 1.0
    if chance < 0.03 and actor.part.rank:
        await actor.vanish()
    if chance < 0.1:
        world.count(Occurrence.FORGOTTEN)  # until its time is over
    elif chance < 0.2:
        await give_back(job, after=random.choice((0.0, 0.3)), blame=random.random() < 0.5)
    elif chance < 0.25:
        await trio.sleep(ACK_WITHIN + 0.2)  # somebody else may have it by now
        await report(actor, space, jobs, job, "worked")
    else:
        await report(actor, space, jobs, job, "worked")


def note_told(actor: Actor, group: str, job: dataspace.Job) -> None:
    """Notes that a member of a group has taken a job."""
    at = job.epoch, job.position
    told = Told(at, job.token, actor.host.name, job.captures, job.attempt)
    actor.world.told[group].append(told)
    actor.world.trace("job", actor.host.name, *at, job.token)


async def give_back(job: dataspace.Job, *, after: float, blame: bool) -> None:
    """Gives a job back, unless it is lost."""
    try:
        await job.again(after, blame=blame)
    except (DeliveryLost, Broken):
        pass  # it comes again in any case
    except Refused as refusal:
        if refusal.code not in GOES_ON:
            raise


async def report(
    actor: Actor, space: dataspace.RemoteSpace, jobs: dataspace.Jobs, job: dataspace.Job, label: str
) -> None:
    """Reports a job as done in a turn that asserts a fact with this label."""
    after = actor.world.last[actor.part.space]
    draft = space.draft()
    draft.assert_(Record(label, job.epoch, job.position))
    try:
        draft.deliveries = await jobs.deliveries([job])
        ticket = await space.submit(draft)
        await actor.note(f"owner:{actor.part.kind}{actor.part.rank}", ticket, after)
        await ticket.wait()
    except DataspaceError as error:
        refused([job], error)
        if isinstance(error, DeliveryLost):
            actor.world.count(Occurrence.LATE)
        elif not (isinstance(error, Refused) and error.code in (*GOES_ON, "out-of-order")):
            raise
    else:
        forget([job])
        actor.world.count(Occurrence.JOB)


async def finish(actor: Actor, group: str = GROUP) -> None:
    """Waits until no job is left, and that is on disk."""
    async with actor.connected(owner="finisher") as space:
        was_idle = False
        while True:
            try:
                answer: Any = await space.request("groups", dataspace.Map({"group": group}))
                is_idle = answer[0]["undone"] == answer[0]["behind"] == 0
                if is_idle and was_idle:
                    return
                await space.sync()
                was_idle = is_idle
            except (Broken, Refused) as error:
                was_idle = False
                if isinstance(error, Refused) and error.code not in GOES_ON:
                    raise
            await trio.sleep(0.1)


def misdone(world: World, entries: Sequence[Epoch | Note]) -> Iterator[str]:
    """Yields what is wrong with the jobs of a life, by the entries of its log."""
    key = _who if _has_key(world) else None
    history = GroupHistory(
        *(partial(match, parse_pattern(PATTERN)), entries_of(entries, GROUP), world.told[GROUP], key),
        world.reports[GROUP],
    )
    yield from misreported(history, entries, "worked")


def misreported(history: GroupHistory, entries: Sequence[Epoch | Note], label: str) -> Iterator[str]:
    """Yields what is wrong with a group whose members assert a fact with this label for each item."""
    yield from broken_groups(history)
    results = [
        (fact.fields[0], fact.fields[1])
        for entry in entries
        if isinstance(entry, Epoch)
        for fact in entry.added
        if isinstance(fact, Record) and fact.label == label
    ]
    if len(set(results)) < len(results):
        yield "an item has two results"
    if set(results) != set(done_in(history)):
        yield f"items with a result or done, and not both: {set(results) ^ set(done_in(history))}"
    if lost := left(history):
        yield f"items that nobody has done: {lost}"


def _who(value: Any) -> Any:
    return value.fields[0]


def _has_key(world: World) -> bool:
    return world.random("key").choice((None, "who")) is not None
