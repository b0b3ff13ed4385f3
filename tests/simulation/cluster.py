"""Clusters: several daemons over one data directory, of which one leads and the others follow.

All are processes of one machine, each with a supervisor and an address of its own.  A daemon leads if no
other one does when it is started; else it follows, and most stand by.  The logs are in memory, and a write of
theirs is one step, so what is there when a leader dies is what the next one finds.

Always: as ``daemons``; a power failure ends all of them.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Final

import trio

from relay.store.lock import DataInUse
from server.cluster.directory.home import directory_of
from server.config.model import Config, Follow
from tests.simulation.daemons import Supervisor
from tests.simulation.disks import Volume, mounted
from tests.simulation.hosts import here
from tests.simulation.machine import Machine, one_machine
from tests.simulation.occurrences import Occurrence
from tests.simulation.plan import FOLLOWS, MAIN
from tests.simulation.world import PORT, World

LATEST: Final = 0.5
"""Seconds after which all have been started."""


class Cluster(Supervisor):
    """Keeps all of them up until ``stop``."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.machine: Final = Machine()
        self.volume = Volume(None, self._left, world.count)
        self.members: Final = [self._member(at, role) for at, role in enumerate(world.plan.roles)]

    def _member(self, number: int, role: str) -> Member:
        return Member(self, self._world, number, role)

    async def run(self) -> None:
        """Starts them, each again when it has ended; returns when all have ended after ``stop``."""
        with ExitStack() as held:
            held.enter_context(mounted(self.volume))
            held.enter_context(one_machine(self.machine, self._led))
            async with trio.open_nursery() as nursery:
                for each in self.members:
                    nursery.start_soon(each.run)

    def _led(self, space: str, term: int, first: int, followed: bool) -> None:
        """Notes that the present daemon leads a space from now on."""
        host = here()
        assert host is not None  # that of the daemon
        self._world.trace("leads", host.title, space, term)
        if followed and space == MAIN:
            self._world.count(Occurrence.PROMOTED)
        history = self._world.histories[space]
        history.leaders[host.title] = term
        history.firsts[term] = first

    @property
    def running(self) -> list[Supervisor]:
        return [each for each in self.members if each.starts]

    def chosen(self, number: int) -> Supervisor:
        """Returns mostly the daemon that leads."""
        leader = self.machine.holders.get(self.data)
        leading: list[Supervisor] = [each for each in self.members if each.starts and each.host is leader]
        if leading and number % 3:
            return leading[0]
        return self.running[number // 3 % len(self.running)]

    def stop(self) -> None:
        for each in self.members:
            each.stop()

    def step_clock(self, seconds: float) -> None:
        for each in self.running:
            each.step_clock(seconds)
        for each in self.members:
            each.offset = self.members[0].offset

    def excuse(self) -> None:
        for each in self.members:
            each.excuse()

    def cut_power(self) -> None:
        """Ends all daemons, since their machine has no power."""
        for each in self.running:
            each.host.die(power=True)


class Member(Supervisor):
    """Keeps one of them up."""

    def __init__(self, cluster: Cluster, world: World, number: int, role: str) -> None:
        super().__init__(world, f"daemon{number}")
        self._cluster = cluster
        self._number = number
        self._role = role
        self.volume = cluster.volume

    async def run(self) -> None:
        if self._number:
            await trio.sleep(self._random.uniform(0.0, LATEST))
        await super().run()

    def end(self) -> None:
        """Has the present daemon end in order."""
        self._present.set()

    def stop(self) -> None:
        super().stop()
        if self.starts:
            self._present.set()

    async def _live(self) -> None:
        self._cluster.starts += 1
        self._begin(self.starts * len(self._cluster.members) + self._number + 2)
        volume, ending = self.volume, trio.Event()
        self._present = ending
        self._is_excused = volume.is_full or volume.fails_next_sync
        if self._ending.is_set():
            ending.set()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._serve, self.host, self._config(), ending)
        if not self.host.is_dead:
            self._world.trace("ended", self.host.title)

    def _died(self, power: bool) -> None:
        super()._died(power)
        if power:
            self._cluster.cut_power()

    def _config(self) -> Config:
        config = super()._config()
        follow = Follow()
        if self._role == FOLLOWS or self._cluster.machine.holders:
            follow = Follow(data=directory_of(config), stand_by=self._role != FOLLOWS)
        self._world.trace("role", self.host.title, "follows" if follow.data else "leads")
        return replace(config, listen=(f"tcp:127.0.0.1:{PORT + self._number}",), follow=follow)

    def _is_planned(self, error: BaseException) -> bool:
        return super()._is_planned(error) or isinstance(error, DataInUse)
