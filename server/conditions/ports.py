"""What conditional turns need: the connection that sent them, and the space of its session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from dataspace.kernel.actions import Action
    from dataspace.kernel.epochs import Epoch
    from dataspace.kernel.space import Space
    from dataspace.kernel.turns import Part
    from dataspace.wire.packets import Packet
    from relay.log.log import Log
    from relay.log.recent import Recent
    from server.conditions.checking import Conditions
    from server.config.model import Limits
    from server.config.rights import Permit
    from server.lane import Work
    from server.owners.accounts import Account
    from server.owners.turn_numbers import Client
    from server.recalling import Recalling


class ConditionCommits(Protocol):
    """What is needed of epochs on their way to the disk."""

    @property
    def recent(self) -> Recent:
        """The latest epochs, in memory."""


class ConditionSpace(Protocol):
    """The space in which a turn is made."""

    @property
    def limits(self) -> Limits:
        """The limits that the daemon was given."""

    @property
    def space(self) -> Space:
        """The current facts."""

    @property
    def conditions(self) -> Conditions:
        """Checks expectations."""

    @property
    def commits(self) -> ConditionCommits:
        """What is needed of epochs on their way to the disk."""

    @property
    def log(self) -> Log:
        """The epochs on disk."""

    @property
    def recalling(self) -> Recalling:
        """Reads epochs of the previous daemon back into memory."""

    def check_space(self, name: str) -> None:
        """Raises ``Refused`` for the name of another space."""

    def finish_ending(self, owner: str) -> None:
        """Retracts at once what is left of an owner of this name that has ended."""

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
    ) -> Epoch:
        """Commits one turn."""


class ConditionSession(Protocol):
    """The session that sent a turn."""

    @property
    def client(self) -> Client:
        """The identity by which its turns are numbered."""

    @property
    def owner(self) -> str:
        """The owner of the facts of the session."""


class ConditionPeer(Protocol):
    """The connection that sent a turn."""

    turns: int

    @property
    def home(self) -> ConditionSpace:
        """The space that the session is about."""

    @property
    def permit(self) -> Permit:
        """What the client may do."""

    @property
    def account(self) -> Account:
        """What the principal of the client has."""

    @property
    def own(self) -> ConditionSession:
        """The session."""

    @property
    def gone(self) -> bool:
        """True once the connection has ended, or its session belongs to another one."""

    @property
    def accept(self) -> Callable[[Epoch], None]:
        """Called with the epoch of a turn once that is on disk."""

    def owner_of(self, name: str) -> str:
        """Returns the owner that a turn states, and renews it if it is a lease; raises ``Refused``."""

    def say(self, packet: Packet) -> None:
        """Queues a control packet."""

    def work(self) -> Work:
        """Returns a piece of background work of this client."""
