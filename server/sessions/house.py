"""What a connection needs of the daemon, and of the space that its session is about.

They are apart from ``ports.py`` because they refer to classes of other rooms, and of other files of this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from server.publication.ports import Committer
from server.sessions.places import Shared

if TYPE_CHECKING:
    import trio

    from dataspace.transport.sockets import Link
    from index.values.values import Map
    from relay.delivery.followers import Delivery
    from relay.log.log import Log
    from relay.log.writer import GroupCommit
    from server.conditions.checking import Conditions
    from server.config.principals import Principal
    from server.config.tokens import Keys
    from server.lane import Lane
    from server.owners.accounts import Account
    from server.owners.withdrawal import Withdrawals
    from server.recalling import Recalling
    from server.sessions.registry import Sessions
    from server.sessions.sending import SendQueue
    from server.streams.ports import ReaderAccount
    from server.system import SystemSpace
    from server.topics.catalogue import Topics
    from server.topics.durable import DurableTopics


class HomeSpace(Committer, Protocol):
    """The space that a session is about: all that streams, publication, leases and turns use of it."""

    @property
    def name(self) -> str: ...
    @property
    def identity(self) -> str: ...
    @property
    def log(self) -> Log: ...
    @property
    def commits(self) -> GroupCommit: ...
    @property
    def recalling(self) -> Recalling: ...
    @property
    def sessions(self) -> Sessions: ...

    @property
    def conditions(self) -> Conditions: ...

    @property
    def withdrawals(self) -> Withdrawals: ...

    @property
    def reader_accounts(self) -> dict[str, ReaderAccount]: ...

    def end_due(self) -> None:
        """Retracts what the sessions owned that have ended; raises nothing."""

    async def end_in_turns(self) -> None:
        """Does ``end_due``, in the lane where that is much."""

    def check_space(self, name: str) -> None:
        """Raises ``Refused`` for the name of another space."""

    def resume_rule(self, name: str) -> str:
        """Carries out again what is suspended under a name; ``Refused`` where that comes to nothing."""

    def limits_map(self) -> Map:
        """Returns the limits that a welcome contains."""

    def status(self) -> dict[str, object]:
        """Returns the counts that ``dataspace status`` shows."""


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
    def main(self) -> HomeSpace:
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

    def find_space(self, name: str) -> HomeSpace:
        """Returns the space of that name; raises ``Refused`` if there is none."""

    def touch(self, sending: SendQueue) -> None:
        """Includes this queue in the next flush."""

    def flush(self) -> None:
        """Writes to the sockets what connections have to send."""

    def greeted(self, connection: Guest) -> None:
        """Notes that a connection has sent hello."""

    def left(self, connection: Guest) -> None:
        """Notes that a connection has ended."""
