"""What hosted actors need of the daemon: connections for the processes that it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from dataspace.transport.sockets import Link
    from server.sessions.peer import Peer


class Serve(Protocol):
    """Serves a process that the daemon has started, without a token."""

    def __call__(self, link: Link) -> Peer:
        """Serves the peer at the other end in a task of its own."""
