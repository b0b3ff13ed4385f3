"""Sessions of requests: a route is a door, as a socket is, and hands packets to the peer of its caller.

So there is one judge of tokens and rights, one place where streams are fed and bounded, and one account of
what a principal has: each request is a connection of its principal for as long as it takes.  Packets are
passed as they are, in both directions.

Always: a session ends with the block that opened it, and with it its facts, interests, streams and places;
a denial is raised with the code and the text of the wire.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import trio

from dataspace.errors import Broken, ProtocolError, Refused, refusal_of
from dataspace.transport.sockets import Link
from dataspace.wire import packets as p
from dataspace.wire.features import MAIN, SYSTEM, Wanted
from dataspace.wire.session import Framed
from index.values.values import Map, Value
from server.connections.acting import ActingPeer
from server.connections.bundles import act_on
from server.sessions.peer import Peer
from server.web.inner.queue import Control, EventBatch, RouteQueue

if TYPE_CHECKING:
    from server.config.model import Limits
    from server.lane import Lane

WINDOW_ITEMS: Final = 1024
WINDOW_BYTES: Final = 256 << 10
"""What a stream is asked for ahead of the reader of a response."""

MOST_ITEMS: Final = 1 << 30
MOST_BYTES: Final = 1 << 60
"""What a stream is asked for that is written past the route."""

LINGER: Final = 1.0
"""Seconds for the route to take the last packets of a session that the daemon ends."""


class Pages(Protocol):
    """The pages of an operator."""

    async def answer(
        self, path: str, headers: Iterable[tuple[str, str]]
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        """Returns the status, the headers and the body that are answered to a GET."""


class ServingDaemon(Protocol):
    """The daemon, which admits and serves a session for each request."""

    @property
    def limits(self) -> Limits:
        """The limits that the daemon was given."""

    @property
    def lane(self) -> Lane:
        """Where background work has its turns."""

    @property
    def pages(self) -> Pages:
        """Metrics and health."""

    def refusal(self, peer: str) -> str:
        """Returns why there is no room for another connection of a peer; empty if there is."""

    def serve_through(self, door: RouteDoor) -> Peer:
        """Serves the client of a request in a task of its own."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request: its address, its token (empty if there is none) and a name for logs."""

    peer: str
    token: str
    name: str = "http"
    lent: Callable[[], AbstractContextManager[None]] = nullcontext
    """Entered while a session has the place of the request's connection."""


class RouteDoor:
    """The way of a request into the daemon: its packets are acted on by the task of its peer."""

    encryption: Final = ""

    def __init__(self, address: str) -> None:
        self.address: Final = address
        self.size = 0
        """Bytes of the latest steps of a producer."""
        self.sending: RouteQueue
        self._said: list[p.Packet] = []
        self._changed = trio.Event()
        self._is_left = False
        self._left = trio.Event()

    # -- the session's end ----------------------------------------------------------------------------

    def queue(self, peer: Peer) -> RouteQueue:
        """Returns the queue of packets for the route."""
        self.sending = RouteQueue(peer)
        return self.sending

    def welcome(self, *, resumed: bool) -> None:
        """Notes nothing: a request has a new session."""

    async def read(self, peer: ActingPeer) -> bool:
        """Acts on the packets of the route until it has left; returns True, as none can be lost."""
        while not self._left.is_set():
            some, self._said = self._said, []
            if some:
                await act_on(peer, iter(some))
                peer.flush()
                await peer.hosted.commits.wait_room()
            elif not self._left.is_set():
                await self._changed.wait()
                self._changed = trio.Event()
        return True

    async def linger(self, _peer: ActingPeer) -> None:
        """Returns once the route has left, which takes the last packets before."""
        with trio.move_on_after(LINGER):
            await self._left.wait()

    def close(self) -> None:
        """Ends the queue of packets."""
        self.sending.close()

    # -- the route's end ------------------------------------------------------------------------------

    def say(self, packet: p.Packet) -> None:
        """Passes a packet to the session; does nothing after the end."""
        self._said.append(packet)
        self._changed.set()

    def leave(self) -> None:
        """Ends the session from the side of the route."""
        self._said.clear()
        self._left.set()
        self._changed.set()


class InnerSession:
    """A session that has been welcomed, with one stream at a time."""

    def __init__(self, door: RouteDoor) -> None:
        self.welcome: p.Welcome
        self._door = door
        self._requests = 0
        self._streams = 0

    async def greet(self, caller: Caller, space: str, heartbeat: float) -> None:
        """Says hello; raises ``ProtocolError`` if the daemon does not admit the caller."""
        hosted = MAIN if space == SYSTEM else space
        wanted = Wanted(heartbeat=heartbeat, space=hosted, token=caller.token)
        self.say(p.Hello(p.VERSION, f"~http-{uuid.uuid4().hex}", caller.name, wanted.packed()))
        welcome = await self.next()
        assert isinstance(welcome, p.Welcome)  # the first packet, if it is no goodbye
        self.welcome = welcome

    def say(self, packet: p.Packet) -> None:
        """Passes a packet to the session."""
        self._door.say(packet)

    async def next(self) -> p.Packet | EventBatch:
        """Returns the next packet or batch; takes nothing when cancelled.

        Raises ``ProtocolError`` for a goodbye with a reason, and ``Broken`` for one without.
        """
        return _checked(await self._door.sending.next())

    async def request(self, verb: str, arguments: dict[str, Value]) -> Value:
        """Returns the answer to one of the requests of WIRE.md; raises ``Refused`` where it is denied."""
        self._requests += 1
        self.say(p.Request(self._requests, verb, Map(arguments)))
        return await self._answer(self._requests)

    async def produce(self, producer: int, steps: tuple[Value, ...], size: int) -> Value:
        """Has a producer of a topic do some steps of ``size`` bytes, and returns the answer."""
        self._requests += 1
        self._door.size = size
        self.say(p.Produce(self._requests, producer, steps))
        return await self._answer(self._requests)

    async def _answer(self, asked: int) -> Value:
        while True:
            match await self.next():
                case p.Answer(number, value) if number == asked:
                    return value
                case p.Denied(number, code, text, found) if number == asked:
                    raise refusal_of(code, text, found)

    async def turn(self, space: str, actions: tuple[tuple[Value, ...], ...], traceparent: str = "") -> int:
        """Commits a turn of the session, and returns its epoch once that is on disk."""
        self.say(p.Turn(1, space, "", actions, traceparent=traceparent))
        while True:
            match await self.next():
                case p.Accepted(_, epochs):
                    return epochs[0]
                case p.Refusal(_, code, text, _):
                    raise Refused(code, text)

    def open(self, spec: dict[str, Value], window: int | None = None) -> Reading:
        """Opens a stream, whose values ``Reading`` asks for as they are taken."""
        self._streams += 1
        reading = Reading(self, self._streams, window or WINDOW_ITEMS)
        self.say(p.Open(self._streams, Map(spec), *reading.credit))
        return reading

    def rest(self) -> Iterator[p.Packet | EventBatch]:
        """Yields what has come already; raises as ``next`` does."""
        while (packet := self._door.sending.next_nowait()) is not None:
            yield _checked(packet)

    async def pour(
        self, link: Link, control: Control, framed: Framed, *, is_over: Callable[[], bool], stalled: float
    ) -> None:
        """Lets the session write its stream to a link by itself, past the route, until the text is over.

        Nothing may be on its way to the route (``rest``).  Raises ``OSError`` for a client that takes
        nothing for ``stalled`` seconds, and where the session ends before.
        """
        self._door.sending.pour(link, control, framed)
        self.say(p.Ask(self._streams, MOST_ITEMS, MOST_BYTES))
        await self._door.sending.wait_poured(is_over, stalled)

    def poured(self) -> None:
        """Notes that the text which is written past the route is over."""
        self._door.sending.over()


def _checked(packet: p.Packet | EventBatch) -> p.Packet | EventBatch:
    """Returns a packet that is no goodbye."""
    if isinstance(packet, p.Bye):
        raise (
            ProtocolError(packet.code, packet.text) if packet.code else Broken("the daemon ended the session")
        )
    return packet


class Reading:
    """A stream as a route reads it: its packets one by one, and credit in their wake."""

    def __init__(self, session: InnerSession, number: int, items: int) -> None:
        self._session = session
        self._number = number
        self._items = items
        self._taken = self._taken_size = 0
        self.credit = items, WINDOW_BYTES

    async def next(self) -> EventBatch | p.Reached | p.Done | p.Ping:
        """Returns values, how far the stream is, its end, or a ping of a session that has nothing to say.

        Raises ``Refused`` for an error of the stream.
        Raises the credit as soon as calls before this one have taken half of it.
        """
        self._ask()
        while True:
            packet = await self._session.next()
            match packet:
                case EventBatch(stream=self._number):
                    self._taken += packet.count
                    self._taken_size += packet.size
                    return packet
                case p.Error(self._number, code, text):
                    raise Refused(code, text)
                case p.Done(self._number) | p.Ping():
                    return packet
                case p.Reached(_, streams) if self._number in streams:
                    return packet

    def _ask(self) -> None:
        items, size = self._taken + self._items, self._taken_size + WINDOW_BYTES
        asked_items, asked_size = self.credit
        if 2 * (items - asked_items) >= self._items or 2 * (size - asked_size) >= WINDOW_BYTES:
            self.credit = items, size
            self._session.say(p.Ask(self._number, items, size))


@asynccontextmanager
async def inner_session(
    daemon: ServingDaemon, caller: Caller, space: str = MAIN, *, heartbeat: float = math.inf
) -> AsyncIterator[InnerSession]:
    """Opens a session for the block, and waits at its end until the daemon has ended it.

    Raises ``Refused`` or ``ProtocolError`` for a caller that is not admitted.
    """
    with caller.lent():
        refusal = daemon.refusal(caller.peer)
        if refusal:
            raise NotAdmitted("limit", refusal)
        door = RouteDoor(caller.peer)
        served = daemon.serve_through(door)
        session = InnerSession(door)
        try:
            try:
                await session.greet(caller, space, heartbeat)
            except ProtocolError as error:
                raise NotAdmitted(error.code, error.text) from None
            yield session
        finally:
            door.leave()
            await served.wait_ended()


class NotAdmitted(Refused):
    """The daemon did not admit the session of a request."""
