"""Blocking sockets to a daemon, with TLS where its address demands it."""

from __future__ import annotations

import socket

from dataspace.errors import Unreachable
from dataspace.transport.addresses import Address, unreachable
from dataspace.transport.credentials import Credentials, said_by_tls


def connected(address: Address, credentials: Credentials, timeout: float) -> socket.socket:
    """Returns a socket to a daemon, with TLS where the address demands it."""
    try:
        made = _opened(address, timeout)
        return _secured(made, address, credentials) if address.tls else made
    except OSError as error:
        raise unreachable(address, error) from error


def _secured(made: socket.socket, address: Address, credentials: Credentials) -> socket.socket:
    """Returns a socket with TLS; ``Unreachable`` where that cannot be agreed on."""
    import ssl

    try:
        return credentials.context().wrap_socket(made, server_hostname=credentials.server_name(address.host))
    except ssl.SSLError as error:
        made.close()
        raise Unreachable(f"no TLS with {address.url}: {said_by_tls(error)}") from error
    except BaseException:
        made.close()
        raise


def _opened(address: Address, timeout: float) -> socket.socket:
    """Returns a socket that is connected; a failed attempt leaves none open."""
    if not address.path:
        made = socket.create_connection((address.host, address.port), timeout=timeout)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made
    made = socket.socket(socket.AF_UNIX)
    try:
        made.settimeout(timeout)
        made.connect(address.path)
    except BaseException:
        made.close()
        raise
    return made
