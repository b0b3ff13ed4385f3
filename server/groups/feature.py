"""Groups as a feature of the daemon."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Final

from server.features import DaemonTask, Feature, Measured
from server.groups.figures import GroupFacts, GroupFigures, figures_of
from server.groups.verbs import VERBS
from server.metrics import SPACE, Metric

if TYPE_CHECKING:
    from server.sessions.state import DaemonState

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
    Metric("dataspace_group_oldest_max_seconds", "gauge", "Age of the oldest job that is not done.",
           lambda of: of.oldest_seconds, SPACE),
    Metric("dataspace_group_behind_max_epochs", "gauge", "Epochs on disk that a group has not read.",
           lambda of: of.behind, SPACE),
    Metric("dataspace_group_deliveries", "counter", "Jobs handed out, and what became of them.",
           lambda of: asdict(of.counts), ("space", "event")),
)
# fmt: on


def _tasks(daemon: DaemonState) -> Sequence[DaemonTask]:
    facts = GroupFacts(daemon.system)
    return (DaemonTask("facts about groups", partial(facts.run, daemon.spaces.values)),)


FEATURE: Final = Feature(
    name="groups",
    verbs=lambda _: VERBS,
    tasks=_tasks,
    space_metrics=Measured(figures_of, METRICS),
)
