"""Dialing: from an address to a connected socket, over the transport that the address names.

It is apart from the sockets because it depends on all kinds of them.

Always: a failed attempt raises ``Unreachable`` with the system's reason, and leaves no open socket.
"""

from __future__ import annotations

import socket
import ssl

from dataspace.errors import Unreachable
from dataspace.loops.here import loop
from dataspace.transport.addresses import Address, unreachable
from dataspace.transport.credentials import Credentials, said_by_tls
from dataspace.transport.sockets import Link, SocketLink
from dataspace.transport.tls import TlsLink


async def open_link(address: Address, credentials: Credentials, *, timeout: float) -> Link:
    """Returns a socket connected to a daemon; ``Unreachable`` has the reason and how to start one.  In
    seconds."""
    context = credentials.context() if address.tls else None
    error: OSError | None = None
    with loop().move_on_after(timeout) as patience:
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
    raise unreachable(address, None if patience.cancelled_caught else error)


async def _connected(address: Address) -> socket.socket:
    if address.descriptor is not None:
        return socket.socket(fileno=address.descriptor)
    if address.path:
        return await loop().open_unix(address.path)
    return await loop().open_tcp(address.host, address.port)
