"""The topics of a daemon: those in memory, those on disk, and who uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from relay.journal.writer import TopicWriter
from relay.store.durations import Durations
from relay.store.errors import closed_on_failure
from server.parts import DiskPart, Opened, PartKey
from server.spaces.space import now
from server.topics.catalogue import Topics
from server.topics.durable import DurableTopics, Recovered

if TYPE_CHECKING:
    from collections.abc import Callable

    from dataspace.errors import Refused
    from relay.journal.following import TopicsFollowing
    from relay.journal.journal import Journal
    from server.sessions.state import DaemonState


class DaemonTopics(DiskPart):
    """The topics of one daemon, which are led with the space ``main``."""

    def __init__(self, daemon: DaemonState) -> None:
        self._daemon = daemon
        retained = daemon.config.limits.retained_bytes
        self.catalogue = Topics(
            now, daemon.system, daemon.memory.admit, retained=retained, elsewhere=self._elsewhere
        )
        self.durable = DurableTopics(
            self.catalogue, daemon.flushing.flush, lambda: daemon.main.settings.retention
        )

    def open_journal(self) -> tuple[Journal, Recovered]:
        """Opens the durable topics, to be written; blocks, for each topic."""
        accept_damage = self._daemon.config.accept_damage
        journal = self._daemon.home.open_journal(accept_damage=accept_damage)
        with closed_on_failure(journal):
            return journal, self.durable.recovered(journal, accept_damage=accept_damage)

    def open(self, journal: Journal, found: Recovered) -> None:
        """Opens the durable topics of a daemon that leads."""
        self.durable.open(journal, found)

    def prepare(self) -> Opened:
        journal, found = self.open_journal()
        return Opened(lambda: self.open(journal, found), journal.close)

    def follow(self) -> None:
        """Reads the durable topics of the leader, in a daemon that follows."""
        self.durable.follow(self._daemon.home.follow_journal())

    def closing(self) -> Callable[[], None]:
        return self.durable.journal.close

    def hint_with(self, hint: Callable[[], None] | None) -> None:
        self.durable.hint = hint

    @property
    def following(self) -> TopicsFollowing | None:
        return self.durable.following

    @property
    def writer(self) -> TopicWriter | None:
        """What writes durable topics to the disk; None in a daemon that follows."""
        return self.durable.writer if self.durable.is_open else None

    @property
    def durations(self) -> Durations:
        """How long the groups of steps of durable topics took to be on disk."""
        return Durations() if self.writer is None else self.writer.durations

    def _elsewhere(self) -> Refused | None:
        """Returns the refusal of what only a leader has, in a daemon that follows."""
        return None if self._daemon.leads else self._daemon.main.leader.refusal()


TOPICS: Final = PartKey[DaemonTopics]("topics")
