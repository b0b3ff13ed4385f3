"""Connections: the socket of a client, and the session machine between its bytes and its packets.

A ``Connection`` is read by the task of its peer.  A ``SocketReader`` is called by the reactor when bytes have
come: it receives, cuts packets, and acts on turns, credit and other packets that never wait.  All else is
handed, with the packets after it, to the task of the peer: hello, requests, large or paced turns, the end of
input, and errors.  Nothing is read until that task has done its part; it ends when it was idle for a while.

Always: malformed input ends the connection with a ``Bye`` that gives the reason, and affects no other;
packets are acted on in the order in which they came, a bundle at most before others run; nothing is read
while the client does not read its answers, or while the disk is behind; a closing connection ends within
``LINGER`` seconds, whatever the client does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from time import perf_counter
from typing import TYPE_CHECKING, Final

import trio

from dataspace.errors import DataspaceError, ProtocolError
from dataspace.kernel.turns import KEYED
from dataspace.transport.reactor import READ, WRITE, Deadline
from dataspace.transport.tls import encryption_of
from dataspace.wire import packets as p
from dataspace.wire.session import Form, Framed, Role, Session, State
from server.connections.bundles import BUNDLE, BUNDLE_SECONDS, act_on, note_slow
from server.sessions.peer import Peer
from server.sessions.sending import SendQueue

if TYPE_CHECKING:
    from dataspace.transport.reactor import Reactor
    from dataspace.transport.sockets import Link, SocketLink
    from server.config.model import Limits
    from server.connections.dispatch import ClientPeer

LINGER: Final = 1.0
"""Seconds for the last bytes to be sent and received before the socket is closed."""

IDLE_SECONDS: Final = 0.25
"""Seconds without anything for it after which the task of a peer ends."""

MOST_IDLE_SECONDS: Final = 60.0
"""Seconds between two looks whether it can end, while other tasks of the peer run."""


class Connection:
    """The door of one client over a link; it writes and reads packets as frames, or as its ``form`` says."""

    def __init__(self, link: Link, limits: Limits, form: Form | None = None) -> None:
        self._link: Final = link
        self._limits: Final = limits
        self._form: Final = form
        self._session: Final = Session(
            Role.SERVER, max_frame=limits.frame_bytes, max_elements=limits.frame_elements, form=form
        )
        self._at_end = False
        self._sending: SendQueue
        self.address: Final = link.peer

    @property
    def encryption(self) -> str:
        """The version of TLS, such as ``TLSv1.3``; empty without it."""
        return encryption_of(self._link)

    @property
    def is_web(self) -> bool:
        """True for a WebSocket."""
        return self._form is not None

    @property
    def size(self) -> int:
        """Bytes of the packet that is acted on."""
        return self._session.size

    def queue(self, peer: Peer) -> SendQueue:
        """Returns the queue of frames for the socket."""
        return self._queue(peer)

    def _queue(self, peer: Peer, rouse: Callable[[], None] | None = None) -> SendQueue:
        framed = None if self._form is None else self._form.framed
        self._sending = send_queue(peer, self._link, self._session.send, rouse=rouse, framed=framed)
        return self._sending

    def welcome(self, *, resumed: bool) -> None:
        """Takes larger frames, and aborts of streams opened over a connection before, from now on."""
        if resumed:
            self._session.resume()
        self._session.allow_frames(self._limits.frame_bytes)

    # -- reading --------------------------------------------------------------------------------------

    def begin(self, peer: ClientPeer) -> None:
        """Begins to read, and to write what the socket does not take at once, in the task of the peer."""
        peer.start(self._sending.run)

    async def read(self, peer: ClientPeer) -> bool | None:
        """Acts on what the client sends until it has gone; returns False if it was lost.

        Raises ``ProtocolError`` for malformed input.
        """
        link, session, sending = self._link, self._session, self._sending
        patience = Patience(link, session, sending, self._limits, trusted=peer.trusted)
        while session.state is not State.ENDED:
            chunk = await patience.receive()
            if not chunk:
                self._at_end = True
                return False
            peer.received += len(chunk)
            some = await act_on(peer, session.steps(chunk))
            peer.flush()
            if link.pending:
                sending.wake_writer()
            patience.extend(some)
            await self._wait_room(peer)
            sending.beat.heard(trio.current_time())  # this process may not have run for a while
        return True

    async def _wait_room(self, peer: ClientPeer) -> None:
        """Waits while the disk is behind, or while the peer does not read what is sent to it."""
        await peer.hosted.commits.wait_room()
        limits, sending = self._limits, self._sending
        if sending.unheard > limits.unsent_bytes:
            with trio.move_on_after(limits.stalled_seconds):
                while sending.unheard > limits.unsent_bytes:
                    await sending.wait_drained()
                return
            raise ProtocolError("stalled", f"{sending.unheard} bytes of answers were not read")

    # -- the end ------------------------------------------------------------------------------------

    async def linger(self, peer: ClientPeer) -> None:
        """Returns once the socket can be closed: its queue is sent, and nothing can reset it.

        To close a socket with unread input resets the connection, and the reset overtakes the bytes sent
        before it.  So input that still arrives is read and discarded until the client closes as well, unless
        its input has ended, or it has sent a goodbye, after which it sends nothing.
        """
        link, sending = self._link, self._sending
        if not sending.is_blocked() and (self._at_end or (peer.has_parted and not link.receive_nowait())):
            link.finish()
            return
        with trio.move_on_after(LINGER):
            while sending.is_blocked():
                await sending.wait_drained()
            link.finish()
            while await link.receive():
                pass

    def close(self) -> None:
        """Closes the socket at once."""
        self._link.close()


def send_queue(
    peer: Peer,
    link: Link,
    encode: Callable[[p.Packet], bytes],
    *,
    rouse: Callable[[], None] | None = None,
    framed: Framed | None = None,
) -> SendQueue:
    """Returns the queue of what a peer is sent over a link, written as ``encode`` and ``framed`` say."""
    return SendQueue(
        link,
        encode,
        over=peer.close,
        beaten=peer.reached,
        touch=peer.shared.flushing.touch,
        lose=peer.lose,
        defect=peer.defect,
        holds=partial(peer.shared.surety.holds, peer),
        rouse=rouse,
        framed=framed,
    )


class Patience:
    """The deadlines of one peer: for its hello, for the rest of a frame, for any sign of life.

    A deadline is absolute, so a peer that sends a byte now and then does not extend it.  A ``trusted`` peer
    may take as long as it likes for its hello.
    """

    __slots__ = ("_deadline", "_limits", "_link", "_sending", "_session")

    def __init__(
        self, link: Link, session: Session, sending: SendQueue, limits: Limits, *, trusted: bool
    ) -> None:
        self._link: Final = link
        self._session: Final = session
        self._sending: Final = sending
        self._limits: Final = limits
        self._deadline = math.inf if trusted else trio.current_time() + limits.hello_seconds

    async def receive(self) -> bytes:
        """Returns bytes, or none at the end; raises ``ProtocolError`` if the peer was silent for too long."""
        chunk = None
        with trio.move_on_at(self.deadline):
            chunk = await self._link.receive()
        if chunk is None:
            chunk = self._link.receive_nowait()  # the daemon itself may have been late
        if chunk is None:
            raise self.late()
        return chunk

    @property
    def deadline(self) -> float:
        """When the peer is too late, on trio's clock."""
        return min(self._deadline, self._sending.beat.lost)

    def extend(self, some: bool) -> None:
        """Notes what came: the frame that has begun must be complete in time.

        ``some`` is true if other frames were finished just now, so that this one cannot be older.
        """
        if self._session.state is State.FRESH:
            return
        if not self._session.held:
            self._deadline = math.inf
        elif some or self._deadline == math.inf:
            self._deadline = trio.current_time() + self._limits.frame_seconds

    @property
    def is_counting(self) -> bool:
        """True while a frame has begun, or there was no hello yet."""
        return self._deadline != math.inf

    def late(self) -> ProtocolError:
        """Returns the error for a peer that was silent for too long."""
        if self._session.state is State.FRESH:
            return ProtocolError("timeout", f"no hello within {self._limits.hello_seconds} s")
        beat = self._sending.beat
        if beat.lost <= trio.current_time():
            return ProtocolError("timeout", f"no data for {2 * beat.interval:g} s")
        return ProtocolError("timeout", f"a frame took longer than {self._limits.frame_seconds} s")


class SocketReader(Connection):
    """The door of one client at a socket which a reactor watches."""

    def __init__(self, link: SocketLink, limits: Limits, reactor: Reactor) -> None:
        super().__init__(link, limits)
        self._reactor: Final = reactor
        self._number: Final = link.number
        self._events = 0
        """The events that the reactor watches for."""
        self._deadline: Final = Deadline(reactor, self._be_late)
        self._peer: ClientPeer
        self._patience: Patience
        self._packets: Iterator[p.Packet | None] | None = None
        """The packets that are left of the latest chunk."""
        self._error: DataspaceError | None = None
        self._some = False
        """True once a packet of that chunk was acted on."""
        self._is_handed = False
        """True while the task of the peer has to do its part before anything more is read."""
        self._arrived: trio.Event | None = None
        self._is_closed = False

    def queue(self, peer: Peer) -> SendQueue:
        """Returns the queue of frames for the socket."""
        return self._queue(peer, self._rouse)

    def begin(self, peer: ClientPeer) -> None:
        """Begins to read."""
        self._peer = peer
        self._patience = Patience(
            self._link, self._session, self._sending, self._limits, trusted=peer.trusted
        )
        self._watch(READ)
        self._set_deadline()

    # -- called by the reactor ------------------------------------------------------------------------

    def ready(self, events: int) -> None:
        """Writes what the socket takes, and acts on what has come."""
        try:
            if self._events & WRITE:
                self._sending.write()
                if self._sending.is_broken:  # the socket would be writable for ever
                    self._watch(0)
                elif not self._sending.has_more:
                    self._watch(self._events & ~WRITE)
                    self._set_deadline()
            if self._is_waiting and events != WRITE:
                self._receive()
        except Exception:  # noqa: BLE001  # a fence around a session: a defect in it ends nothing else
            self._peer.defect()

    def _be_late(self, now: float) -> None:
        """Hands over a client that is too late, and sends what is due."""
        try:
            if self._is_waiting and self._patience.deadline <= now and not self._receive():
                self._error = self._patience.late()
                self._hand()
            if self._sending.due <= now:
                self._sending.write()
            self._set_deadline()
        except Exception:  # noqa: BLE001  # a fence, as above
            self._peer.defect()

    @property
    def _is_waiting(self) -> bool:
        """True while the client is to send something: no packet of it is yet to be acted on."""
        return bool(self._events & READ) and self._packets is None

    def _receive(self) -> bool:
        """Acts on what has come; returns False if nothing has."""
        assert self._packets is None  # they would be lost
        chunk = self._link.receive_nowait()
        if chunk is None:
            return False
        if not chunk:
            self._at_end = True
            self._hand()
            return True
        self._peer.received += len(chunk)
        self._some = False
        self._packets = self._session.steps(chunk)
        self._go_on()
        return True

    def _go_on(self) -> None:
        """Acts on packets of the latest chunk, until a bundle is full or one may have to wait."""
        peer = self._peer
        try:
            self._act(peer)
        except DataspaceError as error:
            self._packets, self._error = None, error
            self._hand()
        except Exception:  # noqa: BLE001  # a fence around a session: a defect in it ends nothing else
            self._packets = None
            self._hand()
            peer.defect()
        else:
            if self._packets is not None:
                if not self._is_handed:
                    self._reactor.again(self._go_on)
            elif not self._is_handed:
                self._end_chunk(peer)

    def _act(self, peer: ClientPeer) -> None:
        """Acts on a bundle of packets; ``_packets`` are the others."""
        packets = self._packets
        if packets is None or peer.parted or peer.gone:
            self._packets = None
            self._watch(self._events & ~READ)
            return
        slow, is_traced, count = peer.shared.watch.slow_turn, peer.shared.recorder is not None, 0
        since = perf_counter()
        until = since + BUNDLE_SECONDS
        for packet in packets:
            if is_traced or packet is None or _is_large(packet) or not peer.act_at_once(packet):
                self._packets = chain((packet,), packets)
                self._hand()
                return
            count, began, since = count + 1, since, perf_counter()
            self._some = True
            if since - began > slow:
                note_slow(peer, packet, since - began)
            if count == BUNDLE or since > until or peer.sending.parted:
                return
        self._packets = None

    def _end_chunk(self, peer: ClientPeer) -> None:
        """Notes that a chunk was acted on, and waits for room where there is none."""
        sending = self._sending
        if self._session.held or self._patience.is_counting:
            self._patience.extend(self._some)
        commits = peer.hosted.commits
        if commits.is_behind or sending.unheard > self._limits.unsent_bytes:
            self._hand()
        else:
            sending.beat.heard(trio.current_time())  # this process may not have run for a while
            self._set_deadline()

    def _hand(self) -> None:
        """Resumes the task of the peer; nothing is read until it has acted."""
        self._is_handed = True
        self._watch(self._events & ~READ)
        if self._arrived is not None:
            self._arrived.set()
        else:
            self._peer.serve()

    def _rouse(self) -> None:
        """Called when something waits for the socket, or has another deadline."""
        if self._sending.has_more:
            self._watch(self._events | WRITE)
        self._set_deadline()

    def _watch(self, events: int) -> None:
        """Watches for these events from now on."""
        if events != self._events and not self._is_closed:
            if not events:
                self._reactor.unregister(self._number)
            elif self._events:
                self._reactor.modify(self._number, events)
            else:
                self._reactor.register(self._number, self, events)
            self._events = events

    def _set_deadline(self) -> None:
        """Sets the next deadline of reading and writing."""
        deadline = self._patience.deadline if self._is_waiting else math.inf
        if not self._sending.is_blocked():
            deadline = min(deadline, self._sending.due)
        self._deadline.set(deadline)

    # -- the task of the peer -------------------------------------------------------------------------

    async def read(self, peer: ClientPeer) -> bool | None:
        """Acts on what was handed over, and waits for more of that.

        Returns False once the client is gone, None if nothing has come for a while.  Raises
        ``ProtocolError`` for malformed input.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        while True:
            if self._error is not None:
                raise self._error
            if self._at_end:
                return False
            if not self._is_handed:
                if await self._wait_handed(peer):
                    continue
                return None
            packets, self._packets = self._packets, None
            if packets is not None:
                self._some |= await act_on(peer, packets)
            peer.flush()
            if self._session.state is State.ENDED:
                return True
            self._patience.extend(self._some)
            await self._wait_room(peer)
            self._sending.beat.heard(trio.current_time())
            self._is_handed = False
            self._watch(self._events | READ)
            self._set_deadline()

    async def _wait_handed(self, peer: ClientPeer) -> bool:
        """Returns when something was handed over, or False if nothing was and no task of the peer runs."""
        seconds = IDLE_SECONDS
        while True:
            self._arrived = trio.Event()
            try:
                with trio.move_on_after(seconds):
                    await self._arrived.wait()
            finally:
                self._arrived = None
            if self._is_handed:
                return True
            if peer.tasks.are_done:
                return False
            seconds = min(2 * seconds, MOST_IDLE_SECONDS)

    async def linger(self, peer: ClientPeer) -> None:
        """Returns once the socket can be closed; nothing that comes is acted on any more."""
        self._watch(self._events & ~READ)
        await super().linger(peer)

    def close(self) -> None:
        """Closes the socket at once."""
        self._watch(0)
        self._is_closed = True
        self._deadline.close()
        super().close()


def _is_large(packet: p.Packet) -> bool:
    """True for a turn whose facts get their keys in steps."""
    if packet.__class__ is not p.Turn:
        return False
    return len(packet.actions) > KEYED or bool(packet.others)
