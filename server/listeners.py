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
from dataspace.wire.packets import Bye
from dataspace.wire.session import Role, Session
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
    refusal = _refusal(daemon)
    try:
        link = SocketLink(connected)
        if refusal:
            logger.warning("refused a connection: %s", refusal)
            link.send_nowait(Session(Role.SERVER).send(Bye("limit", refusal)))
    except OSError:
        refusal = "it has gone already"
    if refusal:
        connected.close()
        return
    connection = Connection(daemon, link, next(_numbers))
    daemon.connections[connection.number] = connection
    nursery.start_soon(connection.run)


def _refusal(daemon: Daemon) -> str:
    """Why there is no room for one more peer, or nothing."""
    limits = daemon.config.limits
    if len(daemon.connections) >= limits.connections:
        return f"{len(daemon.connections)} connections, limit connections={limits.connections}"
    strangers = sum(1 for each in daemon.connections.values() if each.standing is None)
    if strangers >= limits.strangers:
        return f"{strangers} connections without a hello, limit strangers={limits.strangers}"
    return ""
