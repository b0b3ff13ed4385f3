"""Members: several daemons over one store, each on a machine of its own, of which one leads each space.

Each has a supervisor, an address, a clock and a directory in which it remembers what it has seen.  The store
is simulated (``store/``); all of the product above psycopg's connections runs, in simulated threads.

Always: as ``daemons``; a daemon may end by itself only because the store was away at its start, was full, or
went back to a copy that lacks what the daemon has seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Final
from unittest.mock import patch

import psycopg
import trio

from dataspace.errors import Refused
from relay.journal.reader import JournalReader
from relay.log.log import Log
from relay.log.reader import LogReader
from relay.space_registers import space_registers
from relay.store.address import StoreAddress
from relay.store.errors import LogAway, LogDamaged, LogFailed
from relay.store.postgres import database, fenced, members
from relay.store.postgres.daemons import DaemonNotes
from relay.store.postgres.database import Database
from relay.store.postgres.members import SpaceTerms
from relay.store.postgres.tables import PostgresLog
from relay.store.postgres.topics import PostgresTopics
from relay.store.staging import Staging
from server.cluster.database import store as store_home
from server.cluster.database.drained import DRAIN, role_of
from server.cluster.database.store import TOPICS
from server.config.model import DURABLE, Cluster as ClusterConfig, Config, SpaceConfig
from server.home import SteppedDown
from server.spaces.roles import Followed
from server.spaces.space import HostedSpace
from tests.simulation.daemons import LIMITS, Supervisor
from tests.simulation.entropy import BEGAN
from tests.simulation.hosts import here
from tests.simulation.occurrences import Occurrence
from tests.simulation.plan import MAIN
from tests.simulation.store.server import Connection, Store
from tests.simulation.store.threads import simulated_threads
from tests.simulation.world import PORT, World

ADDRESS: Final = StoreAddress.parse("postgresql://store/life")

LEASE: Final = 1.5

LATEST: Final = 0.5
"""Seconds after which all have been started."""


@contextmanager
def stored(store: Store) -> Iterator[None]:
    """Has the product connect to a simulated store in place of PostgreSQL."""

    def shut_down(connection: Connection) -> None:
        connection.shut_down()

    with ExitStack() as held:
        held.enter_context(patch.object(psycopg, "connect", store.connect))
        for module in (database, fenced, members):
            held.enter_context(patch.object(module, "shut_down", shut_down))
        yield


class StoreCluster(Supervisor):
    """Keeps all of them up until ``stop``."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        random, weather = world.random("store"), world.plan.weather
        self.store: Final = Store(
            lambda: BEGAN + trio.current_time(),
            random,
            delay=lambda: 0.0 if random.random() < 0.3 else weather.delay * random.expovariate(2),
            loss=world.plan.loss,
            trace=world.trace,
            count=lambda name: world.count(Occurrence[name]),
        )
        world.went_back = lambda: self.store.went_back
        world.lost_acknowledged = lambda: self.store.lost_acknowledged
        self.failing: Final = trio.Lock()
        """Held while something is wrong with the store as a whole."""
        self.leading: Final[dict[str, Member]] = {}
        """By space, the daemon that led it last."""
        self.members: Final = [self._member(at) for at in range(len(world.plan.roles))]

    def _member(self, number: int) -> Member:
        return Member(self, self._world, number)

    async def run(self) -> None:
        """Starts them, each again when it has ended; returns when all have ended after ``stop``."""
        with ExitStack() as held:
            held.enter_context(stored(self.store))
            threads = held.enter_context(simulated_threads(self._world.network.nursery))
            threads.stuck = lambda: self._world.count(Occurrence.STUCK)
            held.enter_context(patch.object(store_home, "digest", lambda _config: bytes(16)))
            held.enter_context(self._noted())
            async with trio.open_nursery() as nursery:
                for each in self.members:
                    nursery.start_soon(each.run)

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """Notes which daemon leads a space from when on."""
        really = HostedSpace._begin_leading

        def lead(
            hosted: HostedSpace, log: Log, staging: Staging, before: Followed | None, unsaved: int = 0
        ) -> None:
            self._led(hosted.name, log, before is not None)
            really(hosted, log, staging, before, unsaved)

        with patch.object(HostedSpace, "_begin_leading", lead):
            yield

    def _led(self, space: str, log: Log, followed: bool) -> None:
        host = here()
        assert host is not None  # that of the daemon
        self._world.trace("leads", host.title, space, log.term)
        if followed and space == MAIN:
            self._world.count(Occurrence.PROMOTED)
        self.leading[space] = next(each for each in self.members if each.starts and each.host is host)
        history = self._world.histories[space]
        history.leaders[host.title] = log.term
        history.firsts[log.term] = log.next_epoch

    @property
    def running(self) -> list[Supervisor]:
        return [each for each in self.members if each.starts]

    def chosen(self, number: int) -> Supervisor:
        """Returns mostly a daemon that leads."""
        leading = [self.leading[each] for each in sorted(self.leading)]
        if leading and number % 3:
            return leading[number // 3 % len(leading)]
        return self.running[number // 3 % len(self.running)]

    def stop(self) -> None:
        self.store.mend()  # where the life has ended before a fault had
        for each in self.members:
            each.stop()

    def step_clock(self, seconds: float) -> None:
        """Sets the clock of one of their machines."""
        self._random.choice(self.running).step_clock(seconds)

    def log_of(self, space: str) -> LogReader:
        return LogReader.over(PostgresLog(self._database(), self._number(space)), registers=space_registers)

    def chain_of(self, space: str) -> list[tuple[int, int]]:
        number = self._number(space)
        rows = sorted((at[1], row) for at, row in self.store.seen["segments"].items() if at[0] == number)
        return [(row[9], row[1]) for _, row in rows]

    @contextmanager
    def reading(self) -> Iterator[None]:
        self.store.is_up = True  # if the life has ended before a fault had
        with stored(self.store):
            yield

    def journal(self) -> JournalReader:
        return JournalReader(PostgresTopics(self._database(), self._number(TOPICS)))

    def _database(self) -> Database:
        return Database(ADDRESS)

    def _number(self, space: str) -> int:
        found = [at for at, row in self.store.seen["spaces"].items() if row[0] == space]
        if not found:
            raise LogFailed(f"the store has no space {space!r}")
        return int(found[0])

    def want(self, space: str, daemon: int) -> None:
        """Has an operator move a space to a daemon, unless there is no store now."""
        wanted = self.members[daemon % len(self.members)].name
        with suppress(psycopg.OperationalError, LogFailed), closing(self.store.connect()) as connection:
            connection.execute(members._WANT, {"space": self._number(space), "wanted": wanted})
            self._world.count(Occurrence.WANTED)

    def role(self, name: str, do: str) -> None:
        """Has an operator drain or resume a daemon, unless there is no store now, or no other daemon."""
        with suppress(psycopg.OperationalError, LogFailed, Refused), closing(self._database()) as database:
            with closing(SpaceTerms(database)) as terms:
                if role_of(database, DaemonNotes(terms), name, do).changed and do == DRAIN:
                    self._world.count(Occurrence.DRAINED)

    def excuse(self) -> None:
        for each in self.members:
            each.excuse()


class Member(Supervisor):
    """Keeps one of them up."""

    def __init__(self, cluster: StoreCluster, world: World, number: int) -> None:
        super().__init__(world, f"daemon{number}")
        self._cluster = cluster
        self._number = number
        self.name: Final = f"daemon{number}"

    async def run(self) -> None:
        if self._number:
            await trio.sleep(self._random.uniform(0.0, LATEST))
        await super().run()

    def end(self) -> None:
        self._present.set()

    def stop(self) -> None:
        super().stop()
        if self.starts:
            self._present.set()

    async def _live(self) -> None:
        self._cluster.starts += 1
        self._begin(self.starts * len(self._cluster.members) + self._number + 2)
        self._present = ending = trio.Event()
        if self._ending.is_set():
            ending.set()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._serve, self.host, self._config(), ending)
        if not self.host.is_dead:
            self._world.trace("ended", self.host.title)

    def _config(self) -> Config:
        spaces = [SpaceConfig(name, ADDRESS, show=DURABLE) for name in self._world.plan.spaces]
        return Config(
            listen=(f"tcp:127.0.0.1:{PORT + self._number}",),
            data=ADDRESS,
            limits=LIMITS,
            loop="task",
            show=DURABLE,
            spaces=tuple(spaces),
            cluster=ClusterConfig(name=self.name, lease=LEASE, state=self._world.place / self.name),
        )

    def _is_planned(self, error: BaseException) -> bool:
        store = self._cluster.store
        if store.went_back and isinstance(error, LogDamaged | LogFailed):
            self._world.cut_short()
            return True
        if isinstance(error, LogAway) or (store.went_back and isinstance(error, SteppedDown)):
            return True  # the other part of its failures says that the store went back
        return isinstance(error, LogFailed) and (self._is_excused or store.is_full)
