"""A connection: the socket of a client, and the session machine between its bytes and its packets.

Always: malformed input ends the connection with a ``Bye`` that gives the reason, and affects no other; the
reader stops while the client does not read its answers, or while the disk is behind; a closing connection
ends within ``LINGER`` seconds, whatever the client does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import trio

from dataspace.errors import ProtocolError
from dataspace.transport.tls import encryption_of
from dataspace.wire.session import Form, Role, Session, State
from server.connections.bundles import act_on
from server.sessions.peer import Peer
from server.sessions.sending import SendQueue

if TYPE_CHECKING:
    from dataspace.transport.sockets import Link
    from server.config.model import Limits
    from server.connections.acting import ActingPeer

LINGER: Final = 1.0
"""Seconds for the last bytes to be sent and received before the socket is closed."""


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
    def size(self) -> int:
        """Bytes of the packet that is acted on."""
        return self._session.size

    def queue(self, peer: Peer) -> SendQueue:
        """Returns the queue of frames for the socket."""
        return self._queue(peer)

    def _queue(self, peer: Peer, rouse: Callable[[], None] | None = None) -> SendQueue:
        form = self._form
        self._sending = SendQueue(
            self._link,
            self._session.send,
            over=peer.close,
            beaten=peer.reached,
            touch=peer.shared.touch,
            lose=peer.lose,
            defect=peer.defect,
            rouse=rouse,
            framed=None if form is None else form.framed,
        )
        return self._sending

    def welcome(self, *, resumed: bool) -> None:
        """Takes larger frames, and aborts of streams opened over a connection before, from now on."""
        if resumed:
            self._session.resume()
        self._session.allow_frames(self._limits.frame_bytes)

    # -- reading --------------------------------------------------------------------------------------

    def begin(self, peer: ActingPeer) -> None:
        """Begins to read, and to write what the socket does not take at once, in the task of the peer."""
        peer.start(self._sending.run)

    async def read(self, peer: ActingPeer) -> bool | None:
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
                sending.stir()
            patience.extend(some)
            await self._wait_room(peer)
            sending.beat.heard(trio.current_time())  # this process may not have run for a while
        return True

    async def _wait_room(self, peer: ActingPeer) -> None:
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

    async def linger(self, peer: ActingPeer) -> None:
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
        """Returns what a peer is told that was silent for too long."""
        if self._session.state is State.FRESH:
            return ProtocolError("timeout", f"no hello within {self._limits.hello_seconds} s")
        beat = self._sending.beat
        if beat.lost <= trio.current_time():
            return ProtocolError("timeout", f"no data for {2 * beat.interval:g} s")
        return ProtocolError("timeout", f"a frame took longer than {self._limits.frame_seconds} s")
