"""Dialing: from an address to a connected socket, over the transport that the address names.

It is apart from the sockets because it depends on all kinds of them.

Always: a failed attempt raises ``Unreachable`` with the system's reason, and leaves no open socket.
"""

from __future__ import annotations

import os
import socket
import ssl

import trio

from dataspace.errors import Unreachable
from dataspace.transport.addresses import Address
from dataspace.transport.credentials import Credentials, said_by_tls
from dataspace.transport.sockets import Link, SocketLink
from dataspace.transport.tls import TlsLink


async def open_link(address: Address, credentials: Credentials, *, timeout: float) -> Link:
    """Returns a socket connected to a daemon; ``Unreachable`` has the reason and how to start one.  In
    seconds."""
    context = credentials.context() if address.tls else None
    error: OSError | None = None
    with trio.move_on_after(timeout) as patience:
        try:
            link = SocketLink(await _connected(address))
        except OSError as refused:
            error = refused
        else:
            if context is None:
                return link
            secured = TlsLink(link, context, server_name=credentials.server_name(address.host))
            try:
                await secured.shake_hands()
            except BaseException as failure:
                link.close()
                if isinstance(failure, ssl.SSLError):
                    raise Unreachable(f"no TLS with {address.url}: {said_by_tls(failure)}") from failure
                raise
            return secured
    raise _unreachable(address, "no answer" if patience.cancelled_caught or error is None else _reason(error))


async def _connected(address: Address) -> socket.socket:
    if address.descriptor is not None:
        return socket.socket(fileno=address.descriptor)
    if address.path:
        stream = await trio.open_unix_socket(address.path)
    else:
        stream = await trio.open_tcp_stream(address.host, address.port)
    return socket.socket(fileno=stream.socket.detach())


def _unreachable(address: Address, reason: str) -> Unreachable:
    """Returns the error for an address where nothing answers."""
    return Unreachable(
        f"no daemon at {address.url} ({reason}); start one with: dataspace serve --listen {address.listen}"
    )


def _reason(error: OSError) -> str:
    """Returns the system's reason, without the groups and causes that the attempts at each address add."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, BaseExceptionGroup):
            inner = inner.exceptions[0]
        elif isinstance(inner, socket.gaierror):  # it has numbers of its own
            return f"the name does not resolve: {inner.strerror or inner}".lower()
        elif isinstance(inner, OSError) and inner.errno:
            return os.strerror(inner.errno).lower()
        else:
            inner = inner.__cause__
    return str(error)
