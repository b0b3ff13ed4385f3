"""Topics as a feature of the daemon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import trio

from dataspace.wire import packets as p
from dataspace.wire.features import MAIN
from server.features import DaemonTask, Feature, Measured
from server.metrics import Buckets, Metric
from server.parts import PartKey
from server.topics.following import CONNECTION
from server.topics.part import TOPICS, DaemonTopics
from server.topics.verbs import TopicVerbs

if TYPE_CHECKING:
    from dataspace.topics.times import Antichain
    from relay.store.durations import Durations
    from server.sessions.requests import Verb
    from server.sessions.state import DaemonState
    from server.spaces.space import HostedSpace
    from server.topics.catalogue import Topics, TopicsStatistics


@dataclass(slots=True)
class Frontiers:
    """The frontiers of topics as they were seen last, and since when; kept from one look to the next."""

    _seen: dict[tuple[int, int], tuple[Antichain, float]] = field(default_factory=dict)

    def standing_still(self, topics: Topics, now: float) -> tuple[int, float]:
        """Returns how many topics have open times, and for how many seconds the slowest has stood still.

        A topic is open while something was sent at or after its frontier; O(partitions).
        """
        seen, opened, longest = {}, 0, 0.0
        for entry in topics:
            is_open = False
            for partition in entry.topic.partitions:
                lower = partition.lower
                if (
                    partition.ended
                    or partition.dormant
                    or not any(lower.less_equal(time) for time in partition.upper)
                ):
                    continue
                is_open = True
                at = entry.number, partition.partition
                before, since = self._seen.get(at, (lower, now))
                since = since if list(before) == list(lower) else now
                seen[at] = lower, since
                longest = max(longest, now - since)
            opened += is_open
        self._seen = seen
        return opened, longest


FRONTIERS: Final = PartKey[Frontiers]("frontiers")


@dataclass(frozen=True, slots=True)
class TopicFigures:
    """The figures from which metrics of topics are read."""

    statistics: TopicsStatistics
    opened: int
    """Topics with a sent epoch that is not complete."""
    still: float
    """The longest time, in seconds, for which a topic has waited for its frontier to move."""
    durations: Durations


# A table: a metric is two or three lines.
# fmt: off
METRICS: Final[tuple[Metric[TopicFigures], ...]] = (
    Metric("dataspace_topics", "gauge", "Topics.",
           lambda of: of.statistics.topics),
    Metric("dataspace_topics_open", "gauge", "Topics with times that are not complete.",
           lambda of: of.opened),
    Metric("dataspace_topic_producers", "gauge", "Producers of topics.",
           lambda of: of.statistics.producers),
    Metric("dataspace_topic_subscriptions", "gauge", "Subscriptions to topics.",
           lambda of: of.statistics.subscriptions),
    Metric("dataspace_topic_waiting_bytes", "gauge", "What subscribers have yet to take.",
           lambda of: of.statistics.waiting_bytes),
    Metric("dataspace_topic_retained_bytes", "gauge", "What topics retain in memory.",
           lambda of: of.statistics.retained_bytes),
    Metric("dataspace_topic_frontier_age_max_seconds", "gauge",
           "The longest time for which the frontier of an open topic has not moved, as scrapes saw it.",
           lambda of: of.still),
    Metric("dataspace_topic_commit_seconds", "histogram",
           "Time of one group of steps of durable topics to be on disk.",
           lambda of: Buckets.of(of.durations)),
)
# fmt: on


def _make(daemon: DaemonState) -> None:
    topics = DaemonTopics(daemon)
    daemon.parts.add(TOPICS, topics, lambda: topics.catalogue.bytes)
    daemon.disk_part = topics
    daemon.parts.add(FRONTIERS, Frontiers())


def _verbs(daemon: DaemonState) -> Mapping[str, Verb]:
    return TopicVerbs(daemon.parts[TOPICS]).table()


def _leads(daemon: DaemonState, spaces: Sequence[HostedSpace]) -> Sequence[DaemonTask]:
    """The topics are led with ``main``."""
    if daemon.main not in spaces:
        return ()
    return (DaemonTask("durable topics", daemon.parts[TOPICS].durable.run, MAIN),)


def _figures(daemon: DaemonState) -> TopicFigures:
    """Returns the figures; O(topics)."""
    topics = daemon.parts[TOPICS]
    opened, still = daemon.parts[FRONTIERS].standing_still(topics.catalogue, trio.current_time())
    return TopicFigures(topics.catalogue.statistics(), opened, still, topics.durations)


def _relimit(daemon: DaemonState) -> None:
    daemon.parts[TOPICS].catalogue.relimit(retained=daemon.limits.retained_bytes)


FEATURE: Final = Feature(
    name="topics",
    make=_make,
    relimit=_relimit,
    verbs=_verbs,
    streams={"topic": CONNECTION},
    packets={p.Produce: CONNECTION},
    routes="topics.routes",
    leads=_leads,
    status=lambda daemon, _: {"topics": len(daemon.parts[TOPICS].catalogue)},
    metrics=Measured(_figures, METRICS),
)
