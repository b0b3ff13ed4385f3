"""A peer that is a list: what it is sent stands in ``said``, and every stream it opens can be read at once.

It stands for a ``Peer`` over a real space, a real log and a real group writer, so that
streams are driven without a socket, a session or a daemon.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, cast

import trio

from dataspace.errors import Refused
from dataspace.kernel.actions import ASSERT, RETRACT, Action
from dataspace.kernel.space import Space
from dataspace.wire import packets as p
from dataspace.wire.session import Role, Session, encode
from index.values.values import Map, Value
from relay.delivery.gate import DurableGate
from relay.delivery.memory import MemoryBudget
from relay.delivery.outbox import OutStream
from relay.delivery.queue_members import Delivery
from relay.log.log import Log
from relay.log.writer import GroupCommit
from server.config.principals import DAEMON, Quotas
from server.config.rights import OPEN
from server.lane import Lane, Work
from server.owners.accounts import Accounts
from server.spaces.recalling import Recalling
from server.spaces.visibility import Visibility
from server.streams.observations import Observations
from server.streams.replay import ReplaySlots
from server.system import SystemSpace

PLENTY = 1 << 40


class Past:
    """A space with its log, in place of ``HostedSpace``."""

    name = "main"
    leads = True

    def __init__(self, log: Log, show: str | None = None) -> None:
        self.log = log
        self.identity = log.identity
        self.space = Space("main")
        self.gate = DurableGate(MemoryBudget())
        self.commits = GroupCommit(log, gate=self.gate)
        self.visibility = Visibility(self.space, self.commits, self.gate, show)
        self.recalling = Recalling()
        self.flushed = 0
        self._handles = count(1)

    def check_leads(self) -> None:
        """It leads."""

    def check_space(self, name: str) -> None:
        if name != self.name:
            raise Refused("no-space", f"no space named {name!r}")

    def flush(self) -> None:
        self.flushed += 1

    def assert_(self, *facts: Value, owner: str = "someone") -> list[int]:
        """Asserts facts in one turn; their handles."""
        handles = [next(self._handles) for _ in facts]
        self.commit(owner, [(ASSERT, at, fact) for at, fact in zip(handles, facts, strict=True)])
        return handles

    def retract(self, *handles: int, owner: str = "someone") -> None:
        self.commit(owner, [(RETRACT, at) for at in handles])

    def commit(self, owner: str, actions: list[Action]) -> None:
        self.space.commit(owner, actions, 1_000 + self.space.epoch, submit=self.commits.submit)


class Announced:
    """A session of which only its interests matter."""

    number = 7
    follows = False

    def __init__(self) -> None:
        self.patterns: dict[int, Value] = {}

    def announce(self, stream: int, pattern: Value) -> None:
        self.patterns[stream] = pattern


class ListPeer:
    """A ``Peer`` without a socket, as the streams use it."""

    name = "list"
    session_id = "1.7"
    gone = False
    account = Accounts(Quotas()).of(DAEMON)
    permit = OPEN

    def __init__(self, hosted: Past, nursery: trio.Nursery) -> None:
        self.hosted = hosted
        self.own = Announced()
        self.streams: dict[int, OutStream] = {}
        self.said: list[p.Packet] = []
        self.failed: dict[int, str] = {}
        self.woken = trio.Event()
        self.lane = Lane()
        self._nursery = nursery

    def start(self, function: Callable[..., Awaitable[None]], *args: object) -> None:
        self._nursery.start_soon(function, *args)

    def say(self, packet: p.Packet) -> None:
        self.said.append(packet)

    def wake(self, stream: OutStream) -> None:
        self.woken.set()
        self.woken = trio.Event()

    def work(self) -> Work:
        return self.lane.work(self.name)

    def fail(self, stream: OutStream, code: str, text: str, url: str = "") -> None:
        self.failed[stream.number] = code
        self.wake(stream)


class Streams:
    """The streams of one list-like peer, opened and read directly."""

    def __init__(self, hosted: Past, nursery: trio.Nursery) -> None:
        self.hosted = hosted
        self.peer = ListPeer(hosted, nursery)
        self.system = SystemSpace(lambda: 5_000)
        self.delivery = Delivery()
        self._session = Session(Role.CLIENT)
        list(self._session.feed(encode(p.Welcome(1, 1, "", 0, 0, Map({}), Map({})))))
        self.observations = Observations(
            cast("Any", self.peer),  # it has what is needed of a connection, without a socket
            system=self.system,
            slots=ReplaySlots(4, trio.Semaphore(4)),
            delivery=self.delivery,
        )

    def open(self, number: int, pattern: Value, **options: Value) -> OutStream:
        """Opens a stream with more credit than it needs."""
        stream = OutStream(number, PLENTY, PLENTY)
        self.peer.streams[number] = stream
        self.observations.open(stream, Map({"pattern": pattern, **options}))
        return stream

    def take(self, stream: OutStream) -> list[Any]:
        """The values that wait in a stream now, as a client would read them."""
        before = stream.next_frame()
        if before is None:
            return []
        packet = next(self._session.feed(before[0]))
        assert isinstance(packet, p.Values)
        return list(packet.values)

    async def collect(self, stream: OutStream, count: int) -> list[Any]:
        """So many values of a stream, once they are there."""
        found: list[Any] = []
        while len(found) < count:
            woken = self.peer.woken
            if stream.backlog is not None:
                found += self.take(stream)
            if len(found) < count:
                await woken.wait()
        return found


@asynccontextmanager
async def streams(data: Path) -> AsyncIterator[Streams]:
    """Streams over an empty space in a directory, until the end of the block."""
    log = Log.open(data)
    hosted = Past(log)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hosted.commits.run)
            await hosted.commits.wait_durable(hosted.space.epoch)
            async with trio.open_nursery() as tasks:
                made = Streams(hosted, tasks)
                yield made
                made.observations.end("")
                tasks.cancel_scope.cancel()
            await hosted.commits.close()
    finally:
        log.close()
