"""The metrics of the daemon: names, kinds and help, as Prometheus' conventions want them, and their readings.

All are read in one go on the event loop, which waits for nothing, so the values of one scrape are of one
moment; only the figures of the survey are older.

Always: names have base units, counters end with ``_total``; no label has values that clients choose; nothing
is counted here that another place counts already; a scrape is O(connections + topics + rules).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dataspace.version import __version__, compiled_parts
from server.features import Feature
from server.metrics import SPACE, Buckets, Figures, Metric, Reading
from server.monitoring.measures import MEASURES
from server.sessions.peer import PEERS
from server.spaces.measures import lag_of

if TYPE_CHECKING:
    from dataspace.kernel.limits import SpaceStatistics
    from relay.log.retention import NamedReader
    from relay.log.writer import CommitStatistics
    from server.monitoring.lags import ReaderLag
    from server.monitoring.survey import Lag, Survey
    from server.sessions.state import DaemonState
    from server.spaces.space import HostedSpace


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


def readings(daemon: DaemonState, features: Sequence[Feature], found: Survey) -> list[Reading]:
    """Returns all readings, with the figures of a survey."""
    daemon.memory.refresh()
    read = [each for metric in OF_DAEMON for each in _readings(metric, daemon, ())]
    for own in [feature.metrics for feature in features if feature.metrics is not None]:
        figures = own.figures(daemon)
        read += [each for metric in own.metrics for each in _readings(metric, figures, ())]
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
            list(hosted.leading.log.readers) if hosted.leads else [],
            daemon.parts[MEASURES].reader_lags.of(name),
            found.slowest[name],
            found.disk[name],
            turns[name],
            sessions[name],
        )
        read += [each for metric in OF_SPACE for each in _readings(metric, space, (name,))]
        for of_space in [feature.space_metrics for feature in features if feature.space_metrics is not None]:
            figures = of_space.figures(hosted)
            read += [each for metric in of_space.metrics for each in _readings(metric, figures, (name,))]
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
OF_DAEMON: Final[tuple[Metric[DaemonState], ...]] = (
    Metric("dataspace_build", "info", "Version of the daemon, and its parts that are machine code.",
           lambda _: {"version": __version__, "compiled": ",".join(compiled_parts())}),
    Metric("dataspace_ready", "gauge", "1 while clients should be sent to the daemon.",
           lambda of: float(not of.readiness.reason)),
    Metric("dataspace_leads", "gauge", "1 in a daemon that writes its log, 0 in one that follows.",
           lambda of: float(of.leads)),
    Metric("dataspace_leader_known", "gauge", "1 while the leader of a follower answers, and in a leader.",
           lambda of: float(of.leads or bool(of.main.leader.url))),
    Metric("dataspace_loop_lag_seconds", "histogram", "How late the event loop ran a task that was ready.",
           lambda of: Buckets.of(of.parts[MEASURES].loop_lag)),
    Metric("dataspace_lane_waiting", "gauge", "Pieces of background work that wait for a turn.",
           lambda of: of.lane.statistics().waiting),
    Metric("dataspace_lane_slices", "counter", "Slices of background work.",
           lambda of: of.lane.statistics().slices),

    Metric("dataspace_connections", "gauge", "Connections that are open.",
           lambda of: len(of.parts[PEERS])),
    Metric("dataspace_unauthenticated_connections", "gauge", "Connections without a valid hello.",
           lambda of: len(of.guests.strangers)),
    Metric("dataspace_connections_accepted", "counter", "Connections that were accepted.",
           lambda of: of.counts.connections),
    Metric("dataspace_connections_refused", "counter", "Connections without room for them.",
           lambda of: of.counts.turned_away),
    Metric("dataspace_logins_refused", "counter", "Hellos with a token that was not valid.",
           lambda of: of.counts.logins_refused),
    Metric("dataspace_goodbyes", "counter", "Connections that the daemon ended, by code.",
           lambda of: of.counts.goodbyes, ("code",)),
    Metric("dataspace_refusals", "counter", "Turns, requests and streams refused, by code.",
           lambda of: of.counts.refused, ("code",)),
    Metric("dataspace_slow_events", "counter", "What was beyond a threshold of [slow].",
           lambda of: of.counts.slow, ("kind",)),
    Metric("dataspace_received_bytes", "counter", "Bytes received from clients.",
           lambda of: of.counts.received + sum([peer.received for peer in of.parts[PEERS].values()])),
    Metric("dataspace_sent_bytes", "counter", "Bytes sent to clients.",
           lambda of: of.counts.sent + sum([peer.sending.sent for peer in of.parts[PEERS].values()])),
    Metric("dataspace_streams", "gauge", "Streams that are open.",
           lambda of: of.guests.streams),
    Metric("dataspace_replays_reading", "gauge", "Replays that hold a part of the log in memory.",
           lambda of: of.limits.all_replays - of.replays.value),

    Metric("dataspace_waiting_bytes", "gauge", "What waits for all observers.",
           lambda of: of.delivery.budget.used),
    Metric("dataspace_waiting_limit_bytes", "gauge", "limits.waiting_bytes.",
           lambda of: of.delivery.budget.limit),
    Metric("dataspace_conflated_epochs", "counter", "Epochs that became part of a net difference.",
           lambda of: of.delivery.counts.conflated),
    Metric("dataspace_dropped_changes", "counter", "Changes dropped for observers with `drop`.",
           lambda of: of.delivery.counts.dropped),
    Metric("dataspace_failed_observers", "counter", "Observations that `fail` has ended.",
           lambda of: of.delivery.counts.failed),
    Metric("dataspace_observers_behind", "counter", "Times an observer with `wait` fell back on the log.",
           lambda of: of.delivery.counts.fallen_behind),

    Metric("dataspace_memory_accounted_bytes", "gauge", "Memory that the daemon accounts for.",
           lambda of: of.memory.used),
    Metric("dataspace_memory_part_bytes", "gauge", "The parts of that; `start` is without clients.",
           lambda of: of.memory.parts, ("part",)),
    Metric("dataspace_memory_limit_bytes", "gauge", "limits.memory: growth beyond is refused.",
           lambda of: of.memory.limit),
    Metric("dataspace_memory_trims", "counter", "Times free memory was given back to the system.",
           lambda of: of.memory.trims),

)

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


def all_metrics(features: Sequence[Feature]) -> list[Metric[Any]]:
    """Returns the metrics of a daemon with these features."""
    found = list[Metric[Any]](OF_DAEMON)
    found += [each for feature in features if feature.metrics for each in feature.metrics.metrics]
    found += OF_SPACE
    found += [each for feature in features if feature.space_metrics for each in feature.space_metrics.metrics]
    return found
