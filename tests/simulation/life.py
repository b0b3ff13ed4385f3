"""A life: a daemon, its clients, and what goes wrong, from one seed, in virtual time; and what came of it.

Always: a life has one thread; what it leaves on the disk of this machine is deleted.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import trio

from dataspace.client.completed import CompletedEpoch
from dataspace.codec import unpack
from dataspace.kernel.changes import Epoch
from index.values.values import Value
from relay.journal.reader import JournalReader, topics_verdict
from relay.log.notes import Note
from relay.log.reader import LogReader, verdict
from relay.store.errors import LogDamaged, LogFailed
from relay.topics.steps import LAST
from server.config.model import DURABLE
from tests.guarantees.history import History, take_in
from tests.guarantees.rules import DERIVED
from tests.guarantees.validators import broken, durability, judged
from tests.model.topics import KeptEpoch
from tests.relay.store.memory import in_memory
from tests.simulation.actors import Actor
from tests.simulation.cluster import Cluster
from tests.simulation.daemons import Supervisor
from tests.simulation.disks import fault_of
from tests.simulation.dividing import misdivided
from tests.simulation.entropy import virtual
from tests.simulation.faults import Faults
from tests.simulation.hosts import Host, here
from tests.simulation.kinds import KINDS, LASTING
from tests.simulation.network import Network
from tests.simulation.occurrences import Occurrence
from tests.simulation.plan import MAIN, SIDE, Part, Plan
from tests.simulation.scheduling import run_ordered
from tests.simulation.seams import seams
from tests.simulation.topics import PARTITIONS, is_over
from tests.simulation.working import misdone
from tests.simulation.world import World

PATIENCE: Final = 120.0
"""Seconds after which all must be done, at the latest."""

SETTLING: Final = 4.0
"""Seconds in which sessions and leases end whose clients have vanished."""

MEMORY: Final = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a life."""

    wrong: tuple[str, ...]
    digest: str
    events: int
    epochs: int
    seconds: float
    """Virtual ones."""
    starts: int
    trace: tuple[str, ...]
    counts: tuple[tuple[str, int], ...]
    """How often what happened in it, beside what clients do."""


class Complaints(logging.Handler):
    """Takes what the product calls its own defects."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        host = here()
        if host is not None and host.is_dead:
            return
        if "defect" in text or "damaged" in text:
            error = record.exc_info[1] if record.exc_info else None
            self.said.append(f"the log says: {text}: {error!r}")


@contextmanager
def listened() -> Iterator[Complaints]:
    logger, heard = logging.getLogger("dataspace"), Complaints()
    before = logger.level, logger.propagate
    logger.addHandler(heard)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        yield heard
    finally:
        logger.removeHandler(heard)
        logger.level, logger.propagate = before


def live(plan: Plan, *, keep_trace: bool = False) -> Outcome:
    """Lives one life, and judges it."""
    above, make = MEMORY if MEMORY.is_dir() else None, _made(plan)
    # The names of files are in messages, which have to be the same each time.
    with tempfile.TemporaryDirectory(prefix="life-", dir=above) as place, contextlib.chdir(place):
        world = World(plan, Path(), keep_trace=keep_trace)
        with in_memory(fault_of) if plan.memory else contextlib.nullcontext():
            with listened() as heard, virtual(), seams(lambda: world.network):
                life = _Life(world, make)
                run_ordered(f"order {plan.seed}", life.run)
            if not world.is_cut_short:
                world.faults.extend(heard.said)
            with life.daemons.reading():
                for space in (MAIN, *plan.spaces):
                    with _readable(world):
                        world.histories[space].chain = life.daemons.chain_of(space)
                        world.histories[space].log = _read(partial(life.daemons.log_of, space), world)
                with _readable(world):
                    world.entries = _read_entries(partial(life.daemons.log_of, MAIN))
                with _readable(world):
                    world.topic.epochs = _read_topic(life.daemons.journal, world)
        world.starts = life.daemons.starts
        if life.daemons.starts == 1:  # else they were shown what a crash has lost
            for name, (space, view) in world.eager.items():
                world.histories[space].views[name] = view
    _count(world)
    return Outcome(
        (*world.faults, *_broken(world)),
        world.digest,
        world.events,
        sum(len(each.log) for each in world.histories.values()),
        life.seconds,
        life.daemons.starts,
        tuple(world.lines or ()),
        tuple(sorted(world.counts.items())),
    )


def _broken(world: World) -> Iterator[str]:
    """Yields what is wrong by the histories; of a life that was cut short, what was acknowledged and lost."""
    for space, history in world.histories.items():
        if world.is_cut_short:
            turns = [
                each for each in history.turns if (space, each.client, each.sequence) not in world.may_be_lost
            ]
            yield from [f"durability: {said}" for said in durability(History(turns=turns, log=history.log))]
        else:
            yield from broken(history)
            if not world.plan.roles:  # else another daemon may have taken over just now
                yield from _held_by_nobody(history)
    if any(each.kind == "worker" for each in world.plan.actors) and not world.is_cut_short:
        yield from [f"groups: {said}" for said in misdone(world)]
    if any(each.kind == "divider" for each in world.plan.actors) and not world.is_cut_short:
        yield from [f"groups: {said}" for said in misdivided(world)]


def _held_by_nobody(history: History) -> Iterator[str]:
    """Yields the leases that hold facts in the end, when all their clients have vanished."""
    claims: dict[str, dict[int, Value]] = {}
    for epoch in history.log:
        take_in(claims, epoch)
    for owner, held in claims.items():
        if owner.startswith("lease:") and held:
            yield f"leases: {owner} holds {list(held.values())}, and nobody renews it"


def _count(world: World) -> None:
    """Counts what the histories show."""
    turns = [turn for history in world.histories.values() for turn in history.turns]
    world.count(Occurrence.REFUSED, sum(isinstance(each.answer, str) for each in turns))
    world.count(Occurrence.EXPECTED, sum(each.answer == "expectation" for each in turns))
    world.count(Occurrence.SHARED, sum(bool(each.others) for each in turns if isinstance(each.answer, int)))
    derived = [each for history in world.histories.values() for epoch in history.log for each in epoch.claims]
    world.count(Occurrence.DERIVED, sum(len(each.asserted) for each in derived if each.owner == DERIVED))
    world.count(Occurrence.SIDE, len(world.histories[SIDE].log))
    world.count(Occurrence.TOPIC, len(world.topic.epochs))
    world.count(Occurrence.CRASHED, sum(bool(each.crashed) for each in world.topic.epochs))
    world.count(Occurrence.SEEN, sum(len(each.epochs) for each in world.topic.seen.values()))
    for history in world.histories.values():
        world.counts.update(judged(history))


@contextmanager
def _readable(world: World) -> Iterator[None]:
    try:
        yield
    except (LogFailed, LogDamaged) as error:
        world.faults.append(f"what is left cannot be read: {error}")


def _read_topic(opened: Callable[[], JournalReader], world: World) -> list[KeptEpoch]:
    """Returns the completed epochs of the one topic, if there is one."""
    if damages := topics_verdict(opened).damages:
        world.faults.append(f"the journal of topics is damaged: {damages}")
    with closing(opened()) as journal:
        slots = journal.slots()
        if len(slots) > 1:
            world.faults.append(f"the journal has {len(slots)} topics of one name")
        return [
            CompletedEpoch(each.number, each.time, tuple(_items(each.items)), each.crashed)
            for slot in slots
            for each in journal.pieces(slot, PARTITIONS, 0, LAST, None, 1 << 30)
        ]


def _items(batches: Iterable[bytes]) -> Iterator[Value]:
    for batch in batches:
        items = unpack(batch)
        assert isinstance(items, tuple)  # by WIRE.md
        yield from items


def _read(opened: Callable[[], LogReader], world: World) -> list[Epoch]:
    with closing(opened()) as reader:
        damages = verdict(reader).damages
        if damages and not world.is_cut_short:  # else a daemon has said so, and does not go on
            world.faults.append(f"the log is damaged: {damages}")
    with closing(opened()) as reader:
        return list(reader.read(0))


def _read_entries(opened: Callable[[], LogReader]) -> list[Epoch | Note]:
    with closing(opened()) as reader:
        return [each for segment in reader.segments(0, reader.last) for each in segment.items()]


def _made(plan: Plan) -> Callable[[World], Supervisor]:
    """Returns what keeps up the daemons of a plan."""
    if plan.store:
        from tests.simulation.members import StoreCluster  # other lives need no psycopg

        return StoreCluster
    return Cluster if plan.roles else Supervisor


class _Life:
    """The tasks of a life."""

    daemons: Supervisor

    def __init__(self, world: World, make: Callable[[World], Supervisor]) -> None:
        self._world = world
        self._make = make
        self.seconds = 0.0

    async def run(self) -> None:
        """Everything, from the first daemon to the end of the last one."""
        world, plan = self._world, self._world.plan
        async with trio.open_nursery() as nursery:
            world.network = Network(plan.weather, f"network {plan.seed}", nursery, world.trace, world.count)
            self.daemons = self._make(world)
            async with trio.open_nursery() as supervised:
                supervised.start_soon(self.daemons.run)
                while not self.daemons.running:
                    await trio.lowlevel.checkpoint()
                world.scope.deadline = trio.current_time() + PATIENCE
                with world.scope:
                    await self._act()
                if world.scope.cancelled_caught and not world.faults and not world.is_cut_short:
                    world.accuse(f"not done after {PATIENCE:g} s")
                    for each in self.daemons.running:
                        each.host.scope.cancel()
                self.daemons.stop()
            nursery.cancel_scope.cancel()
        self.seconds = trio.current_time()

    async def _act(self) -> None:
        world, plan = self._world, self._world.plan
        faults = Faults(world, self.daemons)
        doing = []
        for part in plan.actors:
            name = f"{part.kind}{part.number}"
            host = world.clients[name] = Host(name, world.random(name))
            doing.append((part, Actor(world, part, host)))
        async with trio.open_nursery() as watchers:
            async with trio.open_nursery() as doers:
                for part, actor in doing:
                    nursery = watchers if part.kind in LASTING else doers
                    nursery.start_soon(actor.run, KINDS[part.kind])
                for fault in plan.faults:
                    doers.start_soon(faults.strike, fault)
            self._world.trace("all done")
            await trio.sleep(SETTLING)
            await trio.sleep_until(world.begun_at + SETTLING)  # a start grants leases anew
            for space in (MAIN, *plan.spaces):
                await self._mark("mark", space)
            if any(each.kind == "worker" for each in plan.actors):
                await self._mark("end of work", MAIN)
            if any(each.kind in ("publisher", "subscriber") for each in plan.actors):
                await self._mark("end of topic", MAIN)
            if any(each.kind == "divider" for each in plan.actors):
                await self._mark("end of items", MAIN)
            while not self._all_seen():
                await world.changed.wait()
            watchers.cancel_scope.cancel()

    async def _mark(self, kind: str, space: str) -> None:
        name = f"{kind} {space}"
        actor = Actor(self._world, Part(kind, 0, 0.0, space=space), Host(name, self._world.random(name)))
        await actor.run(KINDS[kind])

    def _all_seen(self) -> bool:
        """True once observers and subscribers have been shown all that there is."""
        world = self._world
        is_kept = self.daemons.starts == 1 or world.plan.show == DURABLE
        eager = world.eager.values() if is_kept else ()
        return all(view.upto >= world.last[space] for space, view in (*world.watched.values(), *eager)) and (
            world.topic_end is None
            or all(is_over(seen, world.topic_end) for seen in world.topic.seen.values())
        )
