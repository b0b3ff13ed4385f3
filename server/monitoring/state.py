"""The state of a daemon: what its peers share, its topics, its connections, and how it runs.

Metrics, health and the requests about sessions read it; the daemon extends it with its doors and its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from relay.journal.journal import Journal
from relay.journal.writer import TopicWriter
from relay.store.durations import Durations
from server.monitoring.rates import BOUNDS, Rates
from server.sessions.peer import Peer
from server.sessions.shared import Guest, Shared
from server.spaces.space import now
from server.topics.catalogue import Topics
from server.topics.durable import DurableTopics

if TYPE_CHECKING:
    from pathlib import Path

    from relay.log.writer import GroupCommit
    from server.config.model import Config
    from server.sessions.counts import Counts
    from server.spaces.traces import Recorder

STARTING: Final = "the daemon is starting"
STOPPING: Final = "the daemon is stopping"


class Readiness:
    """Why no clients should be sent to the daemon now; nothing while they should.

    Always: a daemon that has begun to end is not ready again.

    >>> readiness = Readiness()
    >>> readiness.begin(); readiness.reason
    ''
    >>> readiness.end("draining"); readiness.begin(); readiness.reason
    'draining'
    """

    def __init__(self) -> None:
        self.reason = STARTING
        self._over = False

    def begin(self) -> None:
        """Notes that clients are admitted; does nothing after ``end``."""
        if not self._over:
            self.reason = ""

    def end(self, reason: str = STOPPING) -> None:
        """Notes that no more clients should come, for good; the first reason stays."""
        if not self._over:
            self._over, self.reason = True, reason


class DaemonState(Shared):
    """The spaces, topics and connections of a daemon."""

    def __init__(self, config: Config, counts: Counts, recorder: Recorder | None = None) -> None:
        super().__init__(config, counts, recorder)
        self.connections: dict[int, Peer] = {}
        """The peers by number."""
        self.topics = Topics(now, self.system, self.memory.admit, retained=config.limits.retained_bytes)
        self.durable_topics = DurableTopics(
            self.topics, Journal(config.data, accept_damage=config.accept_damage), self.flush
        )
        self.durable_topics.recover(accept_damage=config.accept_damage)
        self.readiness = Readiness()
        self.rates = Rates()
        """How much each peer has done in the last seconds."""
        self.loop_lag = Durations(BOUNDS)
        """How late the event loop was."""

    @property
    def spans(self) -> tuple[int, int]:
        """The number of spans that the collector has taken, and of dropped spans."""
        return 0, 0

    @property
    def topic_writer(self) -> TopicWriter:
        """What writes durable topics to the disk."""
        return self.durable_topics.writer

    @property
    def writers(self) -> list[tuple[str, GroupCommit | TopicWriter]]:
        """All writers to the disk, by name."""
        logs: list[tuple[str, GroupCommit | TopicWriter]] = [
            (f"the log of space {name}", hosted.commits) for name, hosted in self.spaces.items()
        ]
        return [*logs, (TopicWriter.NAME, self.topic_writer)]

    @property
    def directories(self) -> dict[str, Path]:
        """The directory of each space."""
        return {name: hosted.settings.data for name, hosted in self.spaces.items()}

    def left(self, guest: Guest) -> None:
        """Notes that a connection has ended."""
        ended = self.connections.pop(guest.number, None)
        if ended is not None:
            self.counts.left(ended.hosted.name, ended.turns, ended.received, ended.sending.sent)
        super().left(guest)

    def accounted(self) -> int:
        """Returns about how many bytes are in use beside the code; O(spaces, topics and connections)."""
        unheard = sum([each.sending.unheard for each in self.connections.values()])
        return super().accounted() + self.topics.bytes + unheard
