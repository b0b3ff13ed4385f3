"""A reader: the socket of a client of which most packets are acted on without a task.

The reactor calls it when something has come: it receives, cuts packets, and acts on those that do not have to
wait, such as turns and credit.  Everything else is handed, with the packets after it, to the task of the
peer: hello, requests, large or paced turns, the end of input, and errors.  Nothing is read until that task
has done its part; it ends when nothing has come for it for a while.

Always: the packets of a client are acted on in the order in which they came, whoever does it; one visit acts
on no more than a bundle; a socket is not registered in the reactor while nothing is read or written.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain
from time import perf_counter
from typing import TYPE_CHECKING, Final

import trio

from dataspace.errors import DataspaceError
from dataspace.kernel.turns import KEYED
from dataspace.transport.reactor import READ, WRITE, Timer
from dataspace.wire import packets as p
from dataspace.wire.session import State
from server.connections.bundles import BUNDLE, BUNDLE_SECONDS, act_on
from server.connections.connection import Connection, Patience

if TYPE_CHECKING:
    from dataspace.transport.reactor import Reactor
    from dataspace.transport.sockets import SocketLink
    from server.config.model import Limits
    from server.connections.acting import ActingPeer
    from server.sessions.peer import Peer
    from server.sessions.sending import SendQueue

IDLE_SECONDS: Final = 0.25
"""Seconds without anything for it after which the task of a peer ends."""

MOST_IDLE_SECONDS: Final = 60.0
"""Seconds between two looks whether it can end, while other tasks of the peer run."""


class Reader(Connection):
    """The door of one client at a socket which a reactor watches."""

    def __init__(self, link: SocketLink, limits: Limits, reactor: Reactor) -> None:
        super().__init__(link, limits)
        self._reactor: Final = reactor
        self._number: Final = link.number
        self._events = 0
        """The events that the reactor watches for."""
        self._timer: Final = Timer(reactor, self._be_late)
        self._peer: ActingPeer
        self._patience: Patience
        self._packets: Iterator[p.Packet | None] | None = None
        """What is left of the latest chunk."""
        self._error: DataspaceError | None = None
        self._is_handed = False
        """True while the task of the peer has to do its part before anything more is read."""
        self._arrived: trio.Event | None = None
        self._is_closed = False

    def queue(self, peer: Peer) -> SendQueue:
        """Returns the queue of frames for the socket."""
        return self._queue(peer, self._rouse)

    def begin(self, peer: ActingPeer) -> None:
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
        if self._events & WRITE:
            self._sending.write()
            if not self._sending.has_more:
                self._watch(self._events & ~WRITE)
                self._set_deadline()
        if self._events & READ and self._packets is None and events != WRITE:
            self._receive()

    def _be_late(self, now: float) -> None:
        """Hands over a client that is too late, and sends what is due."""
        if self._events & READ and self._patience.deadline <= now and not self._receive():
            self._error = self._patience.late()
            self._hand()
        if self._sending.due <= now:
            self._sending.keep_alive()
        self._set_deadline()

    def _receive(self) -> bool:
        """Acts on what has come; returns False if nothing has."""
        chunk = self._link.receive_nowait()
        if chunk is None:
            return False
        if not chunk:
            self._at_end = True
            self._hand()
            return True
        self._peer.received += len(chunk)
        self._packets = self._session.steps(chunk)
        self._go_on()
        return True

    def _go_on(self) -> None:
        """Acts on packets of the latest chunk, until a bundle is full or one may have to wait."""
        peer = self._peer
        try:
            count = self._act(peer)
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
                self._end_chunk(peer, count)

    def _act(self, peer: ActingPeer) -> int:
        """Returns the number of packets that were acted on; ``_packets`` are the others."""
        packets = self._packets
        if packets is None or peer.parted or peer.gone:
            self._packets = None
            self._watch(self._events & ~READ)
            return 0
        slow, is_traced, count = peer.shared.watch.slow_turn, peer.shared.recorder is not None, 0
        since = perf_counter()
        until = since + BUNDLE_SECONDS
        for packet in packets:
            if is_traced or packet is None or _is_large(packet) or not peer.act_at_once(packet):
                self._packets = chain((packet,), packets)
                self._hand()
                return count
            count, began, since = count + 1, since, perf_counter()
            if since - began > slow and packet.__class__ is p.Turn:
                said = f"a turn of {len(packet.actions)} actions"
                peer.shared.watch.took(peer.who, "turn", said, since - began)
            if count == BUNDLE or since > until or peer.sending.parted:
                return count
        self._packets = None
        return count

    def _end_chunk(self, peer: ActingPeer, count: int) -> None:
        """Notes that a chunk was acted on, and waits for room where there is none."""
        sending = self._sending
        if self._session.held or self._patience.is_counting:
            self._patience.extend(count > 0)
            self._set_deadline()
        commits = peer.hosted.commits
        if commits.is_behind or sending.unheard > self._limits.unsent_bytes:
            self._hand()
        else:
            sending.beat.heard(trio.current_time())

    def _hand(self) -> None:
        """Has the task of the peer go on; nothing is read until it has."""
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
        """Has the reactor watch for these events from now on."""
        if events != self._events and not self._is_closed:
            if not events:
                self._reactor.unregister(self._number)
            elif self._events:
                self._reactor.modify(self._number, events)
            else:
                self._reactor.register(self._number, self, events)
            self._events = events

    def _set_deadline(self) -> None:
        """Has the reactor call at the next deadline of what it reads and writes, if it would not."""
        deadline = self._patience.deadline if self._events & READ else math.inf
        if not self._sending.is_blocked():
            deadline = min(deadline, self._sending.due)
        self._timer.set(deadline)

    # -- the task of the peer -------------------------------------------------------------------------

    async def read(self, peer: ActingPeer) -> bool | None:
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
            some, packets = False, self._packets
            if packets is not None and self._is_handed:
                self._packets = None
                some = await act_on(peer, packets)
                peer.flush()
                if self._session.state is State.ENDED:
                    return True
            self._patience.extend(some)
            await self._wait_room(peer)
            self._sending.beat.heard(trio.current_time())
            self._is_handed = False
            self._watch(self._events | READ)
            self._set_deadline()
            if not await self._wait_handed(peer):
                return None

    async def _wait_handed(self, peer: ActingPeer) -> bool:
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
            if peer.is_alone:
                return False
            seconds = min(2 * seconds, MOST_IDLE_SECONDS)

    async def linger(self, peer: ActingPeer) -> None:
        """Returns once the socket can be closed; nothing that comes is acted on any more."""
        self._watch(self._events & ~READ)
        await super().linger(peer)

    def close(self) -> None:
        """Closes the socket at once."""
        self._watch(0)
        self._is_closed = True
        self._timer.close()
        super().close()


def _is_large(packet: p.Packet) -> bool:
    """True for a turn of which the facts get their keys in steps."""
    if packet.__class__ is not p.Turn:
        return False
    return len(packet.actions) > KEYED or bool(packet.others)
