"""A peer: one client, who it is, what it may do, what it owns, and how packets go to it.

The features of the daemon stand on it; a door above them reads what the client sends, and acts on it.  A peer
has no socket: its door gives it the queue for its packets.

Always: what a peer has taken is given back once, when it leaves; nothing is sent after a goodbye.
"""

from __future__ import annotations

import logging
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

import trio

from dataspace.errors import Closed, ProtocolError, Refused
from dataspace.steps import Steps
from dataspace.wire import packets as p
from index.values.values import Record, Value
from relay.delivery.outbox import OutStream
from relay.store.errors import LogFailed
from server.config.principals import DAEMON, Principal
from server.config.rights import OPEN, Permit
from server.lane import Work
from server.owners.accounts import STREAM_BYTES, Account
from server.owners.bearers import LEASE, Bearer
from server.parts import PartKey
from server.sessions.feeding import Feeder
from server.sessions.peer_tasks import PeerTasks
from server.sessions.watch import Who
from server.spaces.keeping import ends_log
from server.spaces.sessions import NUMBERS, SessionState, session_id

if TYPE_CHECKING:
    from dataspace.kernel.changes import Epoch
    from server.sessions.state import DaemonState
    from server.spaces.space import HostedSpace

logger = logging.getLogger("dataspace")

_ERRORS: Final = (p.Denied, p.Refusal, p.Error)
"""Packets whose text may contain a path of the daemon."""


NAME_SHOWN: Final = 256
"""Characters of what a client calls itself that are stated."""


T = TypeVar("T")
F = TypeVar("F", bound=Feeder)
F_co = TypeVar("F_co", bound=Feeder, covariant=True)


class FeederKey(Generic[F_co]):
    """Under which a connection keeps its feeder of one feature.

    >>> FeederKey(lambda peer: Feeder(), options=("quiet", "after")).options
    ('after', 'quiet')
    """

    def __init__(
        self,
        make: Callable[[Peer], F_co],
        options: Iterable[str] = (),
        forget: Callable[[Peer, int], None] = lambda _peer, _number: None,
    ) -> None:
        """Streams of this feature have these options; ``forget`` is called for a stream that an earlier
        connection of the session may have opened."""
        self.make = make
        self.options: Sequence[str] = tuple(sorted(options))
        self.forget = forget


class Sending(Protocol):
    """What a client is sent: frames on a socket, or packets for the route of a request."""

    @property
    def parted(self) -> bool:
        """True once there was a goodbye, after which nothing is sent."""

    @property
    def is_touched(self) -> bool:
        """True if the next flush includes this queue."""

    @property
    def sent(self) -> int:
        """Bytes that a socket has taken."""

    @property
    def unheard(self) -> int:
        """The approximate bytes of answers that the client has not received."""

    async def wait_drained(self) -> None:
        """Returns when the socket has taken all bytes that waited."""

    def is_blocked(self) -> bool:
        """True if bytes wait for the socket."""

    def say(self, packet: p.Packet) -> None:
        """Queues a control packet for the next flush; does nothing after a goodbye."""

    async def answer(self, number: int, value: Value, work: Work) -> None:
        """Queues the answer to a request; where it is packed, in steps of the lane."""

    def accept(self, epoch: Epoch) -> None:
        """Queues the acceptance of a turn that is on disk."""

    def wake(self, stream: OutStream) -> None:
        """Notes that a stream has something to send."""

    def part(self, code: str, text: str, url: str = "") -> None:
        """Queues a goodbye, and accepts nothing after it."""

    def forget(self) -> None:
        """Drops the acceptances that are not sent yet: it may be these that cannot be sent."""

    def touch(self) -> None:
        """Includes this queue in the next flush."""

    def beat_at(self, interval: float) -> None:
        """Sends something at least every ``interval`` seconds, and expects the same of the client."""

    def flush(self) -> None:
        """Passes on what can be sent at once."""

    async def run(self) -> None:
        """Sends what could not be sent at once, and a ping when nothing else was sent."""


class Door(Protocol):
    """What a client comes through: a socket, or the route of a request."""

    @property
    def address(self) -> str:
        """Where the client connects from."""

    @property
    def encryption(self) -> str:
        """The version of TLS, such as ``TLSv1.3``; empty without it."""

    @property
    def size(self) -> int:
        """Bytes of the packet that is acted on."""

    @property
    def is_web(self) -> bool:
        """True for a WebSocket, whose client connects to addresses for HTTP alone."""

    def queue(self, peer: Peer) -> Sending:
        """Returns the queue for what the client is sent; called once, when its peer is made."""

    def welcome(self, *, resumed: bool) -> None:
        """Notes that the client is admitted, with a new session or a ``resumed`` one."""


class Peer(ABC):
    """One client of the daemon; a ``trusted`` one needs no token."""

    def __init__(self, shared: DaemonState, door: Door, number: int, *, trusted: bool = False) -> None:
        limits = shared.limits
        self.shared: Final = shared
        self.limits: Final = limits
        self.hosted: HostedSpace = shared.main
        """The space that the session is about; ``main`` until the hello names another."""
        self.trusted = trusted
        self.reads = False
        """True if the client has said that it sends no turns, so that it goes wherever it is sent."""
        self.is_here = False
        """True if the client asks about this daemon itself."""
        self.door: Final = door
        self.address: Final = door.address
        self.number = number
        self.name = ""
        """What the client calls itself."""
        self.since = trio.current_time()
        self.state: SessionState | None = None
        self.permit: Permit = OPEN
        """The permit of the bearer, apart for the sake of every turn."""
        self.bearer = Bearer(OPEN, DAEMON if trusted else Principal.of_peer(door.address))
        self.quota: Final = ConnectionQuota(shared, self.principal)
        self.lost = False
        """True if the connection was lost, rather than ended by one of its two ends."""
        self.has_parted = False
        """True once the client has said goodbye."""
        self.gone = False
        """True once the peer has ended, or its session belongs to another one."""
        self.received = self.turns = self.asked = 0
        """Bytes received, turns committed, and requests without an answer yet."""
        self.streams: dict[int, OutStream] = {}
        self.feeders: dict[FeederKey[Feeder], Feeder] = {}
        """What features do for this connection, once they are asked to."""
        self.sending: Sending = door.queue(self)
        """What the client is sent."""
        self.wake = self.sending.wake
        """Notes that a stream has something to send; the queue's own, as every epoch of a stream calls it."""
        self.accept = self.sending.accept
        """Called with the epoch of a turn once that is on disk."""
        self.tasks: Final = PeerTasks(self._run_task)

    # -- who asks -------------------------------------------------------------------------------------

    @property
    def principal(self) -> Principal:
        """The identity of the peer: until its hello the address, from then on its token, if it has one."""
        return self.bearer.principal

    @property
    def account(self) -> Account:
        """What the principal of the peer has."""
        return self.quota.account

    @property
    def own(self) -> SessionState:
        """The session; there is one, since no packet passes the session machine before the hello."""
        assert self.state is not None
        return self.state

    @property
    def who(self) -> Who:
        """The client as reports name it."""
        return Who(self.session_id, self.name, self.principal, self.address)

    @staticmethod
    def session_of(number: int) -> str:
        """Returns the name of the session of a connection with this number."""
        return session_id(number // NUMBERS, number)

    @property
    def session_id(self) -> str:
        """The name of the session; before the hello, the name of a new session of this connection."""
        return session_id(self.hosted.term, self.number) if self.state is None else self.state.id

    @property
    def is_busy(self) -> bool:
        """True while a request has no answer."""
        return bool(self.asked)

    def owner_of(self, name: str) -> str:
        """Returns the owner of this name: a lease, which a turn renews, or a durable owner."""
        owner = self.bearer.owner(name)
        if owner.startswith(LEASE):
            self.hosted.leases.renew(owner)
        return owner

    # -- work -----------------------------------------------------------------------------------------

    def work(self, *, begun: bool = False) -> Work:
        """Returns a piece of background work, which takes turns with work of other bearers.

        Work that ends what was ``begun`` comes before other work of this bearer.
        """
        return self.shared.lane.work(self.asker, begun=begun)

    async def build(self, steps: Steps[T]) -> T:
        """Runs the steps that make a long answer in turns of the lane, and returns the answer.

        They begin once the client has received earlier answers: requests that wait hold no answers.
        """
        async with self.work() as work:
            while self.sending.unheard > self.shared.limits.unsent_bytes:
                work.leave()
                await self.sending.wait_drained()
                await work.enter()
            return await work.go_on(steps)

    @property
    def asker(self) -> Hashable:
        """Whose background work shares turns of the lane."""
        return self.permit.principal or self.number

    def start(self, function: Callable[..., Awaitable[None]], *args: object) -> None:
        """Runs a task of this peer, which ends with it."""
        if not self.tasks.start(function, *args):
            self.serve()

    def serve(self) -> None:
        """Starts the task that serves the peer, unless there is or was one."""
        if self.tasks.serving is None and not self.shared.has_ended:
            self.tasks.expect()
            self.shared.peers.start_soon(self._run_fenced)

    async def _run_fenced(self) -> None:
        """Does ``run``; a defect in that, as at the end of the session, ends nothing else."""
        try:
            await self.run()
        except Exception as error:  # a fence around a session, also around its end
            if ends_log(error):
                raise
            logger.exception("session %s could not be ended in order: a defect", self.session_id)
            self.leave("a defect in the daemon ended it")

    @abstractmethod
    async def run(self) -> None:
        """Serves the peer while something may have to wait, and to its end."""

    @abstractmethod
    def leave(self, reason: str) -> None:
        """Gives back the door, the streams and the quotas of the peer, and marks the peer as ended; raises
        nothing, does nothing twice."""

    @abstractmethod
    def end(self) -> None:
        """Ends a peer that no task serves, once no task can any more."""

    async def _run_task(self, function: Callable[..., Awaitable[None]], *args: object) -> None:
        try:
            await function(*args)
        except (LogFailed, Closed) as error:
            self.dismiss_for(error)
        except Exception:  # noqa: BLE001  # a fence around a session, as where packets are read
            self.defect()

    # -- what it is sent ------------------------------------------------------------------------------

    def say(self, packet: p.Packet) -> None:
        """Queues a control packet for the next flush; does nothing after a goodbye."""
        if isinstance(packet, _ERRORS):
            self.shared.watch.refused(self.who, packet.code, packet.text)
            shown = self.bearer.shown(packet.text, self.shared.place)
            packet = packet._replace(text=shown, url=self._instead(packet.url))
        self.sending.say(packet)

    def _instead(self, url: str) -> str:
        """Returns where this client is to connect instead: over WebSocket the leader's address for HTTP."""
        if url and self.door.is_web:
            for leader in self.hosted.leader, self.shared.main.leader:  # the second leads the topics
                if url == leader.url and leader.web:
                    return leader.web
        return url

    @property
    def is_led(self) -> bool:
        """True if this daemon leads the space of the session."""
        return self.hosted.leads

    def send_by(self, queue: Sending) -> None:
        """Sends by another queue from now on, also what waits in the streams."""
        self.sending, self.wake, self.accept = queue, queue.wake, queue.accept
        for stream in self.streams.values():
            queue.wake(stream)

    def resend(self) -> None:
        """Sends what was held while another daemon might have led."""
        self.sending.touch()
        self.flush()

    def flush(self) -> None:
        """Writes what connections have to send: this one first, the others may be many."""
        if self.sending.is_touched:
            self.sending.flush()
        self.shared.flushing.flush()

    def fail(self, stream: OutStream, code: str, text: str, url: str = "") -> None:
        """Ends a stream with an error; ``url`` is where to open it instead."""
        if not stream.ended:
            stream.ended = True
            self.say(p.Error(stream.number, code, text[:4000], url))
            self.close(stream)

    def close(self, stream: OutStream) -> None:
        """Stops feeding a stream, and gives back its place."""
        if self.streams.pop(stream.number, None) is not None:
            self.quota.give_streams()
        for each in self.feeders.values():
            each.close(stream)
        self.withdraw(stream.number)

    def withdraw(self, number: int) -> None:
        """Retracts the interest of a stream, which an earlier connection of the session may have asserted."""
        if self.state is not None and not self.gone:
            with suppress(LogFailed, Closed):  # this daemon ends, and the next one has the interest
                self.state.withdraw(number)

    def reached(self) -> list[p.Packet]:
        """Returns packets about the progress of idle streams."""
        return [packet for each in self.feeders.values() for packet in each.reached()]

    def feeder(self, key: FeederKey[F]) -> F:
        """Returns what a feature does for this connection, from now on if it has done nothing yet."""
        found: F | None = self.feeders.get(key)  # type: ignore[assignment]  # as the key has made it
        if found is None:
            found = self.feeders[key] = key.make(self)
        return found

    # -- its end --------------------------------------------------------------------------------------

    def part(self, code: str, text: str, url: str = "") -> None:
        """Sends a goodbye, and nothing after it; the connection closes once that is sent."""
        self.shared.watch.parted(self.who, code, text)
        self.sending.part(code, self.bearer.shown(text, self.shared.place)[:4000], self._instead(url))
        self.flush()

    def dismiss(self, code: str, text: str, url: str = "") -> None:
        """Ends this peer with a goodbye that gives the reason, and the address to connect to instead."""
        self.part(code, text, url)
        self.serve()
        if self.tasks.reading is not None:
            self.tasks.reading.cancel()

    def dismiss_for(self, error: Exception) -> None:
        """Ends this peer because of an error; where the log has ended, its client may come back."""
        self.lost = isinstance(error, LogFailed | Closed)
        self.dismiss("closing" if self.lost else "internal", str(error))

    def supersede(self, by: str) -> None:
        """Ends this peer because its client has another connection, which has the session now."""
        self.gone = True
        self.part("superseded", by)
        self.cancel()

    def cancel(self) -> None:
        """Ends the peer at once, without a goodbye."""
        self.serve()
        if self.tasks.serving is not None:
            self.tasks.serving.cancel()

    def defect(self) -> None:
        """Ends the session because of the unexpected exception that is being handled."""
        error = sys.exception()
        ended = error if isinstance(error, LogFailed | Closed) else None
        if ended is None:
            logger.exception("session %s failed: this is a defect, please report it", self.session_id)
        if self.sending.parted:  # the goodbye itself has failed
            self.cancel()
            return
        self.sending.forget()  # what is queued may be half a packet
        if ended is None:
            self.dismiss("internal", "a defect in the daemon ended this session")
        else:
            self.dismiss_for(ended)

    def lose(self) -> None:
        """Ends the peer, because its connection is lost."""
        self.lost = True
        self.cancel()


PEERS: Final = PartKey[dict[int, Peer]]("connections")
"""The connections of a daemon that speak the protocol, by number.

Their memory is shown with that of all ``connections``, which ``DaemonState`` counts.
"""


class ConnectionQuota:
    """The places of one connection: as a stranger, as a connection, and for its streams."""

    __slots__ = ("_about", "_shared", "account")

    def __init__(self, shared: DaemonState, principal: Principal) -> None:
        self._shared = shared
        self.account: Account = shared.accounts.of(principal)
        """The account of the address until the hello, and of the token, if there is one, from then on."""
        self._about: tuple[Record, ...] = ()
        """Facts about the connection, once it is counted."""

    def enter(self, peer: Peer) -> None:
        """Counts the connection of a peer, and states it; raises ``ProtocolError`` for one too many."""
        principal, number = peer.principal, session_id(peer.hosted.term, peer.number)
        account = self._shared.accounts.of(principal)
        try:
            account.reserve("connections")
        except Refused as refusal:
            raise ProtocolError(refusal.code, refusal.text, refusal.url) from None
        self.account = account
        self._about = (
            Record("session", number, peer.hosted.name, peer.name[:NAME_SHOWN], str(principal)),
            Record("connection", number, peer.address, peer.door.encryption, time.time_ns() // 1000),
        )
        self._shared.system.state(self._about, ())

    def take_stream(self, streams: Mapping[int, OutStream]) -> None:
        """Counts one more stream; raises ``Refused`` where those are too many here, or in all."""
        limits, here, all_here = self._shared.limits, len(streams), self._shared.guests.streams
        if here >= limits.streams:
            raise Refused("limit", f"{here} streams, the limit is limits.streams={limits.streams}")
        if all_here >= limits.all_streams:
            excess = f"{all_here} streams of all connections"
            raise Refused("limit", f"{excess}, the limit is limits.all_streams={limits.all_streams}")
        self._shared.memory.admit_reader(0, STREAM_BYTES)
        self.account.reserve("streams")
        self._shared.guests.streams += 1

    def give_streams(self, count: int = 1) -> None:
        """Counts so many streams less."""
        self.account.release("streams", count)
        self._shared.guests.streams -= count

    def leave(self, streams: int) -> None:
        """Gives back all places, with the places of so many streams."""
        self.give_streams(streams)
        if self._about:
            self.account.release("connections")
            self._shared.system.state((), self._about)
            self._about = ()

    async def pace(self, packet: p.Packet) -> None:
        """Waits while the principal has sent more turns or requests than it may in a second."""
        if packet.__class__ is p.Turn:
            await self.account.pace("turns")
        elif packet.__class__ is p.Request or packet.__class__ is p.Produce:
            await self.account.pace("requests")

    async def slow_down(self, peer: str, error: ProtocolError) -> None:
        """Logs a token that is not valid, and waits before that is answered: longer each time."""
        if error.code == "unauthorized":
            logger.warning("refused a token from %s: %s", peer, error.text)
            await self.account.slow_down(self._shared.limits.hello_seconds / 2)
