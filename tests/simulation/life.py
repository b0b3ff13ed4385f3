"""A life: a daemon, its clients, and what goes wrong, from one seed, in virtual time; and what came of it.

Always: a life has one thread; what it leaves on the disk of this machine is deleted.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from dataspace.kernel.epochs import Epoch
from relay.log.reader import LogReader, verify
from tests.guarantees.history import History
from tests.simulation.actors import Actor
from tests.simulation.daemons import Supervisor
from tests.simulation.entropy import virtual
from tests.simulation.faults import Faults
from tests.simulation.hosts import Host, here
from tests.simulation.judge import judge, judge_locks
from tests.simulation.network import Network
from tests.simulation.plan import Part, Plan
from tests.simulation.scheduling import run_ordered
from tests.simulation.seams import seams
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
    history: History


class _Complaints(logging.Handler):
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
def _listened() -> Iterator[_Complaints]:
    logger, heard = logging.getLogger("dataspace"), _Complaints()
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
    above = MEMORY if MEMORY.is_dir() else None
    # The names of files are in messages, which have to be the same each time.
    with tempfile.TemporaryDirectory(prefix="life-", dir=above) as place, contextlib.chdir(place):
        world = World(plan, Path(), keep_trace=keep_trace)
        with _listened() as heard, virtual(), seams(lambda: world.network):
            life = _Life(world)
            run_ordered(f"order {plan.seed}", life.run)
        world.faults.extend(heard.said)
        world.history.log = _read(life.daemons.data, world)
        if life.daemons.starts == 1:  # else they were shown what a crash has lost
            world.history.views |= world.eager
    return Outcome(
        (*world.faults, *judge(world.history), *judge_locks(world.history, world.locks)),
        world.digest,
        world.events,
        len(world.history.log),
        life.seconds,
        life.daemons.starts,
        tuple(world.lines or ()),
        world.history,
    )


def _read(directory: Path, world: World) -> list[Epoch]:
    damages = verify(directory).damages
    if damages:
        world.faults.append(f"the log is damaged: {damages}")
    reader = LogReader.open(directory)
    try:
        return list(reader.read(0))
    finally:
        reader.close()


class _Life:
    """The tasks of a life."""

    daemons: Supervisor

    def __init__(self, world: World) -> None:
        self._world = world
        self.seconds = 0.0

    async def run(self) -> None:
        """Everything, from the first daemon to the end of the last one."""
        world, plan = self._world, self._world.plan
        async with trio.open_nursery() as nursery:
            world.network = Network(plan.weather, f"network {plan.seed}", nursery, world.trace)
            self.daemons = Supervisor(world)
            async with trio.open_nursery() as supervised:
                supervised.start_soon(self.daemons.run)
                world.scope.deadline = trio.current_time() + PATIENCE
                with world.scope:
                    await self._act()
                if world.scope.cancelled_caught and not world.faults:
                    world.accuse(f"not done after {PATIENCE:g} s")
                    self.daemons.host.scope.cancel()
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
                    (watchers if part.kind in ("watcher", "peeker") else doers).start_soon(actor.run)
                for fault in plan.faults:
                    doers.start_soon(faults.strike, fault)
            self._world.trace("all done")
            await trio.sleep(SETTLING)
            await Actor(world, Part("mark", 0, 0.0), Host("mark", world.random("mark"))).run()
            while any(
                view.upto < world.last
                for view in [
                    *world.watched.values(),
                    *(world.eager.values() if self.daemons.starts == 1 else ()),
                ]
            ):
                await world.changed.wait()
            watchers.cancel_scope.cancel()
