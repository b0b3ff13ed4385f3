"""The metrics of the daemon: names, kinds and help, as Prometheus' conventions want them, and their readings.

All are read in one go on the event loop, which waits for nothing, so the values of one scrape are of one
moment; only the figures of the survey are older.

Always: names have base units, counters end with ``_total``; no label has values that clients choose; nothing
is counted here that another place counts already; a scrape is O(connections + topics + rules).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar

from dataspace.version import __version__, compiled_parts
from server.monitoring.groups import GroupFigures, figures_of
from server.monitoring.measures import MEASURES
from server.sessions.peer import PEERS
from server.spaces.measures import lag_of
from server.topics.part import TOPICS

if TYPE_CHECKING:
    from dataspace.kernel.limits import SpaceStatistics
    from relay.log.retention import NamedReader
    from relay.log.writer import CommitStatistics
    from relay.store.durations import Durations
    from server.monitoring.figures import ArchiveLag
    from server.monitoring.lags import ReaderLag
    from server.monitoring.survey import Lag, Survey
    from server.sessions.peer import Peer
    from server.sessions.state import DaemonState
    from server.spaces.space import HostedSpace
    from server.topics.catalogue import TopicsStatistics

Kind = Literal["counter", "gauge", "histogram", "info"]
Figures = TypeVar("Figures")


@dataclass(frozen=True, slots=True)
class Buckets:
    """A histogram: for each bound how many did not exceed it, and the sum of all."""

    counts: tuple[tuple[float, int], ...]
    total: float

    @classmethod
    def of(cls, durations: Durations) -> Buckets:
        """Returns a copy of counts that go on."""
        return cls(tuple(durations.cumulative()), durations.total)


Read: TypeAlias = float | Buckets | Mapping[str, str] | Mapping[str, float]
"""A value: a number, a histogram, the texts of an info, or a number for each value of the last label."""


@dataclass(frozen=True, slots=True)
class Metric(Generic[Figures]):
    """One metric; a counter is named without ``_total`` here, and an info without ``_info``."""

    name: str
    kind: Kind
    help: str
    read: Callable[[Figures], Read]
    labels: tuple[str, ...] = ()


Reading: TypeAlias = tuple[Metric[Any], tuple[str, ...], Read]
"""A metric, the values of its labels, and its own value."""


@dataclass(frozen=True, slots=True)
class DaemonFigures:
    """The figures from which metrics of the daemon are read."""

    daemon: DaemonState
    found: Survey
    topics: TopicsStatistics

    @property
    def archives(self) -> Mapping[str, ArchiveLag]:
        """How far the archive of each space is behind."""
        return self.daemon.parts[MEASURES].archives()

    @property
    def spans(self) -> tuple[int, int]:
        """The number of spans that the collector has taken, and of dropped spans."""
        return self.daemon.parts[MEASURES].spans()

    @property
    def peers(self) -> Iterable[Peer]:
        """The open connections."""
        return self.daemon.parts[PEERS].values()


@dataclass(frozen=True, slots=True)
class SpaceFigures:
    """The figures from which metrics of one space are read."""

    hosted: HostedSpace
    space: SpaceStatistics
    written: CommitStatistics
    rules: int
    ticks: int
    readers: Sequence[NamedReader]
    lags: Sequence[ReaderLag]
    slowest: Lag
    disk: Mapping[str, int]
    turns: int
    sessions: int
    groups: GroupFigures


def readings(daemon: DaemonState, found: Survey) -> list[Reading]:
    """Returns all readings, with the figures of a survey."""
    daemon.memory.refresh()
    whole = DaemonFigures(daemon, found, daemon.parts[TOPICS].catalogue.statistics())
    read = [each for metric in OF_DAEMON for each in _readings(metric, whole, ())]
    turns, sessions = Counter(daemon.counts.turns), Counter[str]()
    for peer in daemon.parts[PEERS].values():
        turns[peer.hosted.name] += peer.turns
        sessions[peer.hosted.name] += peer.state is not None
    for name, hosted in daemon.spaces.items():
        rules = hosted.space.rules.statistics()
        space = SpaceFigures(
            hosted,
            hosted.space.statistics(),
            hosted.commits.statistics(),
            0 if rules is None else rules.rules,
            0 if rules is None else rules.ticks,
            list(hosted.own_log.readers) if hosted.leads else [],
            daemon.parts[MEASURES].reader_lags.of(name),
            found.slowest[name],
            found.disk[name],
            turns[name],
            sessions[name],
            figures_of(hosted),
        )
        read += [each for metric in OF_SPACE for each in _readings(metric, space, (name,))]
    return read


def _readings(metric: Metric[Figures], figures: Figures, at: tuple[str, ...]) -> Iterator[Reading]:
    value = metric.read(figures)
    if len(metric.labels) == len(at):
        yield metric, at, value
    else:
        assert isinstance(value, Mapping)  # by the table
        yield from [(metric, (*at, name), int(number)) for name, number in value.items()]


# A table: a metric is two or three lines.
# fmt: off
OF_DAEMON: Final[tuple[Metric[DaemonFigures], ...]] = (
    Metric("dataspace_build", "info", "Version of the daemon, and its parts that are machine code.",
           lambda _: {"version": __version__, "compiled": ",".join(compiled_parts())}),
    Metric("dataspace_ready", "gauge", "1 while clients should be sent to the daemon.",
           lambda of: float(not of.daemon.readiness.reason)),
    Metric("dataspace_leads", "gauge", "1 in a daemon that writes its log, 0 in one that follows.",
           lambda of: float(of.daemon.leads)),
    Metric("dataspace_leader_known", "gauge", "1 while the leader of a follower answers, and in a leader.",
           lambda of: float(of.daemon.leads or bool(of.daemon.main.leader.url))),
    Metric("dataspace_cluster_members", "gauge", "Members of the cluster that live; 0 outside of one.",
           lambda of: of.daemon.parts[MEASURES].cluster.members),
    Metric("dataspace_cluster_members_gone", "gauge", "Members killed or cut off within a day, and not back.",
           lambda of: of.daemon.parts[MEASURES].cluster.gone),
    Metric("dataspace_cluster_members_differing", "gauge", "Members with other settings than this daemon.",
           lambda of: of.daemon.parts[MEASURES].cluster.differing),
    Metric("dataspace_cluster_term", "gauge",
           "The term of the leader of a space, which rises with each take-over.",
           lambda of: of.daemon.parts[MEASURES].cluster.terms, ("space",)),
    Metric("dataspace_cluster_led", "gauge", "1 while a living member leads the space.",
           lambda of: of.daemon.parts[MEASURES].cluster.led, ("space",)),
    Metric("dataspace_archive_behind_epochs", "gauge", "Epochs on disk that the archive lacks.",
           lambda of: {name: each.epochs for name, each in of.archives.items()}, ("space",)),
    Metric("dataspace_archive_behind_seconds", "gauge",
           "Age of the newest archived epoch, while the archive lacks a later one.",
           lambda of: {name: each.seconds for name, each in of.archives.items()}, ("space",)),
    Metric("dataspace_archive_topics_behind_epochs", "gauge",
           "Completed epochs of durable topics on disk that their archives lack.",
           lambda of: sum([each.topic_epochs for each in of.archives.values()])),
    Metric("dataspace_archive_failing", "gauge", "1 while nothing is archived because of an error.",
           lambda of: {name: int(each.fails) for name, each in of.archives.items()}, ("space",)),
    Metric("dataspace_archive_ranges", "gauge", "Ranges that the archive has.",
           lambda of: {name: each.ranges for name, each in of.archives.items()}, ("space",)),
    Metric("dataspace_archive_bytes", "gauge", "Bytes of the archive, without replaced objects.",
           lambda of: {name: each.bytes for name, each in of.archives.items()}, ("space",)),
    Metric("dataspace_archive_ranges_to_merge", "gauge", "Ranges of the archive that wait to be merged.",
           lambda of: {name: each.to_merge for name, each in of.archives.items()}, ("space",)),
    Metric("dataspace_archive_erasures_waiting", "gauge", "Erasures that were asked for and are not done.",
           lambda of: {name: each.erasures for name, each in of.archives.items()}, ("space",)),
    Metric("dataspace_archive_erased_seconds", "gauge",
           "When something was erased last from the archive, in seconds since 1970; 0 for never.",
           lambda of: {name: each.erased_at / 1e6 for name, each in of.archives.items()},
           ("space",)),
    Metric("dataspace_loop_lag_seconds", "histogram", "How late the event loop ran a task that was ready.",
           lambda of: Buckets.of(of.daemon.parts[MEASURES].loop_lag)),
    Metric("dataspace_lane_waiting", "gauge", "Pieces of background work that wait for a turn.",
           lambda of: of.daemon.lane.statistics().waiting),
    Metric("dataspace_lane_slices", "counter", "Slices of background work.",
           lambda of: of.daemon.lane.statistics().slices),

    Metric("dataspace_connections", "gauge", "Connections that are open.",
           lambda of: len(of.daemon.parts[PEERS])),
    Metric("dataspace_unauthenticated_connections", "gauge", "Connections without a valid hello.",
           lambda of: len(of.daemon.guests.strangers)),
    Metric("dataspace_connections_accepted", "counter", "Connections that were accepted.",
           lambda of: of.daemon.counts.connections),
    Metric("dataspace_connections_refused", "counter", "Connections without room for them.",
           lambda of: of.daemon.counts.turned_away),
    Metric("dataspace_logins_refused", "counter", "Hellos with a token that was not valid.",
           lambda of: of.daemon.counts.logins_refused),
    Metric("dataspace_goodbyes", "counter", "Connections that the daemon ended, by code.",
           lambda of: of.daemon.counts.goodbyes, ("code",)),
    Metric("dataspace_refusals", "counter", "Turns, requests and streams refused, by code.",
           lambda of: of.daemon.counts.refused, ("code",)),
    Metric("dataspace_slow_events", "counter", "What was beyond a threshold of [slow].",
           lambda of: of.daemon.counts.slow, ("kind",)),
    Metric("dataspace_spans_sent", "counter", "Spans that the collector of traces has taken.",
           lambda of: of.spans[0]),
    Metric("dataspace_spans_dropped", "counter", "Spans that it has not taken, or too many.",
           lambda of: of.spans[1]),
    Metric("dataspace_received_bytes", "counter", "Bytes received from clients.",
           lambda of: of.daemon.counts.received + sum([peer.received for peer in of.peers])),
    Metric("dataspace_sent_bytes", "counter", "Bytes sent to clients.",
           lambda of: of.daemon.counts.sent + sum([peer.sending.sent for peer in of.peers])),
    Metric("dataspace_streams", "gauge", "Streams that are open.",
           lambda of: of.daemon.guests.streams),
    Metric("dataspace_replays_reading", "gauge", "Replays that hold a part of the log in memory.",
           lambda of: of.daemon.limits.all_replays - of.daemon.replays.value),

    Metric("dataspace_waiting_bytes", "gauge", "What waits for all observers.",
           lambda of: of.daemon.delivery.room.used),
    Metric("dataspace_waiting_limit_bytes", "gauge", "limits.waiting_bytes.",
           lambda of: of.daemon.delivery.room.limit),
    Metric("dataspace_conflated_epochs", "counter", "Epochs that became part of a net difference.",
           lambda of: of.daemon.delivery.counts.conflated),
    Metric("dataspace_dropped_changes", "counter", "Changes dropped for observers with `drop`.",
           lambda of: of.daemon.delivery.counts.dropped),
    Metric("dataspace_failed_observers", "counter", "Observations that `fail` has ended.",
           lambda of: of.daemon.delivery.counts.failed),
    Metric("dataspace_observers_behind", "counter", "Times an observer with `wait` fell back on the log.",
           lambda of: of.daemon.delivery.counts.fallen_behind),

    Metric("dataspace_memory_accounted_bytes", "gauge", "Memory that the daemon accounts for.",
           lambda of: of.daemon.memory.used),
    Metric("dataspace_memory_part_bytes", "gauge", "The parts of that; `start` is without clients.",
           lambda of: of.daemon.memory.parts, ("part",)),
    Metric("dataspace_memory_limit_bytes", "gauge", "limits.memory: growth beyond is refused.",
           lambda of: of.daemon.memory.limit),
    Metric("dataspace_memory_trims", "counter", "Times free memory was given back to the system.",
           lambda of: of.daemon.memory.trims),

    Metric("dataspace_topics", "gauge", "Topics.",
           lambda of: of.topics.topics),
    Metric("dataspace_topics_open", "gauge", "Topics with times that are not complete.",
           lambda of: of.found.topics_open),
    Metric("dataspace_topic_producers", "gauge", "Producers of topics.",
           lambda of: of.topics.producers),
    Metric("dataspace_topic_subscriptions", "gauge", "Subscriptions to topics.",
           lambda of: of.topics.subscriptions),
    Metric("dataspace_topic_waiting_bytes", "gauge", "What subscribers have yet to take.",
           lambda of: of.topics.waiting_bytes),
    Metric("dataspace_topic_retained_bytes", "gauge", "What topics retain in memory.",
           lambda of: of.topics.retained_bytes),
    Metric("dataspace_topic_frontier_age_max_seconds", "gauge",
           "The longest time for which the frontier of an open topic has not moved, as scrapes saw it.",
           lambda of: of.found.topics_still),
    Metric("dataspace_topic_commit_seconds", "histogram",
           "Time of one group of steps of durable topics to be on disk.",
           lambda of: Buckets.of(of.daemon.parts[TOPICS].durations)),
)

SPACE: Final = ("space",)

OF_SPACE: Final[tuple[Metric[SpaceFigures], ...]] = (
    Metric("dataspace_sessions", "gauge", "Sessions with a connection.",
           lambda of: of.sessions, SPACE),
    Metric("dataspace_suspended_sessions", "gauge", "Sessions within their grace.",
           lambda of: of.hosted.sessions.waiting, SPACE),
    Metric("dataspace_turns", "counter", "Turns of clients that were committed.",
           lambda of: of.turns, SPACE),
    Metric("dataspace_epoch", "gauge", "The newest epoch.",
           lambda of: of.space.epoch, SPACE),
    Metric("dataspace_durable_epoch", "gauge", "The newest epoch on disk.",
           lambda of: of.written.durable, SPACE),
    Metric("dataspace_follower_lag_epochs", "gauge", "Epochs that a follower is behind its leader.",
           lambda of: lag_of(of.hosted).epochs, SPACE),
    Metric("dataspace_follower_lag_seconds", "gauge", "Age of the oldest of these epochs.",
           lambda of: lag_of(of.hosted).seconds, SPACE),
    Metric("dataspace_oldest_epoch", "gauge", "The oldest epoch that the log holds.",
           lambda of: of.hosted.log.oldest, SPACE),
    Metric("dataspace_epochs_written", "counter", "Epochs written to disk.",
           lambda of: of.written.epochs, SPACE),
    Metric("dataspace_changes", "counter", "Changes of facts, and messages, written to disk.",
           lambda of: of.written.changes, SPACE),
    Metric("dataspace_facts", "gauge", "Facts, claimed or derived.",
           lambda of: of.space.facts, SPACE),
    Metric("dataspace_claims", "gauge", "Claims on facts.",
           lambda of: of.space.claims, SPACE),
    Metric("dataspace_facts_bytes", "gauge", "About what claims take of memory.",
           lambda of: of.space.facts_bytes, SPACE),
    Metric("dataspace_owners", "gauge", "Owners that claim something.",
           lambda of: of.space.owners, SPACE),
    Metric("dataspace_leases", "gauge", "Leases that have not ended.",
           lambda of: len(of.hosted.leases), SPACE),
    Metric("dataspace_identities", "gauge", "Identities with remembered turn numbers.",
           lambda of: len(of.hosted.clients), SPACE),

    Metric("dataspace_observers", "gauge", "Observers of patterns.",
           lambda of: of.space.observers, SPACE),
    Metric("dataspace_patterns", "gauge", "Different patterns that are observed.",
           lambda of: of.space.patterns, SPACE),
    Metric("dataspace_observer_backlog_max", "gauge", "Values that wait for the slowest observer.",
           lambda of: of.slowest.backlog, SPACE),
    Metric("dataspace_observer_lag_epochs_max", "gauge", "Epochs the slowest observer is behind.",
           lambda of: of.slowest.epochs, SPACE),
    Metric("dataspace_observer_lag_max_seconds", "gauge",
           "Age of the oldest epoch that waits for an observer.",
           lambda of: of.slowest.seconds, SPACE),

    Metric("dataspace_commit_seconds", "histogram", "Time of one group of epochs to be on disk.",
           lambda of: Buckets.of(of.hosted.commits.durations), SPACE),
    Metric("dataspace_log_written_bytes", "counter", "Bytes of epochs written to the log.",
           lambda of: of.written.bytes, SPACE),
    Metric("dataspace_snapshots", "counter", "Snapshots of the state written to disk.",
           lambda of: of.written.snapshots, SPACE),
    Metric("dataspace_unwritten_epochs", "gauge", "Epochs that wait for the disk.",
           lambda of: of.written.backlog_epochs, SPACE),
    Metric("dataspace_unwritten_bytes", "gauge", "Bytes that wait for the disk.",
           lambda of: of.written.backlog_bytes, SPACE),
    Metric("dataspace_disk_full", "gauge", "1 while the disk has no room for the log.",
           lambda of: float(of.hosted.commits.full is not None), SPACE),
    Metric("dataspace_disk_bytes", "gauge",
           "Bytes of files: the log, what is staged, durable topics, others.",
           lambda of: of.disk, ("space", "part")),

    Metric("dataspace_rules", "gauge", "Rules that are carried out.",
           lambda of: of.rules, SPACE),
    Metric("dataspace_rules_suspended", "gauge", "Rules suspended after an error.",
           lambda of: len(of.hosted.space.rules.suspended()), SPACE),
    Metric("dataspace_rule_seconds", "counter", "Time that rules took, estimated.",
           lambda of: of.hosted.space.rules.costliest()[2] / 1e9, SPACE),
    Metric("dataspace_rule_ticks", "counter", "Runs of the rules.",
           lambda of: of.ticks, SPACE),
    Metric("dataspace_timed_turns", "counter", "Epochs that came by time alone.",
           lambda of: of.hosted.space.timed_turns, SPACE),
    Metric("dataspace_timed_late_seconds", "gauge", "Lateness of the last epoch that came by time alone.",
           lambda of: of.hosted.space.timed_late / 1e6, SPACE),
    Metric("dataspace_timed_rows", "gauge", "Rows of the past that rules over time keep.",
           lambda of: of.hosted.space.rules.times.rows, SPACE),
    Metric("dataspace_timed_pending", "gauge", "Rows that rules over time look at again at a known instant.",
           lambda of: of.hosted.space.rules.times.pending, SPACE),

    Metric("dataspace_groups", "gauge", "Groups that divide a stream of work.",
           lambda of: of.groups.groups, SPACE),
    Metric("dataspace_groups_paused", "gauge", "Groups that hand out nothing: paused, by hand or by a limit.",
           lambda of: of.groups.paused, SPACE),
    Metric("dataspace_group_members", "gauge", "Members of groups.",
           lambda of: of.groups.members, SPACE),
    Metric("dataspace_group_out", "gauge", "Jobs that members have.",
           lambda of: of.groups.out, SPACE),
    Metric("dataspace_group_undone", "gauge", "Jobs that were read and are not done.",
           lambda of: of.groups.undone, SPACE),
    Metric("dataspace_group_dead", "gauge", "Dead letters: jobs that have failed for good.",
           lambda of: of.groups.dead, SPACE),
    Metric("dataspace_group_oldest_max_seconds", "gauge", "Age of the oldest job that is not done.",
           lambda of: of.groups.oldest_seconds, SPACE),
    Metric("dataspace_group_behind_max_epochs", "gauge", "Epochs on disk that a group has not read.",
           lambda of: of.groups.behind, SPACE),
    Metric("dataspace_group_deliveries", "counter", "Jobs handed out, and what became of them.",
           lambda of: asdict(of.groups.counts), ("space", "event")),

    Metric("dataspace_readers", "gauge", "Named readers, such as Spark's queries.",
           lambda of: len(of.readers), SPACE),
    Metric("dataspace_reader_lag_epochs_max", "gauge",
           "Epochs that the slowest named reader has not acknowledged.",
           lambda of: max([0, *[of.written.durable - reader.epoch for reader in of.readers]]), SPACE),
    Metric("dataspace_reader_lag_changes_max", "gauge",
           "Changes that the slowest named reader has not acknowledged.",
           lambda of: max([0, *[lag.changes for lag in of.lags]]), SPACE),
    Metric("dataspace_reader_lag_max_seconds", "gauge",
           "Age of the oldest epoch that a named reader has not acknowledged.",
           lambda of: max([0.0, *[lag.seconds for lag in of.lags]]), SPACE),
    Metric("dataspace_reader_silence_max_seconds", "gauge", "Time since a named reader was heard last.",
           lambda of: max([0.0, *[time.time() - reader.seen / 1e6 for reader in of.readers]]), SPACE),
)
# fmt: on

METRICS: Final[tuple[Metric[Any], ...]] = (*OF_DAEMON, *OF_SPACE)
