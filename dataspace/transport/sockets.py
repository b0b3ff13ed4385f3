"""Links: connected sockets with the methods that a connection needs.

With the streams of an event loop every write may wait.  A daemon that sends one turn to a hundred observers
must hand bytes to the kernel at once and wait only where the kernel's buffer is full, so this link works on a
plain non-blocking socket with the loop's readiness calls.  Both ends use it; it is apart from them so that
other transports can replace it.

Always: ``send_nowait`` never blocks; a reset by the peer is an end of input, not an exception.
"""

from __future__ import annotations

import socket
from typing import Final, Protocol

from dataspace.loops.here import loop
from dataspace.transport.addresses import peer_of

CHUNK: Final = 64 << 10
"""Bytes that one read takes at most."""


class Link(Protocol):
    """What a connection needs of its transport."""

    peer: str

    async def receive(self) -> bytes:
        """Returns some bytes, or none at the end of input; always a checkpoint, and takes nothing when
        cancelled."""

    def receive_nowait(self) -> bytes | None:
        """Returns what has come already, no bytes at the end of input, or None where nothing has come."""

    def send_nowait(self, data: bytes | bytearray) -> int:
        """Returns how many bytes were taken, perhaps 0; raises ``OSError`` if the peer has closed."""

    @property
    def pending(self) -> bool:
        """True if bytes that were taken wait for the kernel: call ``send_nowait`` again, with nothing."""

    async def wait_writable(self) -> None:
        """Returns when the kernel has buffer space again."""

    def finish(self) -> None:
        """Ends the output; input can still be read."""

    def close(self) -> None:
        """Closes the socket and wakes every task that waits for it; may be called again."""


class SocketLink:
    """A TCP or Unix socket."""

    __slots__ = ("_loop", "_more", "_socket", "peer")
    pending: Final = False

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        if connected.family in (socket.AF_INET, socket.AF_INET6):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _find_dead_peers(connected)
        self._socket = connected
        self._more = True
        """True if there may be something to receive: the last read took a whole chunk, or there was none."""
        self._loop = loop()
        self.peer = peer_of(connected)

    @property
    def number(self) -> int:
        """The number of the file that the socket is for the system; below 0 once it is closed."""
        return self._socket.fileno()

    async def receive(self) -> bytes:
        """Returns some bytes, or none at the end of input; always a checkpoint, and takes nothing when
        cancelled."""
        data = None
        if self._more:  # else the kernel had no more: another call would be for nothing
            await self._loop.checkpoint_if_cancelled()
            data = self.receive_nowait()
            if data is not None:
                await self._loop.cancel_shielded_checkpoint()
                return data
        while data is None:
            await self._loop.wait_readable(self._socket)
            data = self.receive_nowait()
        return data

    def receive_nowait(self) -> bytes | None:
        """Returns what has come already, no bytes at the end of input, or None where nothing has come."""
        try:
            data = self._socket.recv(CHUNK)
            self._more = len(data) == CHUNK
            return data
        except BlockingIOError:
            self._more = False
            return None
        except OSError:
            return b""

    def send_nowait(self, data: bytes | bytearray) -> int:
        """Returns how many bytes the kernel took, perhaps 0; raises ``OSError`` if the peer has closed."""
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0

    async def wait_writable(self) -> None:
        """Returns when the kernel has buffer space again."""
        await self._loop.wait_writable(self._socket)

    def finish(self) -> None:
        """Ends the output; input can still be read."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the connection is lost already

    def close(self) -> None:
        """Closes the socket and wakes every task that waits for it; may be called again."""
        if self._socket.fileno() >= 0:
            self._loop.notify_closing(self._socket)
            self._socket.close()
            self._more = True  # the next read returns the end at once: a closed socket cannot be waited for


def _find_dead_peers(connected: socket.socket) -> None:
    """Turns on the system's keep-alive probes: a peer that has vanished is detected within 30 s.

    While data is on its way to it, that takes up to the heartbeat.
    """
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):  # not every system has all of them
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    # No TCP_USER_TIMEOUT: it would also disconnect a live peer that reads nothing for a while.
