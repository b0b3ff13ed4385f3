"""Faults: what goes wrong in a life, at the instants that its plan says.

Always: what lasts for a time is over after it, also if the daemon has been started anew meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Final

import trio

from tests.simulation.daemons import Supervisor
from tests.simulation.hosts import Host
from tests.simulation.network import Line
from tests.simulation.occurrences import Occurrence
from tests.simulation.plan import Part
from tests.simulation.world import World


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
        await trio.sleep(lasting)
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
}
