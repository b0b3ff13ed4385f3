"""The daemon of a life, and its supervisor, which starts it again whenever it has ended.

It is the whole daemon: ``serve``, with its listener, its logs and its tasks.  Each start is a host of its
own, and has the files that the one before it has left.

Always: a daemon that ends without having been made to is accused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import trio

from relay.journal.reader import JournalReader
from relay.log.reader import LogReader
from relay.space_registers import space_registers
from relay.store.errors import LogFailed
from relay.store.lock import DataUnusable
from server.config.model import Config, Limits, SpaceConfig
from server.daemon.serve import serve
from tests.relay.store.memory import move_memories
from tests.simulation.disks import Volume, mounted
from tests.simulation.hosts import Host
from tests.simulation.occurrences import Occurrence
from tests.simulation.plan import MAIN
from tests.simulation.world import PORT, World

LIMITS: Final = Limits(heartbeat_seconds=1.0, stalled_seconds=20.0)


class Supervisor:
    """Keeps a daemon up until ``stop``; has the present one's host and volume."""

    host: Host
    volume: Volume

    def __init__(self, world: World, name: str = "daemon") -> None:
        self.starts = 0
        self._name = name
        self.offset = 0.0
        """Of the clock of its machine."""
        self._world = world
        self._random = world.random("supervisor" if name == "daemon" else f"supervisor of {name}")
        self._ending = trio.Event()
        self._is_excused = False
        self._lost_power = False
        self._left = world.place / "new"
        self._left.mkdir(exist_ok=True)

    async def run(self) -> None:
        """Starts one daemon after the other; returns when one has ended after ``stop``."""
        while True:
            await self._live()
            if self._ending.is_set() and not self.host.is_dead:
                return
            if not self.host.is_dead:
                await trio.sleep(0.2)  # it has failed to begin, or its disk has
            await trio.sleep(self._random.choice((0.0, 0.02, 0.3)))

    def stop(self) -> None:
        """Has the daemon end in order."""
        self._ending.set()

    @property
    def running(self) -> list[Supervisor]:
        """What keeps up each daemon that has been started."""
        return [self]

    def chosen(self, _number: int) -> Supervisor:
        """Returns what keeps up the daemon that a number stands for."""
        return self

    def end(self) -> None:
        """Has the present daemon end in order."""
        raise NotImplementedError("a single daemon ends at the end of a life alone")

    def step_clock(self, seconds: float) -> None:
        """Sets the clock of its machine."""
        self.host.offset += seconds
        self.offset += seconds

    def excuse(self) -> None:
        """The present daemon may end by itself, since its disk fails."""
        self._is_excused = True

    @property
    def data(self) -> Path:
        """The directory of the present daemon, or of the last one."""
        return self.volume.place

    def log_of(self, space: str) -> LogReader:
        """Opens the log of a space, as the daemons have left it."""
        return LogReader.open(self.data / space if space != MAIN else self.data, registers=space_registers)

    def chain_of(self, space: str) -> list[tuple[int, int]]:
        """Returns the term of each segment in a store, and its first epoch."""
        return []

    def journal(self) -> JournalReader:
        """Opens the journal of topics, likewise."""
        return JournalReader.open(self.data)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Within the block ``log_of`` and ``journal`` can be called, once all daemons have ended."""
        yield

    def _begin(self, process: int) -> str:
        """Makes the host of the next daemon, and returns the name of that."""
        self.starts += 1
        self._world.begun_at = trio.current_time()
        name = f"{self._name}.{self.starts}"
        self.host = host = Host(self._name, self._world.random(name), process)
        host.offset = self.offset
        host.at_death.append(self._died)
        self._is_excused = self._lost_power = False
        self._world.trace("start", name)
        return name

    async def _live(self) -> None:
        name = self._begin(1)
        host, self.volume = self.host, Volume(self.host, self._left, self._world.count)
        with mounted(self.volume):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._serve, host, self._config(), self._ending)
        if not host.is_dead:
            self._world.trace("ended", name)
        self._left = self._world.place / name
        self.volume.leave(self._left, self._random if self._lost_power else None)
        move_memories(self.volume.place, self._left)

    def _died(self, power: bool) -> None:
        self._lost_power = power
        self._world.count(Occurrence.POWERLESS if power else Occurrence.KILLED)
        self._world.trace("died", "power" if power else "killed")

    def _config(self) -> Config:
        place, show = self.volume.place, self._world.plan.show
        return Config(
            listen=(f"tcp:127.0.0.1:{PORT}",),
            data=place,
            limits=LIMITS,
            loop="task",  # sockets are simulated below trio's calls, and an epoll knows of none
            show=show,
            spaces=tuple([SpaceConfig(name, place / name, show=show) for name in self._world.plan.spaces]),
        )

    async def _serve(self, host: Host, config: Config, ending: trio.Event) -> None:
        host.enter()
        with ExitStack() as held:
            held.callback(self._world.note)
            try:
                with host.scope:
                    await serve(config, ending=ending)
            except Exception as error:  # noqa: BLE001  # whatever ends a daemon is judged
                self._judge(host, error)

    def _judge(self, host: Host, error: Exception) -> None:
        """Accuses the daemon of an end that nothing had brought about."""
        errors = _leaves(error)
        if host.is_dead or all(self._is_planned(each) for each in errors):
            return
        said = "; ".join(f"{type(each).__name__}: {each}" for each in errors)
        self._world.accuse(f"the daemon ended by itself: {said}")

    def _is_planned(self, error: BaseException) -> bool:
        return self._is_excused and isinstance(error, (LogFailed, DataUnusable))


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in _leaves(each)]
    return [error]
