"""What publication needs of the space that it publishes to, and of the connection that offers streams."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from dataspace.wire.packets import Packet
    from server.owners.accounts import Account
    from server.owners.bearers import Bearer
    from server.owners.turn_numbers import Client
    from server.spaces.space import HostedSpace


class OfferPeer(Protocol):
    """The connection that offers streams of values."""

    @property
    def account(self) -> Account:
        """What the principal of the client has."""

    @property
    def home(self) -> HostedSpace:
        """The space that the session is about."""

    @property
    def bearer(self) -> Bearer:
        """The client's identity and its rights."""

    def say(self, packet: Packet) -> None:
        """Queues a control packet."""

    def start(self, function: Callable[..., Awaitable[None]], *args: object) -> None:
        """Runs a task that ends with the connection."""


class NumberedSession(Protocol):
    """The session of a connection that publishes."""

    @property
    def client(self) -> Client:
        """Its identity, which says where its turns come from."""


class PublicationPeer(Protocol):
    """The connection whose requests stage and publish."""

    @property
    def own(self) -> NumberedSession:
        """Its session."""

    @property
    def account(self) -> Account:
        """What the principal of the client has."""

    @property
    def home(self) -> HostedSpace:
        """The space that the session is about."""

    @property
    def bearer(self) -> Bearer:
        """The client's identity and its rights."""
