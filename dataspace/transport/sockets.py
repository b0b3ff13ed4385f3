"""Links: one connected socket, as a connection wants it.

trio's own streams make every write a wait.  A daemon that tells a hundred observers of one turn would
rather hand bytes to the kernel at once and wait only where the kernel is full, so this link works on a
plain non-blocking socket with trio's readiness calls.  Both ends use it; it is apart from them so that
other transports can take its place.

Always: ``send_nowait`` never blocks; a reset by the peer is an end of input, not an exception.
"""

from __future__ import annotations

import socket
from typing import Final, Protocol

import trio

CHUNK: Final = 64 << 10
"""Bytes that one read takes at most."""


class Link(Protocol):
    """What a connection needs of its transport."""

    peer: str

    async def receive(self) -> bytes:
        """Some bytes, or none at the end of input; always a checkpoint, and cancelled it takes nothing."""

    def receive_nowait(self) -> bytes | None:
        """What has come already, none at the end of input, or None where nothing has."""

    def send_nowait(self, data: bytes | bytearray) -> int:
        """How many bytes were taken, perhaps none; ``OSError`` if the peer is gone."""

    @property
    def pending(self) -> bool:
        """Whether bytes that were taken wait for the kernel: it is to be written to again, with nothing."""

    async def wait_writable(self) -> None:
        """Returns when the kernel has room again."""

    def finish(self) -> None:
        """Tells the peer that nothing more comes; it can still be heard."""

    def close(self) -> None:
        """Closes the socket and wakes whoever waits on it; may be called again."""


class SocketLink:
    """A TCP or Unix socket."""

    __slots__ = ("_socket", "peer")
    pending: Final = False

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        if connected.family in (socket.AF_INET, socket.AF_INET6):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _find_dead_peers(connected)
        self._socket = connected
        self.peer = _name_of(connected)

    async def receive(self) -> bytes:
        """Some bytes, or none at the end of input; always a checkpoint, and cancelled it takes nothing."""
        await trio.lowlevel.checkpoint_if_cancelled()
        data = self.receive_nowait()
        if data is not None:
            await trio.lowlevel.cancel_shielded_checkpoint()
            return data
        while data is None:
            await trio.lowlevel.wait_readable(self._socket)
            data = self.receive_nowait()
        return data

    def receive_nowait(self) -> bytes | None:
        """What has come already, none at the end of input, or None where nothing has."""
        try:
            return self._socket.recv(CHUNK)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def send_nowait(self, data: bytes | bytearray) -> int:
        """How many bytes the kernel took, perhaps none; ``OSError`` if the peer is gone."""
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0

    async def wait_writable(self) -> None:
        """Returns when the kernel has room again."""
        await trio.lowlevel.wait_writable(self._socket)

    def finish(self) -> None:
        """Tells the peer that nothing more comes; it can still be heard."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it is gone already

    def close(self) -> None:
        """Closes the socket and wakes whoever waits on it; may be called again."""
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()


def _find_dead_peers(connected: socket.socket) -> None:
    """Has the system ask a silent peer for a sign of life: one that has vanished is found in 30 s.

    While something is on its way to it, that is up to the heartbeat.
    """
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):  # not every system has all of them
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    # No TCP_USER_TIMEOUT: it would also cut off a peer that is there and reads nothing for a while.


def _name_of(connected: socket.socket) -> str:
    try:
        name = connected.getpeername()
    except OSError:
        return "unknown"
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "unix"
