"""What hosted actors need of the daemon: its spaces, and connections for processes that it starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from dataspace.kernel.actions import Action
    from dataspace.kernel.epochs import Epoch
    from dataspace.kernel.space import Space
    from dataspace.transport.sockets import Link


class Backpressure(Protocol):
    """What actors need of the disk."""

    async def wait_room(self) -> None:
        """Waits while too much waits for the disk."""


class HostSpace(Protocol):
    """A space in which actors run."""

    @property
    def space(self) -> Space:
        """The facts and their owners."""

    @property
    def commits(self) -> Backpressure:
        """The state of epochs on their way to the disk."""

    def commit(
        self,
        owner: str,
        actions: Sequence[Action],
    ) -> Epoch:
        """Commits one turn."""

    def end_owners(self, owners: Sequence[str]) -> None:
        """Retracts all that these owners claim: in one turn, or in several where that is very much."""


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
