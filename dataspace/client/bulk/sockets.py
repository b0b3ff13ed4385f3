"""Blocking sockets to a daemon, with TLS where its address demands it."""

from __future__ import annotations

import socket

from dataspace.errors import Unreachable
from dataspace.transport.addresses import Address, unreachable
from dataspace.transport.credentials import Credentials, said_by_tls
from dataspace.transport.forks import of_this_process


def connected(address: Address, credentials: Credentials, timeout: float) -> socket.socket:
    """Returns a socket to a daemon, with TLS where the address demands it."""
    try:
        sock = _opened(address, timeout)
        return of_this_process(_secured(sock, address, credentials) if address.tls else sock)
    except OSError as error:
        raise unreachable(address, error) from error


def _secured(sock: socket.socket, address: Address, credentials: Credentials) -> socket.socket:
    """Returns a socket with TLS; ``Unreachable`` where that cannot be agreed on."""
    import ssl

    try:
        return credentials.context().wrap_socket(sock, server_hostname=credentials.server_name(address.host))
    except ssl.SSLError as error:
        sock.close()
        raise Unreachable(f"no TLS with {address.url}: {said_by_tls(error)}") from error
    except BaseException:
        sock.close()
        raise


def _opened(address: Address, timeout: float) -> socket.socket:
    """Returns a socket that is connected; a failed attempt leaves none open."""
    if not address.path:
        sock = socket.create_connection((address.host, address.port), timeout=timeout)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.settimeout(timeout)
        sock.connect(address.path)
    except BaseException:
        sock.close()
        raise
    return sock
