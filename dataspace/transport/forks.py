"""Forks: a child has its parent's connections as well, and must not use them.

What a child sends there its parent has sent, for the daemon; and where it only stops to wait for a socket,
the event loop of the parent, which shares its list of files with the child, waits no longer either.

Always: in a child the sockets of its parent lead nowhere, from ``os.fork`` on; the parent notices nothing.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Final, TypeVar
from weakref import WeakMethod, WeakSet

from dataspace.errors import UsageError

S = TypeVar("S", bound=socket.socket)


_sockets: Final[WeakSet[socket.socket]] = WeakSet()
_methods: Final[set[WeakMethod[Callable[[UsageError], None]]]] = set()
_far_ends: Final[list[socket.socket]] = []
"""Kept open, as else a loop that goes on in the child would see its connections lost."""


def of_this_process(connected: S) -> S:
    """Returns a socket, which leads nowhere in forked children."""
    _sockets.add(connected)
    return connected


def call_in_children(method: Callable[[UsageError], None]) -> None:
    """Has a method called in each forked child, with the error for each use there; keeps nothing alive."""
    _methods.add(WeakMethod(method, _methods.discard))


def check_process(process: int) -> None:
    """Raises ``UsageError`` for a connection that another process has made."""
    if os.getpid() != process:
        raise _after_fork(process)


def _after_fork(process: int) -> UsageError:
    cause = f"this connection was made by process {process}, to which it belongs"
    return UsageError(f"{cause}: after a fork, connect again in the child")


def _in_child() -> None:
    reason = _after_fork(os.getppid())
    for each in list(_methods):
        if (method := each()) is not None:
            method(reason)
    for connected in list(_sockets):
        if connected.fileno() >= 0:
            near, far = socket.socketpair()
            os.dup2(near.fileno(), connected.fileno(), inheritable=False)
            near.close()
            _far_ends.append(far)
    _sockets.clear()
    _methods.clear()


if hasattr(os, "register_at_fork"):  # there are systems without forks
    os.register_at_fork(after_in_child=_in_child)
