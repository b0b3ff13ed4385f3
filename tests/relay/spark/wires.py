"""Wires between Spark and its daemons, which count what passes and can be cut at any moment.

Kill tests strike after so many pieces have passed, not after so many seconds: how far a query has come by
then does not depend on how busy the machine is.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self

PIECE = 1 << 16


class Traffic:
    """How many pieces have passed over some wires together."""

    def __init__(self) -> None:
        self.pieces = 0
        self._news = threading.Condition()

    def passed(self) -> None:
        with self._news:
            self.pieces += 1
            self._news.notify_all()

    def wait(self, pieces: int, seconds: float) -> bool:
        """Whether so many pieces have passed, waiting so long for them."""
        with self._news:
            return self._news.wait_for(lambda: self.pieces >= pieces, seconds)


class Wire:
    """Passes bytes on between whoever connects to ``url`` and the daemon at a port, in threads."""

    def __init__(self, port: int, traffic: Traffic) -> None:
        self._port = port
        self._traffic = traffic
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ends: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.url = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Cuts all connections; new ones may be made."""
        with self._lock:
            ends, self._ends = self._ends, set()
        for end in ends:
            _shut(end)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        _shut(self._listener)
        self._thread.join()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:  # it was closed
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._port))
            except OSError:  # the daemon is away
                near.close()
                continue
            with self._lock:
                self._ends |= {near, far}
            for one, other in ((near, far), (far, near)):
                with contextlib.suppress(OSError):  # it was cut already
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):  # either end was cut
            while data := one.recv(PIECE):
                self._traffic.passed()
                other.sendall(data)
        for end in (one, other):
            _shut(end)
        with self._lock:
            self._ends -= {one, other}


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it is shut already
        end.shutdown(socket.SHUT_RDWR)
    end.close()
