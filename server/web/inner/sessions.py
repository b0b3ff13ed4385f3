"""Sessions of requests: a route talks to the daemon as any client does, in packets over an inner link.

So there is one judge of tokens and rights, one place where streams are fed and bounded, and one account of
what a principal has: each request is a connection of its principal for as long as it takes.

Always: a session ends with the block that opened it, and with it its facts, interests, streams and places;
a denial is raised with the code and the text of the wire.
"""

from __future__ import annotations

import math
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Final

from dataspace.codec import unpack_own
from dataspace.errors import Broken, ProtocolError, Refused, refusal_of
from dataspace.transport.sockets import Link
from dataspace.wire import packets as p
from dataspace.wire.features import MAIN, SYSTEM, Wanted
from dataspace.wire.forms import Form, Framed
from dataspace.wire.frames import Cutter
from dataspace.wire.session import Role, Session, encode
from index.values.values import Map, Value
from relay.delivery.outbox import values_frame
from server.web.inner.batches import HEAD, EventBatch
from server.web.inner.link import InnerLink, Pour
from server.web.inner.ports import Door

LARGEST: Final = 1 << 30
"""Bytes and elements of a packet of the daemon: it is in this process, and its own limits bound them."""

WINDOW_ITEMS: Final = 1024
WINDOW_BYTES: Final = 256 << 10
"""What a stream is asked for ahead of the reader of a response."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request: its address, its token, empty if there is none, and its name."""

    peer: str
    token: str
    name: str = "http"
    lent: Callable[[], AbstractContextManager[None]] = nullcontext
    """Entered while a session has the place of the request's connection."""


@dataclass(slots=True)
class PacketWriter:
    """How a session writes control packets and values: as frames, until it pours."""

    encode: Callable[[p.Packet], bytes] = encode
    framed: Framed = values_frame

    def form(self) -> Form:
        """Returns the form of a session, which writes as this says at the time."""
        return Form(Cutter(), lambda packet: self.encode(packet), lambda *each: self.framed(*each))


class InnerSession:
    """A session that has been welcomed, with one stream at a time."""

    def __init__(self, link: InnerLink, writing: PacketWriter) -> None:
        self.welcome: p.Welcome
        self._link = link
        self._writing = writing
        self._session = Session(Role.CLIENT, max_frame=LARGEST, max_elements=LARGEST)
        self._cutter = Cutter(LARGEST)
        self._bodies: deque[bytes] = deque()
        self._requests = 0
        self._streams = 0

    async def greet(self, caller: Caller, space: str, heartbeat: float) -> None:
        """Says hello; raises ``ProtocolError`` if the daemon does not admit the caller."""
        home = MAIN if space == SYSTEM else space
        wanted = Wanted(heartbeat=heartbeat, space=home, token=caller.token)
        self.say(p.Hello(p.VERSION, f"~http-{uuid.uuid4().hex}", caller.name, wanted.packed()))
        packets: list[p.Packet] = []
        while not packets:
            packets += self._session.feed(await self._chunk())
        match packets[0]:
            case p.Bye(code, text):
                raise ProtocolError(code, text)
            case p.Welcome() as welcome:
                self.welcome = welcome

    def say(self, packet: p.Packet) -> None:
        """Sends a packet; raises ``Refused("limit")`` if it is too large for the daemon."""
        self._link.tell(self._session.send(packet))

    def beat(self) -> None:
        """Shows the daemon that this end is there, though it waits for the reader of a response."""
        if not self._session.parted:
            self.say(p.Pong(0))

    async def _chunk(self) -> bytes:
        chunk = await self._link.hear()
        if not chunk:
            raise Broken("the daemon ended the session")
        return chunk

    async def next(self) -> p.Packet | EventBatch:
        """Returns the next packet, and values as they came; takes nothing when cancelled.

        Raises ``ProtocolError`` for a goodbye with a reason, and ``Broken`` for one without.
        """
        while not self._bodies:
            self._bodies.extend(self._cutter.feed(await self._chunk()))
        body = self._bodies.popleft()
        if body.startswith(HEAD):
            return EventBatch(body)
        packet = p.read(unpack_own(body))
        match packet:
            case p.Ping(number):
                self.say(p.Pong(number))
            case p.Bye("", _):
                raise Broken("the daemon ended the session")
            case p.Bye(code, text):
                raise ProtocolError(code, text)
        return packet

    async def request(self, verb: str, arguments: dict[str, Value]) -> Value:
        """Returns the answer to one of the requests of WIRE.md; raises ``Refused`` where it is denied."""
        self._requests += 1
        self.say(p.Request(self._requests, verb, Map(arguments)))
        return await self._answer(self._requests)

    async def produce(self, producer: int, steps: tuple[Value, ...]) -> Value:
        """Has a producer of a topic do some steps, and returns the answer."""
        self._requests += 1
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

    async def settle(self) -> list[p.Packet | EventBatch]:
        """Returns what the daemon has sent until now; it sends no values beyond what it was asked for."""
        self.say(p.Ping(0))
        found: list[p.Packet | EventBatch] = []
        while not (found and isinstance(found[-1], p.Pong) and self._link.is_empty and not self._bodies):
            found.append(await self.next())
        return found

    async def pour(self, into: Link, pour: Pour, writing: PacketWriter, stalled: float) -> None:
        """Lets the session write its streams to a link by itself, past the route, until all is written.

        Nothing may be on its way to the route (``settle``).  Raises ``OSError`` for a client that takes
        nothing for ``stalled`` seconds, and where the session ends before.
        """
        self._writing.encode, self._writing.framed = writing.encode, writing.framed
        self._link.pour(into, pour)
        self.say(p.Ask(self._streams, LARGEST, LARGEST * LARGEST))
        await self._link.wait_poured(stalled)

    def end(self) -> None:
        """Says goodbye, and drops what still comes."""
        if not self._session.parted:
            self.say(p.Bye("", ""))
        self._link.hang_up()


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
        Asks for more as soon as earlier calls have taken half of the credit.
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
    door: Door, caller: Caller, space: str = MAIN, *, heartbeat: float = math.inf
) -> AsyncIterator[InnerSession]:
    """Opens a session for the block, and waits at its end until the daemon has ended it.

    Raises ``Refused`` or ``ProtocolError`` for a caller that is not admitted.
    """
    with caller.lent():
        refusal = door.refusal(caller.peer)
        if refusal:
            raise NotAdmitted("limit", refusal)
        link, writing = InnerLink(caller.peer), PacketWriter()
        served = door.serve(link, form=writing.form())
        session = InnerSession(link, writing)
        try:
            try:
                await session.greet(caller, space, heartbeat)
            except ProtocolError as error:
                raise NotAdmitted(error.code, error.text) from None
            yield session
        finally:
            session.end()
            await served.wait_ended()


class NotAdmitted(Refused):
    """The daemon did not admit the session of a request."""
