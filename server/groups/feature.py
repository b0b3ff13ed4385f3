"""Groups as a feature of the daemon."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Final

from server.features import DaemonTask, Feature, Measured
from server.groups.consuming import CONSUMING
from server.groups.figures import GroupFacts, GroupFigures, figures_of
from server.groups.space.dividing import DividedTopics
from server.groups.space.part import GROUPS, GroupsPart
from server.groups.verbs import VERBS
from server.metrics import SPACE, Metric
from server.topics.part import TOPICS

if TYPE_CHECKING:
    from server.sessions.state import DaemonState
    from server.spaces.space import HostedSpace

# A table: a metric is two or three lines.
# fmt: off
METRICS: Final[tuple[Metric[GroupFigures], ...]] = (
    Metric("dataspace_groups", "gauge", "Groups that divide a stream of work.",
           lambda of: of.groups, SPACE),
    Metric("dataspace_groups_paused", "gauge", "Groups that hand out nothing: paused, by hand or by a limit.",
           lambda of: of.paused, SPACE),
    Metric("dataspace_group_members", "gauge", "Members of groups.",
           lambda of: of.members, SPACE),
    Metric("dataspace_group_out", "gauge", "Jobs that members have.",
           lambda of: of.out, SPACE),
    Metric("dataspace_group_undone", "gauge", "Jobs that were read and are not done.",
           lambda of: of.undone, SPACE),
    Metric("dataspace_group_dead", "gauge", "Dead letters: jobs that have failed for good.",
           lambda of: of.dead, SPACE),
    Metric("dataspace_group_dead_max_ratio", "gauge",
           "Dead letters of the group that has most, as a part of limits.group_dead, at which it is paused.",
           lambda of: of.dead_part, SPACE),
    Metric("dataspace_group_oldest_max_seconds", "gauge", "Age of the oldest job that is not done.",
           lambda of: of.oldest_seconds, SPACE),
    Metric("dataspace_group_behind_max_epochs", "gauge", "Epochs on disk that a group has not read.",
           lambda of: of.behind, SPACE),
    Metric("dataspace_group_deliveries", "counter", "Jobs handed out, and what became of them.",
           lambda of: asdict(of.counts), ("space", "event")),
)
# fmt: on


def _make(daemon: DaemonState) -> None:
    """Topics keep what groups have to read yet, and say when there is more."""
    durable = daemon.parts[TOPICS].durable
    durable.needed, durable.moved = partial(_needed, daemon), partial(_topics_moved, daemon)


def _needed(daemon: DaemonState, topic: int) -> int | None:
    """Returns the completed epoch after which groups need a topic, by its identity; None if none does."""
    known = [each.parts[GROUPS].noted.needs_of_topic(topic) for each in daemon.spaces.values()]
    return min([each for each in known if each is not None], default=None)


def _topics_moved(daemon: DaemonState) -> None:
    for hosted in daemon.spaces.values():
        groups = hosted.parts[GROUPS]
        if groups.of_topics:
            groups.topics_moved.set()


def _joins(daemon: DaemonState, hosted: HostedSpace) -> None:
    topics = daemon.parts[TOPICS]
    hosted.parts[GROUPS].topics = DividedTopics(topics.catalogue, topics.durable)


def _tasks(daemon: DaemonState) -> Sequence[DaemonTask]:
    facts = GroupFacts(daemon.system)
    return (DaemonTask("facts about groups", partial(facts.run, daemon.spaces.values)),)


FEATURE: Final = Feature(
    name="groups",
    make=_make,
    spaces=((GROUPS, GroupsPart),),
    joins=_joins,
    verbs=lambda _: VERBS,
    streams={"consume": CONSUMING},
    routes="groups.routes",
    tasks=_tasks,
    space_metrics=Measured(figures_of, METRICS),
)
