"""What the sessions of a space need of that space, and of their connections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from dataspace.kernel.actions import Action
    from dataspace.kernel.epochs import Epoch
    from dataspace.kernel.space import Space
    from server.config.model import Limits
    from server.owners.accounts import Account
    from server.owners.bearers import Bearer
    from server.owners.turn_numbers import Clients


class SessionSpace(Protocol):
    """The space in which sessions own facts."""

    @property
    def incarnation(self) -> int:
        """The epoch at which the daemon opened the space; the names of sessions contain it."""

    @property
    def limits(self) -> Limits:
        """The limits that the daemon was given."""

    @property
    def space(self) -> Space:
        """The facts and their owners."""

    @property
    def clients(self) -> Clients:
        """The turn numbers of every client."""

    def commit(
        self,
        owner: str,
        actions: Sequence[Action],
    ) -> Epoch:
        """Commits one turn."""

    def end_owners(self, owners: Sequence[str]) -> None:
        """Retracts all claims of these owners: in one turn, or in several if they are very many."""

    def end_soon(self, owners: Sequence[str]) -> None:
        """Like ``end_owners``, but with ``end_due`` or before the next turn, for all of those in one turn."""

    def end_due(self) -> None:
        """Retracts what owners claim for which ``end_soon`` was called, or begins to where that is much."""

    def flush(self) -> None:
        """Hands to the kernel what connections have to send."""


class Addressed(Protocol):
    """The other end of a connection."""

    @property
    def peer(self) -> str:
        """Its address."""


class SessionPeer(Protocol):
    """A connection as the sessions of a space use it."""

    @property
    def number(self) -> int:
        """The number of the connection."""

    @property
    def name(self) -> str:
        """What the client calls itself."""

    @property
    def link(self) -> Addressed:
        """Where the client is."""

    @property
    def bearer(self) -> Bearer:
        """The client's identity and its rights."""

    @property
    def account(self) -> Account:
        """What the principal of the client has."""

    @property
    def lost(self) -> bool:
        """True if the connection was lost, rather than ended by one of its two ends."""

    def supersede(self, by: str) -> None:
        """Ends the connection, since its client has another one."""
