"""What publication needs of the space that it publishes to, and of the connection that offers streams."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import trio

    from dataspace.kernel.actions import Action
    from dataspace.kernel.epochs import Epoch
    from dataspace.kernel.space import Space
    from dataspace.kernel.turns import Part
    from dataspace.wire.packets import Packet
    from relay.store.staging import Staging
    from server.config.model import Limits
    from server.lane import Lane
    from server.owners.accounts import Account
    from server.owners.bearers import Bearer
    from server.owners.leases import Leases
    from server.owners.publishers import Publishers
    from server.owners.turn_numbers import Client, Clients
    from server.publication.ledger import Ledgers
    from server.publication.prepared import Prepared


class Durability(Protocol):
    """What publishers need of the disk."""

    async def wait_durable(self, epoch: int) -> None:
        """Waits until an epoch is on disk."""


class Committer(Protocol):
    """A space as publishers use it: it commits turns, and keeps what they need from one to the next."""

    @property
    def space(self) -> Space:
        """The facts and their owners."""

    @property
    def limits(self) -> Limits:
        """The limits that the daemon was given."""

    @property
    def commits(self) -> Durability:
        """The state of epochs on their way to the disk."""

    @property
    def publishing(self) -> trio.Lock:
        """Held by one publication at a time."""

    @property
    def lane(self) -> Lane:
        """Where background work has its turns."""

    @property
    def staging(self) -> Staging:
        """Operations on disk that are not published yet."""

    @property
    def prepared(self) -> Prepared:
        """Operations in memory that are about to be published."""

    @property
    def ledgers(self) -> Ledgers:
        """The claims of owners by fact or by key."""

    @property
    def publishers(self) -> Publishers:
        """The latest publisher of each owner."""

    @property
    def clients(self) -> Clients:
        """The turn numbers of every client."""

    @property
    def leases(self) -> Leases:
        """The owners with a limited time."""

    def commit(
        self,
        owner: str,
        actions: Sequence[Action],
        others: Sequence[Part] = (),
        *,
        client: Client | None = None,
        sequence: int = 0,
        account: Account | None = None,
        on_durable: Callable[[Epoch], None] | None = None,
        publication: bool = False,
    ) -> Epoch:
        """Commits one turn; ``on_durable`` is called with its epoch once that is on disk."""

    def finish_ending(self, owner: str) -> None:
        """Retracts at once what is left of an owner of this name that has ended."""

    async def find_turns(self, client: Client, wanted: Collection[int]) -> dict[int, int]:
        """Returns the epochs of old turns, 0 for those not applied; forgotten turns are left out."""

    def flush(self) -> None:
        """Writes to the sockets what connections have to send."""


class OfferPeer(Protocol):
    """The connection that offers streams of values."""

    @property
    def account(self) -> Account:
        """What the principal of the client has."""

    @property
    def home(self) -> Committer:
        """The space that the session is about."""

    @property
    def bearer(self) -> Bearer:
        """Who the client is, and what it may do."""

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
    def home(self) -> Committer:
        """The space that the session is about."""

    @property
    def bearer(self) -> Bearer:
        """Who the client is, and what it may do."""
