"""Waiting for a daemon that is being started: what ``--wait`` of the client commands does.

It tries the address with a socket of its own, before the command begins, so that each command connects as it
does without ``--wait``.  A daemon listens only when all that is durable is restored.

Always: returns when a daemon listens, or when the time is over; the command itself reports that there is
none.
"""

from __future__ import annotations

import socket
import time
from typing import Final

from dataspace.transport.addresses import Address, default_url, parse_url
from server.config.units import duration

PAUSE: Final = 0.1
"""Seconds between two attempts."""


def wait_for_daemon(url: str | None, lasting: str) -> None:
    """Returns when something listens at an address, or after a time such as ``10s``."""
    address, until = parse_url(url or default_url()), time.monotonic() + duration(lasting)
    while not _listens(address, max(PAUSE, until - time.monotonic())) and time.monotonic() < until:
        time.sleep(PAUSE)


def _listens(address: Address, seconds: float) -> bool:
    try:
        if not address.path:
            socket.create_connection((address.host, address.port), seconds).close()
            return True
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(seconds)
            probe.connect(address.path)
            return True
    except OSError:
        return False
