"""The state of a daemon: what its peers share, its topics, its connections, and how it runs.

The rates of connections, the lag of the event loop and the time of rules are measured again and again.
Metrics, health and the requests about sessions read all of it; the daemon extends it with its doors and its
end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import trio

from dataspace.errors import Refused
from relay.journal.journal import Journal
from relay.journal.writer import TopicWriter
from relay.store.durations import Durations
from relay.store.errors import closed_on_failure
from server.config.model import own_name
from server.monitoring.groups import GroupFacts
from server.monitoring.lags import ReaderLags
from server.sessions.peer import Peer
from server.sessions.shared import Shared
from server.spaces.space import now
from server.topics.catalogue import Topics
from server.topics.dividing import DividedTopics
from server.topics.durable import DurableTopics, Recovered

if TYPE_CHECKING:
    from relay.log.writer import GroupCommit
    from server.config.model import Config
    from server.home import Home
    from server.sessions.counts import Counts
    from server.spaces.space import HostedSpace
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


@dataclass(frozen=True, slots=True)
class ClusterFigures:
    """Counts of the members of a cluster, and its leaders, as seen last; nothing outside of one."""

    members: int = 0
    """Members whose lease lasts."""
    gone: int = 0
    """Members whose lease has run out within the last day."""
    differing: int = 0
    """Members with other settings than this daemon."""
    terms: Mapping[str, int] = field(default_factory=dict)
    """The term of each space."""
    led: Mapping[str, int] = field(default_factory=dict)
    """1 for each space that a living member leads, 0 for others."""


@dataclass(frozen=True, slots=True)
class ArchiveLag:
    """How far the archive of a space is behind its log: epochs on disk that it lacks, the age of its newest
    epoch in seconds if it lacks any, whether archiving fails now, how many completed epochs of durable
    topics, which stand with ``main``, their archives lack.

    Then how many erasures wait, when something was erased last (microseconds since 1970, 0 for never), how
    many ranges and bytes the archive has, and how many of its ranges wait to be merged.
    """

    epochs: int
    seconds: float
    fails: bool
    topic_epochs: int = 0
    erasures: int = 0
    erased_at: int = 0
    ranges: int = 0
    bytes: int = 0
    to_merge: int = 0


class DaemonState(Shared):
    """The spaces, topics and connections of a daemon."""

    def __init__(self, config: Config, home: Home, counts: Counts, recorder: Recorder | None = None) -> None:
        super().__init__(config, counts, recorder)
        self.home: Final = home
        retained = config.limits.retained_bytes
        self.topics = Topics(
            now, self.system, self.memory.admit, retained=retained, elsewhere=self._elsewhere
        )
        self.durable_topics = DurableTopics(self.topics, self.flush, lambda: self.main.settings.retention)
        self.durable_topics.needed = self._needed_of_topic
        self.durable_topics.moved = self._topics_moved
        self.divided_topics = DividedTopics(self.topics, self.durable_topics)
        """What groups read of durable topics."""
        self.name = config.cluster.name or own_name()
        """How other daemons name this one."""
        self.url = self.web_url = ""
        """Where clients reach it, once it listens."""
        self.readiness = Readiness()
        self.cluster = ClusterFigures()
        self.rates = Rates()
        """How much each peer has done in the last seconds."""
        self.reader_lags = ReaderLags(self.system)
        """How far named readers are behind."""
        self.group_facts = GroupFacts(self.system)
        self.loop_lag = Durations(BOUNDS)
        """How late the event loop was."""

    @property
    def archive_lags(self) -> Mapping[str, ArchiveLag]:
        """The lags of the archives of all spaces; empty where nothing is archived."""
        return {}

    @property
    def spans(self) -> tuple[int, int]:
        """The number of spans that the collector has taken, and of dropped spans."""
        return 0, 0

    def open_journal(self) -> tuple[Journal, Recovered]:
        """Opens the durable topics, to be written; blocks, for each topic."""
        accept_damage = self.config.accept_damage
        journal = self.home.open_journal(accept_damage=accept_damage)
        with closed_on_failure(journal):
            return journal, self.durable_topics.recovered(journal, accept_damage=accept_damage)

    def open_topics(self, journal: Journal, found: Recovered) -> None:
        """Has the durable topics go on, in a daemon that leads."""
        self.durable_topics.open(journal, found)

    def follow_topics(self) -> None:
        """Reads the durable topics of the leader, in a daemon that follows."""
        self.durable_topics.follow(self.home.follow_journal())

    def _elsewhere(self) -> Refused | None:
        """Returns the refusal of what only a leader has, in a daemon that follows."""
        return None if self.leads else self.main.leader.refusal()

    def _needed_of_topic(self, topic: int) -> int | None:
        """Returns the completed epoch after which groups need a topic, by its identity; None if none does."""
        known = [each.groups.noted.needs_of_topic(topic) for each in self.spaces.values()]
        return min([each for each in known if each is not None], default=None)

    def _topics_moved(self) -> None:
        for hosted in self.spaces.values():
            if hosted.groups.of_topics:
                hosted.groups.topics_moved.set()

    @property
    def topic_writer(self) -> TopicWriter | None:
        """What writes durable topics to the disk; None in a daemon that follows."""
        return self.durable_topics.writer if self.durable_topics.is_open else None

    @property
    def writers(self) -> list[tuple[str, GroupCommit | TopicWriter]]:
        """All writers to the disk, by name; none in a daemon that follows."""
        written: list[tuple[str, GroupCommit | TopicWriter]] = [
            (f"the log of space {name}", hosted.writer)
            for name, hosted in self.spaces.items()
            if hosted.leads
        ]
        if (topics := self.topic_writer) is not None:
            written.append((TopicWriter.NAME, topics))
        return written

    @property
    def leads(self) -> bool:
        """True if this daemon writes its log, rather than following the log of another one."""
        return self.main.leads

    def follows(self, space: str) -> bool:
        """True if another daemon takes the turns of a space of this name."""
        hosted = self.spaces.get(space)
        return hosted is not None and not hosted.leads

    def check_leads(self, space: str) -> None:
        """Raises ``Refused``, with the address of the leader, if turns of a space are made elsewhere."""
        self.spaces[space].check_leads()

    def leader_web(self, space: str) -> str:
        """Where the leader of a space serves HTTP; empty if it does not, or none is known."""
        return self.spaces.get(space, self.main).leader.web

    @property
    def topic_durations(self) -> Durations:
        """How long the groups of steps of durable topics took to be on disk."""
        return Durations() if self.topic_writer is None else self.topic_writer.durations

    def memory_parts(self) -> Counter[str]:
        """Returns about how many bytes each part has in use; O(spaces, topics and connections)."""
        parts = super().memory_parts()
        parts["topics"] = self.topics.bytes
        parts["connections"] += sum([each.sending.unheard for each in self.guests.peers.values()])
        return parts


# -- Measurements that repeat ----------------------------------------------------------------------
# Every client waits for the loop, so its *lag* is what all of them see: a task sleeps for a moment
# again and again, and measures by how much longer it took. Rules run in the turns of clients, each
# for a moment, so no single run need be slow: the time of each is compared once in a second with
# its time before.
#
# Always: nothing is counted that connections and rules do not count anyway; a lag is counted once,
# however long it was; a connection that has ended is forgotten.


PAUSE: Final = 5.0
"""Seconds between two looks."""

SLICE: Final = 1024
"""Connections that are looked at in one slice, at a microsecond for each."""

LAG_PAUSE: Final = 0.1
"""Seconds between two measurements of the lag, which cost some 30 µs each."""

BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)

RULES_PAUSE: Final = 1.0
"""Seconds between two looks at the rules, each O(rules)."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Turns, bytes received and bytes sent, in a second."""

    turns: float = 0.0
    received: float = 0.0
    sent: float = 0.0


@dataclass(frozen=True, slots=True)
class _Look:
    """What a connection had counted at a time, and its rate until then."""

    at: float
    turns: int
    received: int
    sent: int
    rate: Rate


class Rates:
    """The rates of all connections."""

    def __init__(self) -> None:
        self._looks: dict[int, _Look] = {}

    def of(self, connection: Peer) -> Rate:
        """Returns the rate in the last few seconds; of a new connection since it came."""
        look = self._looks.get(connection.number)
        return self._look(connection, trio.current_time()).rate if look is None else look.rate

    def _look(self, connection: Peer, now: float) -> _Look:
        before = self._looks.get(connection.number)
        turns, received, sent = connection.turns, connection.received, connection.sending.sent
        if before is None:
            before = _Look(connection.since, 0, 0, 0, Rate())
        spent = max(now - before.at, 1e-3)
        rate = Rate(
            (turns - before.turns) / spent, (received - before.received) / spent, (sent - before.sent) / spent
        )
        return _Look(now, turns, received, sent, rate)

    async def look(self, connections: Iterable[Peer]) -> None:
        """Looks at all connections, in slices."""
        looks: dict[int, _Look] = {}
        for at, connection in enumerate(list(connections), 1):
            looks[connection.number] = self._look(connection, trio.current_time())
            if not at % SLICE:
                await trio.lowlevel.checkpoint()
        self._looks = looks

    async def run(self, connections: Callable[[], Iterable[Peer]]) -> None:
        """Looks again and again, until cancelled."""
        while True:
            await trio.sleep(PAUSE)
            await self.look(connections())


async def measure_lag(lags: Durations) -> None:
    """Adds how late the loop was to ``lags``, until cancelled."""
    while True:
        due = trio.current_time() + LAG_PAUSE
        await trio.sleep_until(due)
        lags.add(max(0.0, trio.current_time() - due))


def growths(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, float]:
    """Returns the seconds that each rule has used between two looks; a rule that was made anew began at 0.

    >>> growths({"a": 5_000_000_000, "b": 7_000_000_000}, {"a": 6_000_000_000, "b": 500_000_000, "c": 0})
    {'a': 1.0, 'b': 0.5, 'c': 0.0}
    """
    found = {}
    for name, spent in now.items():
        earlier = before.get(name, 0)
        found[name] = (spent - earlier if spent >= earlier else spent) / 1e9
    return found


async def watch_rules(
    spaces: Callable[[], Iterable[HostedSpace]], took: Callable[[str, str, float], None]
) -> None:
    """Reports each second what each rule of each space has used of it, until cancelled."""
    before: dict[str, Mapping[str, int]] = {}
    while True:
        await trio.sleep(RULES_PAUSE)
        for hosted in spaces():
            program = hosted.space.rules.program
            now = {} if program is None else program.spent()
            for name, seconds in growths(before.get(hosted.name, {}), now).items():
                took(hosted.name, name, seconds)
            before[hosted.name] = now
