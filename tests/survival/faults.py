"""Daemons that clients reach through proxies, and what befalls them at a chosen packet.

A fault strikes before the k-th packet that a client sends or is sent.  Faults that end the connection take
that packet with them; a daemon that is stopped gets it once it goes on.

Always: after a fault the daemons are as before it, or have changed their roles; ``strike`` returns then.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import trio

import dataspace
from dataspace.errors import DataspaceError
from tests.postgres.servers import Server
from tests.server.daemon import breaking
from tests.server.processes import DaemonProcess, running
from tests.server.proxies import Proxy
from tests.survival.sites import HEARTBEAT

SHORT: Final = HEARTBEAT / 2
LONG: Final = 2.5 * HEARTBEAT
"""Seconds for which a daemon, or a line, is silent: within the heartbeat, and beyond two of them."""

GATHER_SECONDS: Final = HEARTBEAT
"""Seconds in which programs come to their packets; those that have not by then are struck where they are."""

LEASE_SECONDS: Final = 1
"""Of the leader of a store in a database."""


class Line:
    """What one program reaches the daemons through: a proxy in front of each, which count its packets."""

    def __init__(self, daemons: Sequence[DaemonProcess]) -> None:
        self.proxies = {daemon.port: Proxy(daemon.url) for daemon in daemons}
        self.struck = trio.Event()
        """Set when the program has come to the packet before which the fault strikes, or has ended."""
        self._passing = trio.Event()
        self._at = self._count = 0

    def begin(self, at: int) -> None:
        """Counts anew, up to a packet."""
        self.struck, self._passing = trio.Event(), trio.Event()
        self._at, self._count = at, 0
        for proxy in self.proxies.values():
            proxy.before_packet = self._before_packet

    def resume(self) -> None:
        """Passes on the packet that the fault has waited for."""
        self._passing.set()

    def cut(self) -> None:
        """Cuts the line; what is held there is lost."""
        for proxy in self.proxies.values():
            proxy.cut()

    @property
    def has_come(self) -> bool:
        """True if the program has come to that packet."""
        return self._count >= self._at

    async def _before_packet(self) -> None:
        self._count += 1
        if self._count == self._at:
            self.struck.set()
            await self._passing.wait()  # or until the line is cut


class Home:
    """Daemons with one home, the leader first, and the lines of programs to them."""

    def __init__(self, *daemons: DaemonProcess) -> None:
        self.daemons = list(daemons)
        self.lines: list[Line] = []
        self.order = Path()
        """Where the leader is told that its disk is broken."""
        self.server: Server | None = None

    @property
    def leader(self) -> DaemonProcess:
        """The daemon that leads."""
        return self.daemons[0]

    @property
    def proxies(self) -> list[Proxy]:
        """The proxies of all lines."""
        return [proxy for line in self.lines for proxy in line.proxies.values()]

    def urls(self, line: Line) -> tuple[str, ...]:
        """Returns what a program connects to, the leader first."""
        return tuple([line.proxies[daemon.port].url for daemon in self.daemons])

    def resume(self) -> None:
        """Passes on all that the fault has waited for."""
        for line in self.lines:
            line.resume()

    def cut(self) -> None:
        """Cuts all lines."""
        for line in self.lines:
            line.cut()

    async def lead(self) -> None:
        """Returns once one of the daemons leads, which is the first from then on."""
        while True:
            for daemon in self.daemons:
                with suppress(DataspaceError):
                    async with dataspace.connect(daemon.url, read="leader") as space:
                        if (await space.status())["leads"]:
                            self.daemons.sort(key=lambda each: each is not daemon)  # at once
                            return
            await trio.sleep(0.05)


Fault = Callable[[Home], Awaitable[None]]
"""Strikes a home, and resumes its lines where their packets are passed on."""


async def cut(home: Home) -> None:
    """The connection is cut."""
    home.cut()


async def silence(home: Home) -> None:
    """Nothing passes in either direction for longer than two heartbeats."""
    for proxy in home.proxies:
        proxy.hold("up")
        proxy.hold("down")
    home.resume()
    await trio.sleep(LONG)
    for proxy in home.proxies:
        proxy.open("up")
        proxy.open("down")


async def stop_shortly(home: Home) -> None:
    """The daemon stands still for less than a heartbeat."""
    await _stop(home, SHORT)


async def stop_long(home: Home) -> None:
    """The daemon stands still for longer than two heartbeats."""
    await _stop(home, LONG)


async def _stop(home: Home, seconds: float) -> None:
    process = home.leader.process
    process.send_signal(signal.SIGSTOP)
    home.resume()
    await trio.sleep(seconds)
    process.send_signal(signal.SIGCONT)


async def kill(home: Home) -> None:
    """The daemon is killed; it is started again, or another one takes over."""
    await trio.to_thread.run_sync(home.leader.kill)
    home.cut()
    await _come_back(home)


async def drain(home: Home) -> None:
    """The daemon is told to end, drains, and is started again, or another one takes over."""
    leader = home.leader
    leader.process.send_signal(signal.SIGTERM)
    home.resume()
    await trio.to_thread.run_sync(leader.wait)
    await _come_back(home)


async def break_disk(home: Home) -> None:
    """The disk refuses to write the log: the daemon ends, and is started again with a disk that works."""
    home.order.write_text("sync log.sqlite-wal")
    home.resume()
    with suppress(DataspaceError):  # what is written finds out, if no program writes
        async with dataspace.connect(home.leader.url, reconnect=False) as space:
            await space.send(dataspace.Record("anything"))
    await trio.to_thread.run_sync(home.leader.wait)
    home.order.unlink()
    await _come_back(home)


async def take_store_away(home: Home) -> None:
    """The database is killed, and is back after the lease of the leader has ended."""
    assert home.server is not None
    await trio.to_thread.run_sync(home.server.kill)
    home.resume()
    await trio.sleep(2 * LEASE_SECONDS)
    await trio.to_thread.run_sync(home.server.start)


async def _come_back(home: Home) -> None:
    """Starts the leader that has ended: to lead again, or to stand by for the one that takes over."""
    ended = home.leader
    if len(home.daemons) > 1:
        home.daemons.append(home.daemons.pop(0))
        if home.server is None:
            ended.more = ("--follow", ended.place, "--stand-by")
    await trio.to_thread.run_sync(ended.start)


async def strike(home: Home, fault: Fault) -> bool:
    """Strikes once each line has come to its packet, or its program has ended; False if all have ended."""
    with trio.move_on_after(GATHER_SECONDS):
        for line in home.lines:
            await line.struck.wait()
    while not (has_struck := any(line.has_come for line in home.lines)):
        if all(line.struck.is_set() for line in home.lines):
            break
        await trio.sleep(0.01)
    if has_struck:
        with trio.CancelScope(shield=True):  # a fault that has begun is undone
            await fault(home)
            home.resume()
            await home.lead()
    return has_struck


# -- homes -----------------------------------------------------------------------------------------


@asynccontextmanager
async def _behind_lines(home: Home, lines: int) -> AsyncIterator[Home]:
    async with trio.open_nursery() as nursery:
        home.lines += [Line(home.daemons) for _ in range(lines)]
        for proxy in home.proxies:
            await nursery.start(proxy.run)
        await home.lead()
        yield home
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def alone(folder: Path, lines: int) -> AsyncIterator[Home]:
    """One daemon over a directory."""
    daemon = DaemonProcess(folder / "data")
    with running(daemon):
        async with _behind_lines(Home(daemon), lines) as home:
            yield home


@asynccontextmanager
async def on_bad_disk(folder: Path, lines: int) -> AsyncIterator[Home]:
    """One daemon over a directory, whose disk breaks when it is told to."""
    daemon = DaemonProcess(folder / "data", program=(breaking.__file__, str(folder / "order")))
    daemon.environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    home = Home(daemon)
    home.order = folder / "order"
    with running(daemon):
        async with _behind_lines(home, lines):
            yield home


@asynccontextmanager
async def pair(folder: Path, lines: int) -> AsyncIterator[Home]:
    """A leader and a stand-by over a directory."""
    first = DaemonProcess(folder / "data")
    second = DaemonProcess(folder / "data", "--follow", str(folder / "data"), "--stand-by")
    with running(first, second):
        async with _behind_lines(Home(first, second), lines) as home:
            yield home


@asynccontextmanager
async def cluster(server: Server, lines: int) -> AsyncIterator[Home]:
    """Two daemons over a database."""
    with server.schema() as schema:
        daemons = [DaemonProcess(server.url(schema)) for _ in range(2)]
        for daemon in daemons:
            daemon.environment["DATASPACE_SERVE_CLUSTER_LEASE"] = f"{LEASE_SECONDS}s"
        home = Home(*daemons)
        home.server = server
        with running(*daemons):
            async with _behind_lines(home, lines):
                yield home


FAULTS: Final[Sequence[tuple[str, Fault]]] = (
    ("alone", cut),
    ("alone", silence),
    ("alone", stop_shortly),
    ("alone", stop_long),
    ("alone", kill),
    ("alone", drain),
    ("on_bad_disk", break_disk),
    ("pair", kill),
    ("pair", drain),
    ("cluster", kill),
    ("cluster", drain),
    ("cluster", stop_long),
    ("cluster", take_store_away),
)
"""Where, and what strikes there."""
