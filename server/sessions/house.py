"""What a connection needs of the daemon, and of the space that its session is about.

They are apart from ``ports.py`` because they refer to classes of other rooms, and of other files of this one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import trio

    from dataspace.kernel.actions import Action
    from dataspace.kernel.epochs import Epoch
    from dataspace.kernel.space import Space
    from index.values.values import Map
    from relay.delivery.memory import MemoryBudget
    from relay.delivery.policies import SlowCounts
    from relay.log.log import Log
    from relay.log.writer import GroupCommit
    from relay.store.staging import Staging
    from server.config.model import Limits
    from server.config.tokens import Keys
    from server.owners.leases import Leases
    from server.owners.publishers import Publishers
    from server.owners.turn_numbers import Client, Clients
    from server.publication.ledger import Ledgers
    from server.publication.prepared import Prepared
    from server.sessions.registry import Sessions
    from server.sessions.sending import SendQueue
    from server.system import SystemSpace
    from server.topics.catalogue import Topics
    from server.topics.durable import DurableTopics


class HomeSpace(Protocol):
    """The space that a session is about: all that streams, publication, leases and turns use of it."""

    @property
    def name(self) -> str: ...
    @property
    def identity(self) -> str: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def space(self) -> Space: ...
    @property
    def log(self) -> Log: ...
    @property
    def commits(self) -> GroupCommit: ...
    @property
    def recalling(self) -> trio.Lock: ...
    @property
    def sessions(self) -> Sessions: ...
    @property
    def leases(self) -> Leases: ...
    @property
    def clients(self) -> Clients: ...
    @property
    def staging(self) -> Staging: ...
    @property
    def prepared(self) -> Prepared: ...
    @property
    def ledgers(self) -> Ledgers: ...
    @property
    def publishers(self) -> Publishers: ...
    @property
    def publishing(self) -> trio.Lock: ...

    def check_space(self, name: str) -> None:
        """Raises ``Refused`` for the name of another space."""

    def commit(
        self,
        owner: str,
        actions: Sequence[Action],
        client: Client | None,
        sequence: int,
        on_durable: Callable[[Epoch], None] | None,
        *,
        publication: bool = False,
    ) -> Epoch:
        """Commits one turn; ``on_durable`` is called with its epoch once that is on disk."""

    async def find_turns(self, client: Client, wanted: Collection[int]) -> dict[int, int]:
        """Returns the epochs of old turns, 0 for those not applied; forgotten turns are left out."""

    def resume_rule(self, name: str) -> str:
        """Carries out again what is suspended under a name; ``Refused`` where that comes to nothing."""

    def limits_map(self) -> Map:
        """Returns the limits that a welcome contains."""

    def status(self) -> dict[str, object]:
        """Returns the counts that ``dataspace status`` shows."""

    def flush(self) -> None:
        """Writes to the sockets what connections have to send."""


class House(Protocol):
    """The daemon as a connection uses it; ``streams`` counts those that are open, of all connections."""

    streams: int

    @property
    def limits(self) -> Limits:
        """The limits that the daemon was given."""

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
    def slow(self) -> SlowCounts:
        """What slow observers have cost."""

    @property
    def room(self) -> MemoryBudget:
        """The memory in which changes wait for observers."""

    @property
    def replays(self) -> trio.Semaphore:
        """Held by each replay while a part of the log is in memory for it."""

    def find_space(self, name: str) -> HomeSpace:
        """Returns the space of that name; raises ``Refused`` if there is none."""

    def touch(self, sending: SendQueue) -> None:
        """Includes this queue in the next flush."""

    def flush(self) -> None:
        """Writes to the sockets what connections have to send."""

    def greeted(self, number: int) -> None:
        """Notes that a connection has sent hello."""

    def left(self, number: int) -> None:
        """Notes that a connection has ended."""
