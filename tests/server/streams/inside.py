"""A daemon inside the test: a real log on a real disk, real connections over socket pairs, no port.

What a test of a race needs and a port would hide: the hand on the writer.  While it is held back, turns are
committed in memory and wait for the disk, as they do on a slow one.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio

from dataspace.transport.sockets import SocketLink
from dataspace.wire import packets as p
from dataspace.wire.features import MAIN
from dataspace.wire.session import Role, Session
from relay.log.log import Log
from relay.space_registers import space_registers
from server.cluster.homes import home_of
from server.config.model import Config, Limits, SpaceConfig
from server.config.rights import Key
from server.connections.connection import Connection
from server.connections.dispatch import ClientPeer
from server.daemon.daemon import Daemon
from server.sessions.peer import PEERS
from server.spaces.space import HostedSpace
from server.topics.part import TOPICS
from tests.server.peers import hello, packed


class Wire:
    """The peer's end of a connection: says packets, hears packets."""

    def __init__(self, connected: socket.socket) -> None:
        self.link: Final = SocketLink(connected)
        self._session = Session(Role.CLIENT, max_frame=64 << 20, max_elements=64 << 20)
        self._heard: list[p.Packet] = []

    async def say(self, *packets: p.Packet) -> None:
        """Sends packets, allowed or not, in one go where the kernel takes them."""
        data = b"".join(map(packed, packets))
        while data:
            data = data[self.link.send_nowait(data) :]
            if data:
                await self.link.wait_writable()

    async def hear(self) -> p.Packet | None:
        """The next packet, or None when the daemon has hung up."""
        while not self._heard:
            chunk = await self.link.receive()
            if not chunk:
                return None
            self._heard.extend(self._session.feed(chunk))
        return self._heard.pop(0)

    async def greet(self, client: str = "~peer") -> p.Welcome:
        """Says hello and hears the welcome."""
        await self.say(hello(client))
        welcome = await self.hear()
        assert isinstance(welcome, p.Welcome)
        return welcome


class Inside:
    """One life of a daemon."""

    def __init__(self, daemon: Daemon, log: Log) -> None:
        self.daemon = daemon
        self.hosted: HostedSpace = daemon.main
        self._log = log
        self._numbers = itertools.count(1)
        self._held = False
        self.wires: list[Wire] = []

    def hold(self) -> None:
        """Holds the writer back before its next group."""
        if not self._held:
            self._held = self._log._writing.acquire(blocking=False)

    def release(self) -> None:
        """Lets the writer go on."""
        if self._held:
            self._held = False
            self._log._writing.release()

    def connect(self, *, trusted: bool = True) -> Wire:
        """A new peer, which has said nothing yet; one that is not trusted needs a token if there are any."""
        ours, theirs = socket.socketpair()
        number = next(self._numbers)
        daemon = self.daemon
        door = Connection(SocketLink(ours), daemon.limits)
        peer = ClientPeer(daemon, door, number, trusted=trusted)
        daemon.parts[PEERS][number] = peer
        door.begin(peer)
        self.wires.append(Wire(theirs))
        return self.wires[-1]


@asynccontextmanager
async def inside(
    data: Path,
    limits: Limits | None = None,
    keys: tuple[Key, ...] = (),
    spaces: tuple[SpaceConfig, ...] = (),
) -> AsyncIterator[Inside]:
    """A daemon with its log in a directory, until the end of the block; it ends in good order.

    Further ``spaces`` have theirs in folders of their names below it.
    """
    config = Config(data=data, limits=limits or Limits(), keys=keys, spaces=spaces)
    places = [(each, data if each.name == MAIN else data / each.name) for each in config.all_spaces()]
    logs = [(each, Log.open(place, registers=space_registers)) for each, place in places]
    daemon = Daemon(config, logs, home_of(config))
    (_, log), hosted = logs[0], daemon.spaces.values()
    try:
        async with trio.open_nursery() as writers:
            for each in hosted:
                writers.start_soon(each.commits.run)
            writers.start_soon(daemon.parts[TOPICS].durable.writer.run)
            for each in hosted:
                await each.commits.wait_durable(each.space.epoch)
            async with trio.open_nursery() as nursery:
                daemon.peers = nursery
                made = Inside(daemon, log)
                try:
                    yield made
                finally:
                    made.release()
                    for wire in made.wires:
                        wire.link.close()
                    nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                for each in hosted:
                    await each.commits.close()
                await daemon.parts[TOPICS].durable.writer.close()
    finally:
        daemon.parts[TOPICS].durable.writer.journal.close()
        for each in hosted:
            each.leading.staging.close()
        for _, each_log in logs:
            each_log.close()
