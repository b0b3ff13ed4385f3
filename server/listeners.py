"""Listeners: sockets that wait for peers, and what happens to each that comes.

Always: whatever one peer does, the accept loop goes on; running out of descriptors makes it wait, not end.
"""

from __future__ import annotations

import errno
import itertools
import logging
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import trio

from dataspace.addresses import Address, parse_listen
from dataspace.errors import DataspaceError
from dataspace.links import SocketLink
from server.connection import Connection

if TYPE_CHECKING:
    from server.daemon import Daemon

logger = logging.getLogger("dataspace")

BACKLOG: Final = 1024
_SCARCE: Final = frozenset([errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
_numbers = itertools.count(1)


class CannotListen(DataspaceError):
    """An address is taken, or is not ours to take."""


@dataclass(frozen=True, slots=True)
class Listener:
    """A listening socket and the address that clients reach it at."""

    name: str
    socket: socket.socket

    def close(self) -> None:
        """Stops listening."""
        trio.lowlevel.notify_closing(self.socket)
        self.socket.close()


async def open_listeners(addresses: Sequence[str]) -> list[Listener]:
    """Listens on each address, or on none: ``CannotListen`` says which failed."""
    opened: list[Listener] = []
    try:
        for text in addresses:
            opened.append(_open(parse_listen(text)))
    except BaseException:
        for listener in opened:
            listener.close()
        raise
    await trio.lowlevel.checkpoint()
    return opened


def _open(address: Address) -> Listener:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((address.host, address.port))
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise CannotListen(f"cannot listen on {address.listen}: {error.strerror}") from error
    port = listening.getsockname()[1]
    return Listener(Address(address.host, port).listen, listening)


async def accept(daemon: Daemon, listener: Listener, nursery: trio.Nursery) -> None:
    """Accepts peers for as long as the listener is open; each is served in a task of its own."""
    pause = 0.01
    while True:
        try:
            connected, _ = listener.socket.accept()
        except BlockingIOError:
            await trio.lowlevel.wait_readable(listener.socket)
        except OSError as error:
            if error.errno in _SCARCE:
                logger.warning("cannot accept: %s; waiting %.2f s", error.strerror, pause)
                await trio.sleep(pause)
                pause = min(pause * 2, 1.0)
            else:
                await trio.lowlevel.checkpoint()
        else:
            pause = 0.01
            _admit(daemon, connected, nursery)


def _admit(daemon: Daemon, connected: socket.socket, nursery: trio.Nursery) -> None:
    limits = daemon.config.limits
    strangers = sum(1 for each in daemon.connections.values() if each.client is None)
    if len(daemon.connections) >= limits.connections or strangers >= limits.strangers:
        logger.warning("refused a connection: %d open, %d unknown", len(daemon.connections), strangers)
        connected.close()
        return
    connection = Connection(daemon, SocketLink(connected), next(_numbers))
    daemon.connections[connection.number] = connection
    nursery.start_soon(_serve, connection)


async def _serve(connection: Connection) -> None:
    try:
        await connection.run()
    except Exception:  # the fence around a session: a defect in it must not end the daemon
        logger.exception("session %d failed: this is a defect, please report it", connection.number)
