"""Faults: what goes wrong in a life, at the instants that its plan says.

Always: what lasts for a time is over after it, also if the daemon has been started anew meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, Final, cast

import trio

from server.cluster.database.drained import DRAIN, RESUME
from tests.simulation.daemons import Supervisor
from tests.simulation.hosts import Host
from tests.simulation.network import Line
from tests.simulation.occurrences import Occurrence
from tests.simulation.plan import MAIN, Part
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.members import StoreCluster


SHORT: Final = 1.5
"""Seconds for which there is no store, at most."""

SLOW: Final = 0.1
"""Seconds by which what goes to a slow store and comes back is late, about."""


class Faults:
    """What can go wrong in a life."""

    def __init__(self, world: World, daemons: Supervisor) -> None:
        self._world = world
        self._daemons = daemons

    async def strike(self, part: Part) -> None:
        """Waits until it is time, strikes, and returns when it is over."""
        await trio.sleep(part.at)
        self._world.trace("fault", part)
        await KINDS[part.kind](self, part)

    async def kill(self, part: Part) -> None:
        """The process of a daemon is killed."""
        self._daemons.chosen(part.target).host.die(power=False)
        await trio.lowlevel.checkpoint()

    async def cut_power(self, part: Part) -> None:
        """The machine of the daemons stops: what is not synced may be lost, and nobody is told."""
        self._daemons.chosen(part.target).host.die(power=True)
        await trio.lowlevel.checkpoint()

    async def kill_at_write(self, part: Part) -> None:
        """The same in the midst of what it writes."""
        self._die_at(part, power=False)
        await trio.lowlevel.checkpoint()

    async def cut_power_at_write(self, part: Part) -> None:
        """The same in the midst of what it writes."""
        self._die_at(part, power=True)
        await trio.lowlevel.checkpoint()

    def _die_at(self, part: Part, *, power: bool) -> None:
        volume = self._daemons.volume
        volume.dies_at = volume.asked + 1 + part.target // 4, power
        volume.dies_at_sync = power and part.target % 2 == 1  # of all that is written before, some is torn

    async def cut(self, part: Part) -> None:
        """A connection is reset."""
        for line in self._some_line(part):
            line.reset("cut")
            self._world.count(Occurrence.CUT)
        await trio.lowlevel.checkpoint()

    async def mute_up(self, part: Part) -> None:
        """Nothing comes to the daemon over one connection, for a time."""
        for line in self._some_line(part):
            self._world.count(Occurrence.MUTED)
            line.up.mute()
            await trio.sleep(part.lasting)
            line.up.speak()
        await trio.lowlevel.checkpoint()

    async def mute_down(self, part: Part) -> None:
        """Nothing comes to a client, for a time."""
        for line in self._some_line(part):
            self._world.count(Occurrence.MUTED)
            line.down.mute()
            await trio.sleep(part.lasting)
            line.down.speak()
        await trio.lowlevel.checkpoint()

    async def pause(self, part: Part) -> None:
        """A client is stopped, and goes on later."""
        hosts = [host for host in self._world.clients.values() if not host.is_dead]
        if hosts:
            await self._pause(hosts[part.target % len(hosts)], part.lasting, Occurrence.PAUSED)
        await trio.lowlevel.checkpoint()

    async def pause_daemon(self, part: Part) -> None:
        """A daemon is stopped, and goes on later."""
        host = self._daemons.chosen(part.target).host
        await self._pause(host, part.lasting, Occurrence.DAEMON_PAUSED)

    async def end(self, part: Part) -> None:
        """A daemon ends in order."""
        self._daemons.chosen(part.target).end()
        await trio.lowlevel.checkpoint()

    async def _pause(self, host: Host, lasting: float, occurrence: Occurrence) -> None:
        host.pause()
        try:
            await trio.sleep(lasting)
        finally:  # also where the life ends before
            if host.held:
                self._world.count(occurrence)
            host.go_on()

    async def fill_disk(self, part: Part) -> None:
        """The disk of the daemon is full, for a time."""
        self._daemons.excuse()
        volume = self._daemons.volume
        volume.is_full = True
        await trio.sleep(part.lasting)
        volume.is_full = False

    async def fail_sync(self, _part: Part) -> None:
        """The next sync of the daemon's disk fails."""
        self._daemons.excuse()
        self._daemons.volume.fails_next_sync = True
        await trio.lowlevel.checkpoint()

    async def step_clock(self, part: Part) -> None:
        """The clock of the daemon's machine, or of a client's, is set."""
        clients = [*self._world.clients.values()]
        step = Random(part.seed).choice((-3600.0, -1.0, 0.5, 7200.0))
        self._world.count(Occurrence.CLOCK)
        if at := part.target % (1 + len(clients)):
            clients[at - 1].offset += step
        else:
            self._daemons.step_clock(step)
        await trio.lowlevel.checkpoint()

    # -- of a cluster over a store --------------------------------------------------------------------

    @property
    def _cluster(self) -> StoreCluster:
        return cast("StoreCluster", self._daemons)  # by the plan

    async def move(self, part: Part) -> None:
        """An operator has a space move to a daemon."""
        spaces = (MAIN, *self._world.plan.spaces)
        self._cluster.want(spaces[part.target % len(spaces)], part.target // 2)
        await trio.lowlevel.checkpoint()

    async def drain_member(self, part: Part) -> None:
        """An operator has a daemon drained, and resumed later."""
        name = self._cluster.members[part.target % len(self._cluster.members)].name
        self._cluster.role(name, DRAIN)
        await trio.sleep(part.lasting)
        self._cluster.role(name, RESUME)

    async def restart_store(self, part: Part) -> None:
        """The store ends, and is there again."""
        async with self._cluster.failing:
            await self._down(min(part.lasting, SHORT))
            self._cluster.store.start()

    async def fail_over(self, part: Part) -> None:
        """The standby of the store takes its place; its clock may be another one."""
        async with self._cluster.failing:
            await self._down(min(part.lasting, SHORT))
            self._fail_over(part)

    def _fail_over(self, part: Part) -> None:
        store = self._cluster.store
        self._world.count(Occurrence.FAILED_OVER)
        store.fail_over()
        store.offset = Random(part.seed).choice((0.0, 0.0, -3600.0, 3600.0, store.offset))
        store.start()

    async def go_back(self, part: Part) -> None:
        """A copy that lacks commits takes the place of the store, as without a synchronous standby."""
        async with self._cluster.failing:
            await self._down(0.05)
            self._world.may_be_lost = set(self._world.asked)
            self._cluster.store.fail_over(1 + part.target % 3)
            self._cluster.store.start()

    async def _down(self, seconds: float) -> None:
        self._cluster.store.stop()
        await trio.sleep(seconds)

    async def slow_store(self, part: Part) -> None:
        """Answers of the store are late, for a time."""
        store = self._cluster.store
        store.slow += SLOW
        await trio.sleep(part.lasting)
        store.slow = max(0.0, store.slow - SLOW)

    async def cut_store(self, part: Part) -> None:
        """A daemon does not reach the store, for a time."""
        store, name = self._cluster.store, self._daemons.chosen(part.target).host.name
        store.bar(name)
        await trio.sleep(part.lasting)
        store.admit(name)

    async def fill_store(self, part: Part) -> None:
        """The disk of the store is full, for a time."""
        self._cluster.excuse()
        self._cluster.store.is_full = True
        await trio.sleep(part.lasting)
        self._cluster.store.is_full = False

    async def step_store_clock(self, part: Part) -> None:
        """The clock of the store is set."""
        self._cluster.store.offset += Random(part.seed).choice((-3600.0, 3600.0))
        await trio.lowlevel.checkpoint()

    async def lose_standby(self, part: Part) -> None:
        """The store has no standby, so that no commit returns, for a time."""
        async with self._cluster.failing:
            await self._without_standby(part.lasting)

    async def _without_standby(self, seconds: float) -> None:
        store = self._cluster.store
        store.has_standby = False
        await trio.sleep(seconds)
        store.has_standby = True
        store.changed.unpark_all()

    async def unconfirm(self, part: Part) -> None:
        """What no standby has is seen after a restart; then one takes the place of the store."""
        random = Random(part.seed)
        async with self._cluster.failing:
            store = self._cluster.store
            store.has_standby = False
            await trio.sleep(0.2)
            await self._down(0.01)
            store.start()
            await trio.sleep(random.choice((0.1, 0.3, 0.6)))
            await self._down(0.05)
            store.has_standby = True
            self._fail_over(part)

    async def leave_unfinished(self, part: Part) -> None:
        """A leader is killed while its commits wait for a standby, which comes back once another leads."""
        async with self._cluster.failing:
            self._cluster.store.has_standby = False
            await trio.sleep(0.3)
            self._daemons.chosen(1 + 3 * part.target).host.die(power=False)
            await self._without_standby(3.0)

    async def cut_daemons(self, part: Part) -> None:
        """Two daemons do not reach each other, for a time."""
        names = [each.host.name for each in self._daemons.running]
        first = names[part.target % len(names)]
        second = names[(part.target + 1) % len(names)]
        await self._bar(frozenset([first, second]), part.lasting)

    async def cut_client(self, part: Part) -> None:
        """A client and a daemon do not reach each other, for a time."""
        clients = [*self._world.clients]
        daemon = self._daemons.chosen(part.target).host.name
        await self._bar(frozenset([clients[part.target % len(clients)], daemon]), part.lasting)

    async def _bar(self, pair: frozenset[str], seconds: float) -> None:
        self._world.count(Occurrence.BARRED)
        admit = self._world.network.bar(pair)
        await trio.sleep(seconds)
        admit()

    def _some_line(self, part: Part) -> list[Line]:
        names = [*self._world.clients, *[each.host.name for each in self._daemons.running]]
        lines = [line for name in names for line in self._world.network.of(name)]
        return [lines[part.target % len(lines)]] if lines else []


KINDS: Final[Mapping[str, Callable[[Faults, Part], Awaitable[None]]]] = {
    "kill": Faults.kill,
    "power": Faults.cut_power,
    "kill at a write": Faults.kill_at_write,
    "power at a write": Faults.cut_power_at_write,
    "cut": Faults.cut,
    "mute up": Faults.mute_up,
    "mute down": Faults.mute_down,
    "pause": Faults.pause,
    "pause daemon": Faults.pause_daemon,
    "full disk": Faults.fill_disk,
    "failed sync": Faults.fail_sync,
    "clock": Faults.step_clock,
    "end": Faults.end,
    "move": Faults.move,
    "drain member": Faults.drain_member,
    "store restart": Faults.restart_store,
    "store failover": Faults.fail_over,
    "store went back": Faults.go_back,
    "store slow": Faults.slow_store,
    "store cut": Faults.cut_store,
    "store full": Faults.fill_store,
    "store clock": Faults.step_store_clock,
    "no standby": Faults.lose_standby,
    "unconfirmed": Faults.unconfirm,
    "unfinished": Faults.leave_unfinished,
    "daemons cut": Faults.cut_daemons,
    "client cut": Faults.cut_client,
}
