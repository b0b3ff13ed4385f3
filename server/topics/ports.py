"""What topics need of the connection that publishes and subscribes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from dataspace.wire.packets import Packet
    from relay.delivery.outbox import OutStream
    from server.lane import Work
    from server.owners.accounts import Account
    from server.owners.bearers import Bearer


class TopicPeer(Protocol):
    """A connection as publishers and subscribers of topics use it."""

    @property
    def number(self) -> int:
        """The number of the connection."""

    @property
    def account(self) -> Account:
        """What the principal of the client has."""

    @property
    def bearer(self) -> Bearer:
        """Who the client is, and what it may do."""

    @property
    def gone(self) -> bool:
        """True once the connection has ended."""

    def work(self) -> Work:
        """Returns a piece of background work, which takes turns with that of others."""

    def start(self, function: Callable[..., Awaitable[None]], *args: object) -> None:
        """Runs a task that ends with the connection."""

    def say(self, packet: Packet) -> None:
        """Queues a control packet."""

    def wake(self, stream: OutStream) -> None:
        """Notes that a stream has something to send."""

    def fail(self, stream: OutStream, code: str, text: str) -> None:
        """Ends a stream with an error."""

    def flush(self) -> None:
        """Writes to the sockets what connections have to send."""


class Attached(Protocol):
    """Holds the producers of one connection."""

    def detach(self, producer: int) -> None:
        """Notes that another connection has this producer now."""
