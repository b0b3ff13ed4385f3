"""Ports for servers that tests start, and start again at the same place."""

from __future__ import annotations

import errno
import random
import socket
from typing import Final

PORTS: Final = range(10_000, 32_000)
"""Below those that systems give to connections, which may take one while its server is down."""


def free_port(host: str = "127.0.0.1") -> int:
    """Returns a TCP port at which nobody listens; of a host that is not here, any port."""
    while True:
        port = random.SystemRandom().choice(PORTS)
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((host, port))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    continue
            return port
