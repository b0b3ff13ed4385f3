"""What hosted actors need of the daemon: its spaces, and connections for processes that it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from dataspace.transport.sockets import Link


class Served(Protocol):
    """A connection that the daemon serves."""

    async def wait_ended(self) -> None:
        """Returns once the connection has ended and its facts are retracted."""

    def cancel(self) -> None:
        """Ends the connection at once."""


class Serve(Protocol):
    """Serves a process that the daemon has started, without a token."""

    def __call__(self, link: Link) -> Served:
        """Serves the peer at the other end in a task of its own."""
