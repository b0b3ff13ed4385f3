"""Successions in a cluster: three daemons over one PostgreSQL, any of which leads after any other.

Leaders are killed, ended in order, stopped for longer than their lease so that they wake after their term, or
hand over; followers are killed; leaders are stopped for less than a lease.  All clients have the addresses of
all daemons.

Always: as ``successions``.
"""

from __future__ import annotations

import signal
from contextlib import closing, suppress
from pathlib import Path
from typing import ClassVar, Final

import trio

import dataspace
from dataspace.errors import Broken, Refused, Unreachable
from relay.log.reader import LogReader, verdict
from relay.space_registers import space_registers
from relay.store.address import StoreAddress
from relay.store.postgres.database import Database
from relay.store.postgres.tables import PostgresLog
from tests.server.processes import DaemonProcess, command
from tests.torture.successions import SEEN, Strikes, Successions

NAMES: Final = ("one", "two", "three")

LEASE: Final = 1.0
"""Seconds of the daemons' lease."""

_SEGMENTS: Final = """
SELECT s.term, s.first FROM {s}.segments AS s JOIN {s}.spaces USING (space)
WHERE name = 'main' AND segment < 1::int8 << 40 ORDER BY segment
"""


class ClusterSuccession(Successions):
    """The daemons of one store."""

    def __init__(self, store: str, folder: Path, seed: int) -> None:
        """The daemons have their configurations in ``folder``."""
        daemons = []
        for name in NAMES:
            file = folder / f"{name}.toml"
            file.write_text(f'cluster.name = "{name}"\ncluster.lease = {LEASE}\n')
            daemons.append(DaemonProcess(store, "--config", str(file)))
        one, two, three = daemons
        super().__init__(self._log, (one, two, three), seed)
        self._store = store
        self._database = Database(StoreAddress.parse(store))
        self.leader = one

    def _log(self) -> LogReader:
        [(number,)] = self._database.rows("SELECT space FROM {s}.spaces WHERE name = 'main'", {})
        return LogReader.over(PostgresLog(self._database, number), registers=space_registers)

    async def begin(self) -> None:
        for each in self._daemons:
            await trio.to_thread.run_sync(each.start)
        await self._find()

    async def end(self) -> None:
        await self._find()
        for each in [*[each for each in self._daemons if each is not self.leader], self.leader]:
            assert await trio.to_thread.run_sync(each.stop) == 0, each.errors
        with closing(self._log()) as log:
            assert verdict(log).damages == ()
        self.history.chain = [(term, first) for term, first in self._database.rows(_SEGMENTS, {})]

    def close(self) -> None:
        """Ends what still runs."""
        for each in self._daemons:
            if each.process.poll() is None:
                each.process.send_signal(signal.SIGCONT)
                each.kill()
        self._database.close()

    async def _find(self) -> None:
        """Notes which daemon leads, once one does."""
        while True:
            for each in self._daemons:
                with suppress(Unreachable, Broken, Refused), trio.move_on_after(2 * LEASE):
                    async with dataspace.connect(each.url, timeout=2 * LEASE) as asked:
                        told = await asked.status()
                    if told["leads"] is True and told["process"] == each.process.pid:
                        self.leader = each
                        return
            await trio.sleep(0.05)

    async def _accepts(self) -> None:
        """Returns once some turns more were accepted."""
        turns = self.history.turns
        enough = sum(isinstance(turn.answer, int) for turn in turns) + SEEN
        await self._wait(lambda: sum(isinstance(turn.answer, int) for turn in turns) >= enough)

    async def _pass_on(self, ended: DaemonProcess | None = None) -> None:
        self.promotions += 1
        await self._accepts()
        if ended is not None:
            await trio.to_thread.run_sync(ended.start)
        await self._find()
        await self.borrow(self.leader.url, self.promotions)

    # -- strikes --------------------------------------------------------------------------------------

    async def kill_leader(self) -> None:
        """The leader is killed at a random instant."""
        await self._find()
        daemon = self.leader
        await trio.to_thread.run_sync(daemon.kill)
        await self._pass_on(daemon)

    async def end_leader(self) -> None:
        """The leader ends in order."""
        await self._find()
        daemon = self.leader
        assert await trio.to_thread.run_sync(daemon.stop) == 0, daemon.errors
        await self._pass_on(daemon)

    async def stop_leader_for_long(self) -> None:
        """The leader is stopped until its lease is over, and wakes after its term."""
        await self._find()
        await self._stop(self.leader, self.random.uniform(1.2 * LEASE, 2.5 * LEASE))
        await self._pass_on()

    async def move(self) -> None:
        """The leader hands over to another daemon."""
        await self._find()
        name = self.random.choice(
            [n for n, each in zip(NAMES, self._daemons, strict=True) if each is not self.leader]
        )
        words = ["cluster", "move", "main", name, "--data", self._store, "--within", "20s"]
        await command(*words)
        await self._pass_on()

    async def stop_leader(self) -> None:
        """The leader is stopped for less than its lease."""
        await self._find()
        await self._stop(self.leader, self.random.uniform(0.0, 0.5 * LEASE))
        await self._accepts()

    async def kill_follower(self) -> None:
        """A follower is killed, and started anew."""
        await self._find()
        daemon = self.random.choice([each for each in self._daemons if each is not self.leader])
        await trio.to_thread.run_sync(daemon.kill)
        await trio.to_thread.run_sync(daemon.start)
        await self._accepts()

    async def _stop(self, daemon: DaemonProcess, seconds: float) -> None:
        daemon.process.send_signal(signal.SIGSTOP)
        await trio.sleep(seconds)
        daemon.process.send_signal(signal.SIGCONT)

    LEADING: ClassVar[Strikes] = {
        "a leader, killed": kill_leader,
        "a leader, ended in order": end_leader,
        "a leader, stopped beyond its lease": stop_leader_for_long,
        "a leader, that hands over": move,
    }
    OTHERS: ClassVar[Strikes] = {
        "a leader, stopped for a while": stop_leader,
        "a follower, killed": kill_follower,
    }
