"""The archive as a feature of the daemon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from index.values.values import Map
from server.archiving.keeper import ARCHIVING, ArchiveKeeper, ArchiveLag
from server.archiving.verbs import erase_verb
from server.features import DaemonTask, Feature, Measured
from server.metrics import Metric
from server.spaces.space import now
from server.topics.part import TOPICS

if TYPE_CHECKING:
    from server.sessions.state import DaemonState
    from server.spaces.space import HostedSpace

# A table: a metric is two or three lines.
# fmt: off
METRICS: Final[tuple[Metric[Mapping[str, ArchiveLag]], ...]] = (
    Metric("dataspace_archive_behind_epochs", "gauge", "Epochs on disk that the archive lacks.",
           lambda of: {name: each.epochs for name, each in of.items()}, ("space",)),
    Metric("dataspace_archive_behind_seconds", "gauge",
           "Age of the newest archived epoch, while the archive lacks a later one.",
           lambda of: {name: each.seconds for name, each in of.items()}, ("space",)),
    Metric("dataspace_archive_topics_behind_epochs", "gauge",
           "Completed epochs of durable topics on disk that their archives lack.",
           lambda of: sum([each.topic_epochs for each in of.values()])),
    Metric("dataspace_archive_failing", "gauge", "1 while nothing is archived because of an error.",
           lambda of: {name: int(each.fails) for name, each in of.items()}, ("space",)),
    Metric("dataspace_archive_ranges", "gauge", "Ranges that the archive has.",
           lambda of: {name: each.ranges for name, each in of.items()}, ("space",)),
    Metric("dataspace_archive_bytes", "gauge", "Bytes of the archive, without replaced objects.",
           lambda of: {name: each.bytes for name, each in of.items()}, ("space",)),
    Metric("dataspace_archive_ranges_to_merge", "gauge", "Ranges of the archive that wait to be merged.",
           lambda of: {name: each.to_merge for name, each in of.items()}, ("space",)),
    Metric("dataspace_archive_erasures_waiting", "gauge", "Erasures that were asked for and are not done.",
           lambda of: {name: each.erasures for name, each in of.items()}, ("space",)),
    Metric("dataspace_archive_erased_seconds", "gauge",
           "When something was erased last from the archive, in seconds since 1970; 0 for never.",
           lambda of: {name: each.erased_at / 1e6 for name, each in of.items()},
           ("space",)),
)
# fmt: on


def _make(daemon: DaemonState) -> None:
    if daemon.config.archive.place is not None:
        topics = daemon.parts[TOPICS].durable
        daemon.parts.add(ARCHIVING, ArchiveKeeper(daemon.config, daemon.spaces.values, topics))


def _tasks(daemon: DaemonState) -> Sequence[DaemonTask]:
    archiving = daemon.parts.get(ARCHIVING)
    return () if archiving is None else (DaemonTask("archives", archiving.run),)


def _status(daemon: DaemonState, hosted: HostedSpace) -> Mapping[str, object]:
    archiving = daemon.parts.get(ARCHIVING)
    return {"archive": Map({} if archiving is None else archiving.status(hosted, now()))}


def _lags(daemon: DaemonState) -> Mapping[str, ArchiveLag]:
    """Returns how far the archive of each space is behind; empty where nothing is archived."""
    archiving = daemon.parts.get(ARCHIVING)
    return {} if archiving is None else archiving.lags(now())


FEATURE: Final = Feature(
    name="archive",
    make=_make,
    verbs=lambda daemon: {"erase": erase_verb(daemon, daemon.parts.get(ARCHIVING))},
    tasks=_tasks,
    status=_status,
    inspected=frozenset(["archive"]),
    metrics=Measured(_lags, METRICS),
)
