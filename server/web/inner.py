"""Sessions of requests: a route is a door, as a socket is, and hands packets to the peer of its caller.

So there is one judge of tokens and rights, one place where streams are fed and bounded, and one account of
what a principal has: each request is a connection of its principal for as long as it takes.  Its peer is
greeted by a call, without a hello, and packets are passed as they are, in both directions.

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
from typing import Final, TypeAlias

import trio

from dataspace.codec import array_head, unpack_own
from dataspace.errors import Broken, ProtocolError, Refused, refusal_of
from dataspace.kernel.changes import Epoch
from dataspace.transport.sockets import Link
from dataspace.wire import packets as p
from dataspace.wire.features import MAIN, SYSTEM, Wanted
from dataspace.wire.session import Framed
from index.values.values import Map, Value
from relay.delivery.outbox import Outbox, OutStream, values_size
from server.connections.bundles import act_on
from server.connections.connection import send_queue
from server.connections.dispatch import ClientPeer, serve_through
from server.lane import Work
from server.sessions.peer import Peer
from server.sessions.sending import SendQueue
from server.sessions.state import DaemonState

WINDOW_ITEMS: Final = 1024
WINDOW_BYTES: Final = 256 << 10
"""What a stream is asked for ahead of the reader of a response."""

MOST_ITEMS: Final = 1 << 30
MOST_BYTES: Final = 1 << 60
"""What a stream is asked for that is written past the route."""

LINGER: Final = 1.0
"""Seconds for the route to take the last packets of a session that the daemon ends."""


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
    is_web: Final = False  # a route says itself where the leader is

    def __init__(self, caller: Caller, wanted: Wanted) -> None:
        self.address: Final = caller.peer
        self.size = 0
        """Bytes of the latest steps of a producer."""
        self.packets: RouteQueue
        """What the route is sent."""
        self._name = caller.name
        self._wanted = wanted
        self._said: list[p.Packet] = []
        self._changed = trio.Event()
        self._left = trio.Event()

    # -- the session's end ----------------------------------------------------------------------------

    def queue(self, peer: Peer) -> RouteQueue:
        """Returns the queue of packets for the route."""
        self.packets = RouteQueue(peer)
        return self.packets

    def welcome(self, *, resumed: bool) -> None:
        """Tells the route that its session has begun; a request has a new one."""
        self.packets.begin()

    def begin(self, peer: ClientPeer) -> None:
        """Begins to take packets, in the task of the peer."""
        peer.start(self.packets.run)

    async def read(self, peer: ClientPeer) -> bool | None:
        """Begins the session, and acts on the packets of the route until it has left.

        Returns True, as none can be lost.  Raises ``ProtocolError`` for a caller that is not admitted.
        """
        await peer.greet(f"~http-{uuid.uuid4().hex}", self._name, self._wanted)
        while True:
            peer.flush()
            await peer.hosted.commits.wait_room()
            while not self._said and not self._left.is_set():
                await self._changed.wait()
                self._changed = trio.Event()
            if self._left.is_set():
                return True
            some, self._said = self._said, []
            await act_on(peer, iter(some))

    async def linger(self, _peer: ClientPeer) -> None:
        """Returns once the route has left, which takes the last packets before."""
        with trio.move_on_after(LINGER):
            await self._left.wait()

    def close(self) -> None:
        """Ends the queue of packets."""
        self.packets.close()

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
    """A session that has begun, with one stream at a time."""

    def __init__(self, peer: Peer, door: RouteDoor, epoch: int) -> None:
        self.identity: Final = peer.hosted.identity
        """The identity of its space."""
        self.epoch: Final = epoch
        """The newest epoch of the space when the session began."""
        self.actions_per_turn: Final = peer.hosted.space.limits.actions_per_turn
        self._door = door
        self._requests = 0
        self._streams = 0

    def say(self, packet: p.Packet) -> None:
        """Passes a packet to the session."""
        self._door.say(packet)

    async def next(self) -> p.Packet | EventBatch:
        """Returns the next packet or batch; takes nothing when cancelled.

        Raises ``ProtocolError`` for a goodbye with a reason, and ``Broken`` for one without.
        """
        return _checked(await self._door.packets.next())

    async def request(self, verb: str, arguments: dict[str, Value]) -> Value:
        """Returns the answer to one of the requests of WIRE.md; raises ``Refused`` where it is denied."""
        self._requests += 1
        self.say(p.Request(self._requests, verb, Map(arguments)))
        return await self._answer(self._requests)

    async def produce(self, producer: int, steps: tuple[Value, ...], size: int) -> Value:
        """Sends steps of ``size`` bytes for a producer of a topic, and returns the answer."""
        self._requests += 1
        self._door.size = size
        self.say(p.Produce(self._requests, producer, steps))
        return await self._answer(self._requests)

    async def _answer(self, asked: int) -> Value:
        while True:
            match await self.next():
                case p.Answer(number, value) if number == asked:
                    return value
                case p.Denied(number, code, text, found, url) if number == asked:
                    raise refusal_of(code, text, found, url)

    async def turn(self, space: str, actions: tuple[tuple[Value, ...], ...], traceparent: str = "") -> int:
        """Commits a turn of the session, and returns its epoch once that is on disk."""
        self.say(p.Turn(1, space, "", actions, traceparent=traceparent))
        while True:
            match await self.next():
                case p.Accepted(_, epochs):
                    return epochs[0]
                case p.Refusal(_, code, text, _, url):
                    raise Refused(code, text, url)

    def open(self, spec: dict[str, Value], window: int | None = None) -> Reading:
        """Opens a stream, whose values ``Reading`` asks for as they are taken."""
        self._streams += 1
        reading = Reading(self, self._streams, window or WINDOW_ITEMS)
        self.say(p.Open(self._streams, Map(spec), *reading.credit))
        return reading

    async def pour(
        self, link: Link, control: Control, framed: Framed, *, is_over: Callable[[], bool], stalled: float
    ) -> None:
        """Connects the stream of the session to a link, past the route, until the text is over.

        ``control`` returns the text for a packet that is no value, ``framed`` for values.  Raises ``OSError``
        for a client that takes nothing for ``stalled`` seconds, and where the session ends before.
        """
        poured = self._door.packets.pour(link, control, framed)
        self.say(p.Ask(self._streams, MOST_ITEMS, MOST_BYTES))
        await self._door.packets.wait_poured(poured, is_over, stalled)

    def poured(self) -> None:
        """Notes that the text which is written past the route is over."""
        self._door.packets.notify()


def _checked(packet: p.Packet | EventBatch) -> p.Packet | EventBatch:
    """Returns a packet that is no goodbye."""
    if isinstance(packet, p.Bye):
        raise ProtocolError(*packet) if packet.code else Broken("the daemon ended the session")
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
                case p.Error(self._number, code, text, url):
                    raise Refused(code, text, url)
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
    daemon: DaemonState,
    caller: Caller,
    space: str = MAIN,
    *,
    heartbeat: float = math.inf,
    here: bool = False,
) -> AsyncIterator[InnerSession]:
    """Opens a session for the block, and waits at its end until the daemon has ended it.

    With ``here`` it asks about the daemon itself.  Raises ``NotAdmitted`` for a caller that is not admitted.
    """
    with caller.lent():
        refusal = daemon.guests.refusal(caller.peer)
        if refusal:
            raise NotAdmitted("limit", refusal)
        about = MAIN if space == SYSTEM else space
        door = RouteDoor(
            caller, Wanted(heartbeat=heartbeat, space=about, token=caller.token, reads=True, here=here)
        )
        peer = serve_through(daemon, door)
        try:
            try:
                begun = _checked(await door.packets.next())
            except ProtocolError as error:
                raise NotAdmitted(error.code, error.text, error.url) from None
            assert isinstance(begun, p.Reached)  # the first packet, if it is no goodbye
            yield InnerSession(peer, door, begun.epoch)
        finally:
            door.leave()
            await peer.tasks.ended.wait()


class NotAdmitted(Refused):
    """The daemon did not admit the session of a request."""


Control: TypeAlias = Callable[[p.Packet], bytes]

_ONE: Final = b"\0"
"""Stands for a batch in the outbox, which is asked for a byte at a time."""


class EventBatch:
    """Values of a stream, packed as ``body``, which cost ``size`` bytes of credit."""

    __slots__ = ("body", "count", "size", "stream")

    def __init__(self, stream: int, count: int, body: bytes, size: int) -> None:
        self.stream = stream
        self.count = count
        self.body = body
        """The same bytes for all streams that are sent the same values."""
        self.size = size

    @property
    def values(self) -> tuple[Value, ...]:
        """The values; O(size)."""
        return decoded(self.count, self.body)


def decoded(count: int, body: bytes) -> tuple[Value, ...]:
    """Returns so many packed values."""
    values = unpack_own(array_head(count) + body)
    assert isinstance(values, tuple)  # as the daemon has packed it
    return values


class RouteQueue:
    """The packets of one session on their way to its route.

    A route takes packets as they are, and the values of a stream in batches, which stay packed until they are
    wanted: many event streams observe the same pattern, and share the text that was made of the same bytes. A
    session may also *pour*: from then on its peer has another queue, which writes text to the link of the
    client, as the queue of a socket writes frames.

    Always: values leave their streams only as the route takes them, so a route that does not read holds them
    back; nothing comes after a goodbye.
    """

    is_touched: Final = False  # a route takes packets when it likes
    sent: Final = 0
    unheard: Final = 0

    def __init__(self, peer: Peer) -> None:
        self._peer: Final = peer
        self._outbox: Final = Outbox(self._keep, peer.close, self._keep_batch)
        self._kept = deque[p.Packet | EventBatch]()
        self._changed = trio.Event()
        self._rearmed = trio.Event()
        """Set when ``run`` must look at its deadline again, or the peer has another queue."""
        self._interval = self._next_beat = math.inf
        self._is_quiet = True
        self._is_closed = False
        self.parted = False
        """True once there was a goodbye, after which nothing is sent."""

    # -- the session's end ----------------------------------------------------------------------------

    def begin(self) -> None:
        """Tells the route that the session has begun, by the newest epoch; held as other packets are."""
        self.say(p.Reached(self._peer.hosted.visibility.newest, ()))

    def is_blocked(self) -> bool:
        """Returns False: a route has no socket."""
        return False

    def say(self, packet: p.Packet) -> None:
        """Passes a control packet on; does nothing after a goodbye."""
        if not self.parted:
            self._keep(packet)

    async def wait_drained(self) -> None:
        """Returns at once, as nothing waits."""
        await trio.lowlevel.checkpoint()

    async def answer(self, number: int, value: Value, work: Work) -> None:
        """Passes on the answer to a request, as it is."""
        self.say(p.Answer(number, value))

    def accept(self, epoch: Epoch) -> None:
        """Passes on the acceptance of a turn that is on disk."""
        self.say(p.Accepted(epoch[7], (epoch[0],)))

    def wake(self, stream: OutStream) -> None:
        """Notes that a stream has something to send."""
        if self._peer.sending is not self:  # what waits in a stream keeps the queue with which it was opened
            self._peer.wake(stream)
        else:
            self._outbox.wake(stream)
            self.notify()

    def touch(self) -> None:
        """Wakes the route, which takes held packets."""
        self.notify()

    def part(self, code: str, text: str, url: str = "") -> None:
        """Passes on a goodbye, and nothing after it."""
        if self._peer.shared.surety.holds(self._peer):
            self._kept.clear()
        self.say(p.Bye(code, text, url))
        self._outbox.end()
        self.parted = True

    def forget(self) -> None:
        """Drops nothing: acceptances that wait are not packed, so they are no defect."""

    def beat_at(self, interval: float) -> None:
        """Passes on the progress of streams every ``interval`` seconds, and a ping if the route was idle."""
        self._interval, self._next_beat = interval, trio.current_time() + interval
        self._rearmed.set()

    def flush(self) -> None:
        """Does nothing: a route takes packets when it likes."""

    async def run(self) -> None:
        """Passes on the progress of streams in each interval, until cancelled."""
        while self._peer.sending is self:
            if self._next_beat <= trio.current_time():
                self._next_beat += self._interval
                for packet in self._peer.reached():
                    self.say(packet)
                if self._is_quiet:
                    self.say(p.Ping(0))
                self._is_quiet = True
            with trio.move_on_at(self._next_beat):
                await self._rearmed.wait()
            self._rearmed = trio.Event()
        await self._peer.sending.run()

    def close(self) -> None:
        """Ends the queue: packets passed on before can still be taken."""
        self._is_closed = True
        self.notify()

    # -- the route's end ------------------------------------------------------------------------------

    async def next(self) -> p.Packet | EventBatch:
        """Returns the next packet or batch; takes nothing when cancelled.

        Raises ``Broken`` where the session has ended without a goodbye.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        while (found := self.next_nowait()) is None:
            if self._is_closed:
                raise Broken("the daemon ended the session")
            await self._changed.wait()
        return found

    def next_nowait(self) -> p.Packet | EventBatch | None:
        """Returns the next packet or batch, or None where there is none yet."""
        if not self.parted and self._peer.shared.surety.holds(self._peer):
            return None
        if not self._kept:
            self._outbox.fill(len(_ONE))
        if not self._kept:
            return None
        self._is_quiet = False
        return self._kept.popleft()

    def pour(self, link: Link, control: Control, framed: Framed) -> SendQueue:
        """Gives the peer another queue, which writes to a link, what is kept first; returns it."""
        poured = send_queue(self._peer, link, control, framed=framed)
        poured.beat_at(self._interval)
        for packet in self._kept:
            if isinstance(packet, p.Bye):
                poured.part(*packet)
            else:
                assert not isinstance(packet, EventBatch)  # the route takes each in the step that makes it
                poured.say(packet)
        self._peer.send_by(poured)
        self._peer.flush()
        self._rearmed.set()
        return poured

    async def wait_poured(self, poured: SendQueue, is_over: Callable[[], bool], stalled: float) -> None:
        """Returns once all of a text that is over was taken.

        Raises ``OSError`` if the client takes nothing for ``stalled`` seconds, or the session ends before.
        """
        sent, since = poured.sent, trio.current_time()
        while not is_over() or poured.is_blocked():
            if self._is_closed:
                raise ConnectionError("the session has ended before all was written")
            with trio.move_on_after(stalled / 4):
                await (poured.wait_drained() if is_over() else self._changed.wait())
            now = trio.current_time()
            if poured.sent != sent or not poured.is_blocked():
                sent, since = poured.sent, now
            elif now - since >= stalled:
                raise TimeoutError(f"the client has read nothing for {stalled:g} s")

    def notify(self) -> None:
        """Wakes the route, which looks again."""
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    # -------------------------------------------------------------------------------------------------

    def _keep(self, packet: p.Packet) -> bytes:
        self._kept.append(packet)
        self.notify()
        return b""

    def _keep_batch(self, stream: int, first: int, count: int, body: bytes, left: int) -> tuple[bytes, int]:
        size = values_size(stream, first, count, body, left)
        self._kept.append(EventBatch(stream, count, body, size))
        return _ONE, size
