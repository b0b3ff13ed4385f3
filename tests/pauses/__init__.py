"""Pauses: answers of a daemon that come late, on each connection by itself.

A test that counts epochs or sessions while something else is still being opened passes as long as the daemon
is quick.  ``TEST_PAUSES=MS python -m tests`` (``make test PAUSES=MS``) finds such tests: each socket that a
daemon has accepted, in this process or in one that a test starts, takes nothing for a random time of at most
``MS`` milliseconds before it takes some bytes.  A slow network does the same, so a test that fails is wrong,
or has found a defect.

Always: without the variable nothing is changed; bytes keep their order within a connection.
"""

from __future__ import annotations

import os
import random
import socket
import sys
from pathlib import Path
from time import monotonic
from typing import Final
from weakref import WeakKeyDictionary

VARIABLE: Final = "TEST_PAUSES"
BEGINNING: Final = Path(__file__).parent / "beginning"
"""A folder whose ``sitecustomize`` installs pauses in each Python that a test starts."""

ACCEPTING: Final = "server.connections.listeners"
"""The module that makes the links of a daemon; a client's goodbye is sent at once or not at all."""


def install() -> None:
    """Has daemons of this process and of its Python programs pause, if the variable says so."""
    longest = float(os.environ.get(VARIABLE) or 0) / 1000
    if not longest:
        return
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(BEGINNING) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(BEGINNING), *paths)))

    from dataspace.transport.sockets import SocketLink

    begin, send = SocketLink.__init__, SocketLink.send_nowait
    until: WeakKeyDictionary[socket.socket, float] = WeakKeyDictionary()

    def begin_pausing(link: SocketLink, connected: socket.socket) -> None:
        begin(link, connected)
        if sys._getframe(1).f_globals["__name__"] == ACCEPTING:
            until[connected] = 0

    def send_late(link: SocketLink, data: bytes | bytearray) -> int:
        now, begins = monotonic(), until.get(link._socket)
        if begins == 0:
            begins = until[link._socket] = now + random.uniform(0, longest)
        if begins is not None:
            if begins > now:
                return 0
            until[link._socket] = 0
        return send(link, data)

    setattr(SocketLink, "__init__", begin_pausing)  # noqa: B010  mypy forbids to assign to a method
    setattr(SocketLink, "send_nowait", send_late)  # noqa: B010
