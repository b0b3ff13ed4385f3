"""Listeners: sockets that accept peers, and start a task for each.

Always: an error of one peer does not stop the accept loop; when descriptors run out, the loop waits.
"""

from __future__ import annotations

import errno
import logging
import mmap
import os
import socket
import ssl
import stat
from collections.abc import Callable, Iterable, Sized
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import trio

from dataspace.errors import DataspaceError, UsageError
from dataspace.transport.addresses import Address, on_this_machine, parse_listen
from dataspace.transport.sockets import Link, SocketLink
from dataspace.transport.tls import TlsLink
from server.config.model import Config, Inherited
from server.parts import PartKey
from server.pauses import Pauses

logger = logging.getLogger("dataspace")

BACKLOG: Final = 1024
PAUSES: Final = (0.01, 1.0)
"""Seconds until it accepts again where descriptors or memory are scarce: twice as many each time, between
these."""

_SCARCE: Final = frozenset([errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])


class Doorkeeper(Protocol):
    """The daemon as listeners use it."""

    def refusal(self, peer: str) -> str:
        """Returns why there is no room for another connection of a peer; empty if there is."""

    def turned_away(self, refusal: str) -> bytes:
        """Returns the bytes for a connection that finds no room."""

    def serve(self, link: Link) -> object:
        """Serves the peer at the other end in a task of its own."""


TRUSTED: Final = PartKey[Callable[[Link], object]]("trusted")
"""Serves a peer at the other end of a link that needs no token."""

NOT_THERE: Final = (1 << 64) - 1
"""The count of a process that accepts nothing."""

BEHIND_SECONDS: Final = 0.002
"""How long a process that has more connections leaves a new one to others."""


class Share:
    """The turns of one process at sockets from which several processes accept.

    The kernel wakes all of them, and one may be first for minutes: of 60 connections it got 52.  So each
    writes its number of connections into a file that all have mapped, and a process that has more than
    another one waits a moment before it accepts (then each of three got 18 to 22).  With a socket for each
    process (``SO_REUSEPORT``), connections to a process that ends or stands still would be lost.

    Always: no process waits for another one longer than that, dead or not.
    """

    def __init__(self, counts: int, place: int) -> None:
        """``counts`` is the descriptor of the file, ``place`` the place of this process in it."""
        self._counts = mapped(counts)
        self._place = place
        self.served: Sized = ()
        """The connections of this process."""

    def show_count(self) -> None:
        """Shows others how many connections there are."""
        self._counts[self._place] = len(self.served)

    async def wait_turn(self) -> None:
        """Returns at once, or a moment later if others have fewer connections; O(processes)."""
        self.show_count()
        own = len(self.served)
        if own - own // 8 > min(self._counts):  # among many an eighth more does not matter
            await trio.sleep(BEHIND_SECONDS)


def mapped(counts: int) -> memoryview:
    """Returns the numbers in a file, of eight bytes each."""
    return memoryview(mmap.mmap(counts, 0)).cast("Q")


class CannotListen(DataspaceError):
    """An address is in use, or may not be used by this process."""


@dataclass(slots=True)
class Listener:
    """A listening socket and the address for clients; with TLS if there is a ``context``.

    The context may be replaced: peers accepted from then on get the certificate of the new one.
    """

    address: Address
    socket: socket.socket
    context: ssl.SSLContext | None = None
    inode: int = 0
    accepting: trio.CancelScope = field(default_factory=trio.CancelScope)
    """Around the task that accepts peers."""
    share: Share | None = None
    """The turns at a socket from which other processes accept too."""

    @property
    def name(self) -> str:
        """The address as the configuration has it."""
        return self.address.listen

    def close(self) -> None:
        """Stops listening; deletes its file, unless that is another daemon's by now."""
        trio.lowlevel.notify_closing(self.socket)
        self.socket.close()
        if self.address.path and _inode(self.address.path) == self.inode:
            os.unlink(self.address.path)


async def open_listeners(config: Config) -> list[Listener]:
    """Listens on each address, or on none: ``CannotListen`` names the failed address."""
    addresses = [parse_listen(text) for text in config.listen]
    context = context_for(config, addresses)
    if config.inherited is not None:
        return _inherited(config.inherited, addresses, context)
    opened: list[Listener] = []
    try:
        for address in addresses:
            opened.append(open_listener(address, context, config.socket_mode))
    except BaseException:
        for listener in opened:
            listener.close()
        raise
    await trio.lowlevel.checkpoint()
    return opened


def context_for(config: Config, addresses: Iterable[Address]) -> ssl.SSLContext | None:
    """Returns the TLS context if any address needs one; raises ``UsageError`` without a valid certificate."""
    if not any(address.tls for address in addresses):
        return None
    if config.tls is None:
        raise UsageError(
            "to listen on tls: or https: a certificate is needed: --tls-certificate, or [tls] in the config"
        )
    return config.tls.context()


def open_listener(address: Address, context: ssl.SSLContext | None, mode: int = 0o600) -> Listener:
    """Listens on one address, with TLS if there is a context and it says so; raises ``CannotListen``."""
    try:
        return _open_unix(address, mode) if address.path else _open_tcp(address, context)
    except OSError as error:
        raise CannotListen(f"cannot listen on {address.listen}: {error.strerror}") from error


def _inherited(
    inherited: Inherited, addresses: Iterable[Address], context: ssl.SSLContext | None
) -> list[Listener]:
    """Returns the listeners of inherited sockets; the file of a Unix socket stays when they are closed."""
    share = Share(inherited.counts, inherited.number - 1)
    return [
        Listener(
            address,
            socket.socket(fileno=inherited.sockets[address.listen]),
            context if address.tls else None,
            inode=-1,
            share=share,
        )
        for address in addresses
    ]


def _open_tcp(address: Address, context: ssl.SSLContext | None) -> Listener:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((address.host, address.port))
        _listen(listening)
    except OSError:
        listening.close()
        raise
    port = listening.getsockname()[1]
    return Listener(replace(address, port=port), listening, context if address.tls else None)


def _open_unix(address: Address, mode: int) -> Listener:
    _remove_stale(address)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o777 & ~mode)  # so that there is no moment in which other users may connect
    try:
        listening.bind(address.path)
        _listen(listening)
    except OSError:
        listening.close()
        raise
    finally:
        os.umask(before)
    return Listener(address, listening, inode=_inode(address.path))


def _listen(listening: socket.socket) -> None:
    listening.listen(BACKLOG)
    listening.setblocking(False)


def _remove_stale(address: Address) -> None:
    """Deletes a socket that a killed daemon left; never one on which a process listens."""
    try:
        found = os.lstat(address.path)
    except FileNotFoundError:
        return
    if stat.S_ISLNK(found.st_mode):
        raise CannotListen(
            f"cannot listen on {address.listen}: it is a symbolic link; give the path of the socket"
        )
    if not stat.S_ISSOCK(found.st_mode):
        raise CannotListen(f"cannot listen on {address.listen}: there is a file that is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(address.path)
        except ConnectionRefusedError:
            os.unlink(address.path)
            return
    raise CannotListen(f"cannot listen on {address.listen}: another process listens there")


def _inode(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0


async def accept(doorkeeper: Doorkeeper, listener: Listener) -> None:
    """Accepts peers for as long as the listener is open; serves each in a task of its own."""
    pauses = Pauses(*PAUSES)
    while True:
        if listener.share is not None:
            await listener.share.wait_turn()
        try:
            connected, _ = listener.socket.accept()
        except BlockingIOError:
            await trio.lowlevel.wait_readable(listener.socket)
        except OSError as error:
            if error.errno in _SCARCE:
                pause = pauses.next()
                logger.warning("cannot accept: %s; waiting %.2f s", error.strerror, pause)
                await trio.sleep(pause)
            else:
                await trio.lowlevel.checkpoint()
        else:
            pauses.forget()
            _admit(doorkeeper, listener, connected)
            if listener.share is not None:
                listener.share.show_count()
            await trio.lowlevel.checkpoint()  # so that it can send its hello before the next one is accepted


def _admit(doorkeeper: Doorkeeper, listener: Listener, connected: socket.socket) -> None:
    """Serves a peer that has connected, or closes its connection; raises nothing."""
    try:
        _serve(doorkeeper, listener, connected)
    except Exception:  # the fence around a listener: a defect about one connection ends no other
        logger.exception("a connection could not be served: this is a defect, please report it")
        connected.close()


def _serve(doorkeeper: Doorkeeper, listener: Listener, connected: socket.socket) -> None:
    try:
        link = _link(listener, connected)
        refusal = doorkeeper.refusal(link.peer)
        if refusal:
            logger.warning("refused a connection: %s", refusal)
            link.send_nowait(doorkeeper.turned_away(refusal))
    except OSError:
        refusal = "it has gone already"
    if refusal:
        connected.close()
        return
    doorkeeper.serve(link)


def _link(listener: Listener, connected: socket.socket) -> Link:
    plain = SocketLink(connected)
    return plain if listener.context is None else TlsLink(plain, listener.context, server_side=True)


def url_of(listeners: Iterable[Listener]) -> str:
    """Returns the address by which clients on this machine reach a daemon; empty if there is none."""
    return next((on_this_machine(each.address).url for each in listeners if not each.address.web), "")


def web_url_of(listeners: Iterable[Listener]) -> str:
    """Returns the same for HTTP."""
    return next((on_this_machine(each.address).http for each in listeners if each.address.web), "")
