"""What a connection needs of the daemon, and of the space that its session is about.

They are apart from ``ports.py`` because they refer to classes of other rooms, and of other files of this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from server.sessions.places import Shared

if TYPE_CHECKING:
    import trio

    from dataspace.transport.sockets import Link
    from relay.delivery.followers import Delivery
    from server.config.principals import Principal
    from server.config.tokens import Keys
    from server.lane import Lane
    from server.owners.accounts import Account
    from server.sessions.sending import SendQueue
    from server.spaces.space import HostedSpace
    from server.system import SystemSpace
    from server.topics.catalogue import Topics
    from server.topics.durable import DurableTopics


class Guest(Protocol):
    """A connection as the daemon counts it."""

    @property
    def number(self) -> int:
        """The number of the connection."""

    @property
    def account(self) -> Account:
        """What the principal of the peer has."""


class Reports(Protocol):
    """Where a connection reports what is rare."""

    @property
    def slow_turn(self) -> float:
        """Seconds from which on a turn is reported."""

    def took(self, peer: Reporter, kind: str, what: str, seconds: float) -> None:
        """Notes how long a ``turn``, a ``request`` or a ``replay`` took."""

    def refused(self, peer: Reporter, code: str, text: str) -> None:
        """Notes that a turn, a request or a stream was refused."""

    def parted(self, peer: Reporter, code: str, text: str) -> None:
        """Notes that the daemon ends a connection; the code is empty for an orderly end."""

    def login_refused(self, peer: Reporter, code: str, text: str) -> None:
        """Notes that a hello was refused."""


class Reporter(Guest, Protocol):
    """A connection that reports."""

    @property
    def name(self) -> str:
        """What the client calls itself."""

    @property
    def principal(self) -> Principal:
        """Who the client is."""

    @property
    def link(self) -> Link:
        """Where the client comes from."""


class Stranger(Guest, Protocol):
    """A connection that has yet to say what it wants."""

    @property
    def since(self) -> float:
        """The time from which on it has said nothing, on trio's clock."""

    def dismiss(self, code: str, text: str) -> None:
        """Ends the connection."""


class House(Shared, Protocol):
    """The daemon as a connection uses it."""

    @property
    def data(self) -> str:
        """The path of the daemon's data."""

    @property
    def watch(self) -> Reports:
        """Where refusals and the like are reported."""

    @property
    def main(self) -> HostedSpace:
        """The space of a connection before its hello."""

    @property
    def keys(self) -> Keys:
        """The tokens that are valid now."""

    @property
    def system(self) -> SystemSpace:
        """The space in which the daemon describes itself."""

    @property
    def topics(self) -> Topics:
        """The topics."""

    @property
    def durable_topics(self) -> DurableTopics:
        """The topics that survive restarts."""

    @property
    def delivery(self) -> Delivery:
        """What all observers share: the memory in which changes wait, and what slow ones have cost."""

    @property
    def lane(self) -> Lane:
        """Where background work has its turns."""

    @property
    def replays(self) -> trio.Semaphore:
        """Held by each replay while a part of the log is in memory for it."""

    def find_space(self, name: str) -> HostedSpace:
        """Returns the space of that name; raises ``Refused`` if there is none."""

    def touch(self, sending: SendQueue) -> None:
        """Includes this queue in the next flush."""

    def flush(self) -> None:
        """Writes to the sockets what connections have to send."""

    def greeted(self, connection: Guest) -> None:
        """Notes that a connection has sent hello."""

    def left(self, connection: Guest) -> None:
        """Notes that a connection has ended."""
