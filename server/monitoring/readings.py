"""Readings: the value of every metric, read from plain integers in one go.

It runs on the event loop and waits for nothing, so all values of one scrape are of one moment, but for what
the survey before it has found.

Always: nothing is counted here that another place counts already; O(connections + topics + rules).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from dataspace.version import __version__, compiled_parts
from server.monitoring import metrics as m
from server.monitoring.metrics import Metric

if TYPE_CHECKING:
    from relay.store.durations import Durations
    from server.monitoring.state import DaemonState
    from server.monitoring.survey import Lag, Survey
    from server.spaces.space import HostedSpace


@dataclass(frozen=True, slots=True)
class Buckets:
    """A histogram: for each bound how many did not exceed it, and the sum of all."""

    counts: tuple[tuple[float, int], ...]
    total: float

    @classmethod
    def of(cls, durations: Durations) -> Buckets:
        """Returns a copy of counts that go on."""
        return cls(tuple(durations.cumulative()), durations.total)


Reading: TypeAlias = tuple[Metric, tuple[str, ...], "float | Buckets | dict[str, str]"]
"""A metric, the values of its labels, and its own."""


def readings(daemon: DaemonState, found: Survey) -> list[Reading]:
    """Returns all readings, with what the survey has found."""
    now = time.time()
    said = [
        *_of_daemon(daemon),
        *_of_clients(daemon),
        *_of_topics(daemon, found),
    ]
    turns, sessions = _turns(daemon), _sessions(daemon)
    for name, home in daemon.spaces.items():
        said += _of_space(home, now, turns[name], sessions[name])
        said += _of_observers(name, home, found.slowest[name])
        said += [(m.DISK, (name, part), size) for part, size in found.disk[name].items()]
    return said


def _of_daemon(daemon: DaemonState) -> Iterator[Reading]:
    memory, lane = daemon.memory, daemon.lane.statistics()
    memory.refresh()
    yield m.BUILD, (), {"version": __version__, "compiled": ",".join(compiled_parts())}
    yield m.READY, (), float(not daemon.readiness.reason)
    yield m.LOOP_LAG, (), Buckets.of(daemon.loop_lag)
    yield m.LANE_WAITING, (), lane.waiting
    yield m.LANE_SLICES, (), lane.slices
    yield m.MEMORY, (), memory.used
    yield m.MEMORY_LIMIT, (), memory.limit
    yield m.TRIMS, (), memory.trims


def _of_clients(daemon: DaemonState) -> Iterator[Reading]:
    counts, slow, connections = daemon.counts, daemon.delivery.counts, daemon.connections.values()
    yield m.CONNECTIONS, (), len(daemon.connections)
    yield m.STRANGERS, (), len(daemon.strangers)
    yield m.ACCEPTED, (), counts.connections
    yield m.TURNED_AWAY, (), counts.turned_away
    yield m.LOGINS, (), counts.logins_refused
    for metric, by_code in (
        (m.GOODBYES, counts.goodbyes),
        (m.REFUSED, counts.refused),
        (m.SLOW, counts.slow),
    ):
        yield from [(metric, (code,), number) for code, number in by_code.items()]
    sent, dropped = daemon.spans
    yield m.SPANS_SENT, (), sent
    yield m.SPANS_DROPPED, (), dropped
    yield m.RECEIVED, (), counts.received + sum([each.received for each in connections])
    yield m.SENT, (), counts.sent + sum([each.sending.sent for each in connections])
    yield m.STREAMS, (), daemon.streams
    yield m.REPLAYS, (), daemon.limits.all_replays - daemon.replays.value
    yield m.WAITING, (), daemon.delivery.room.used
    yield m.WAITING_LIMIT, (), daemon.delivery.room.limit
    yield m.CONFLATED, (), slow.conflated
    yield m.DROPPED, (), slow.dropped
    yield m.FAILED, (), slow.failed
    yield m.BEHIND, (), slow.fallen_behind


def _turns(daemon: DaemonState) -> dict[str, int]:
    """Returns the turns of each space: of ended and of open connections."""
    turns = {name: daemon.counts.turns.get(name, 0) for name in daemon.spaces}
    for each in daemon.connections.values():
        turns[each.home.name] += each.turns
    return turns


def _sessions(daemon: DaemonState) -> dict[str, int]:
    sessions = dict.fromkeys(daemon.spaces, 0)
    for each in daemon.connections.values():
        sessions[each.home.name] += each.state is not None
    return sessions


def _of_space(home: HostedSpace, now: float, turns: int, sessions: int) -> Iterator[Reading]:
    at, space, commits = (home.name,), home.space.statistics(), home.commits
    written, rules = commits.statistics(), home.space.rules.statistics()
    yield m.TURNS, at, turns
    yield m.SESSIONS, at, sessions
    yield m.SUSPENDED, at, home.sessions.waiting
    yield m.EPOCH, at, space.epoch
    yield m.DURABLE, at, written.durable
    yield m.OLDEST, at, home.log.oldest
    yield m.EPOCHS, at, written.epochs
    yield m.CHANGES, at, written.changes
    yield m.FACTS, at, space.facts
    yield m.CLAIMS, at, space.claims
    yield m.FACTS_BYTES, at, space.facts_bytes
    yield m.OWNERS, at, space.owners
    yield m.LEASES, at, len(home.leases)
    yield m.IDENTITIES, at, len(home.clients)
    yield m.OBSERVERS, at, space.observers
    yield m.PATTERNS, at, space.patterns
    yield m.COMMIT, at, Buckets.of(commits.durations)
    yield m.WRITTEN, at, written.bytes
    yield m.SNAPSHOTS, at, written.snapshots
    yield m.UNWRITTEN, at, written.backlog_epochs
    yield m.UNWRITTEN_BYTES, at, written.backlog_bytes
    yield m.DISK_FULL, at, float(commits.full is not None)
    yield m.RULES, at, 0 if rules is None else rules.rules
    yield m.RULES_SUSPENDED, at, len(home.space.rules.suspended())
    yield m.RULE_SECONDS, at, home.space.rules.costliest()[2] / 1e9
    yield m.TICKS, at, 0 if rules is None else rules.ticks
    readers = list(home.log.readers)
    yield m.READERS, at, len(readers)
    behind = [max(0, written.durable - each.epoch) for each in readers]
    yield m.READER_LAG, at, max(behind, default=0)
    yield m.READER_SILENCE, at, max([0.0, *[now - each.seen / 1e6 for each in readers]])


def _of_observers(name: str, _home: HostedSpace, slowest: Lag) -> Iterator[Reading]:
    yield m.BACKLOG, (name,), slowest.backlog
    yield m.LAG_EPOCHS, (name,), slowest.epochs
    yield m.LAG_SECONDS, (name,), slowest.seconds


def _of_topics(daemon: DaemonState, found: Survey) -> Iterator[Reading]:
    topics = daemon.topics.statistics()
    yield m.TOPICS, (), topics.topics
    yield m.TOPICS_OPEN, (), found.topics_open
    yield m.PRODUCERS, (), topics.producers
    yield m.SUBSCRIPTIONS, (), topics.subscriptions
    yield m.TOPIC_WAITING, (), topics.waiting_bytes
    yield m.TOPIC_RETAINED, (), topics.retained_bytes
    yield m.FRONTIER_AGE, (), found.topics_still
    yield m.TOPIC_COMMIT, (), Buckets.of(daemon.topic_writer.durations)
