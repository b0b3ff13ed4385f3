"""A link asks a silent peer for signs of life, and has patience with one that reads nothing for a while."""

from __future__ import annotations

import socket

import pytest

from dataspace.transport.sockets import SocketLink


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="this system has no such option")
def test_the_kernel_does_not_cut_off_a_peer_that_lets_us_wait() -> None:
    """With a limit there, an observer that stalls is lost when its window has been closed for so long."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connected = socket.create_connection(server.getsockname())
        with connected, server.accept()[0]:
            SocketLink(connected)
            assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0
            assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
