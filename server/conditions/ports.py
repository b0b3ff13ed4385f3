"""What conditional turns need: the connection that sent them, and the space of its session."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from dataspace.kernel.epochs import Epoch
    from dataspace.wire.packets import Packet
    from server.config.rights import Permit
    from server.lane import Work
    from server.owners.accounts import Account
    from server.owners.turn_numbers import Client
    from server.spaces.space import HostedSpace


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
    def home(self) -> HostedSpace:
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
