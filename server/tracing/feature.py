"""Traces of turns as a feature of the daemon."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from server.features import DaemonTask, Feature, Measured
from server.metrics import Metric
from server.tracing.tracing import TRACING

if TYPE_CHECKING:
    from server.sessions.state import DaemonState


class SpanCounts(NamedTuple):
    """Spans that the collector has taken, and dropped ones."""

    sent: int
    dropped: int


# fmt: off
METRICS: Final[tuple[Metric[SpanCounts], ...]] = (
    Metric("dataspace_spans_sent", "counter", "Spans that the collector of traces has taken.",
           lambda of: of.sent),
    Metric("dataspace_spans_dropped", "counter", "Spans that it has not taken, or too many.",
           lambda of: of.dropped),
)
# fmt: on


def _tasks(daemon: DaemonState) -> Sequence[DaemonTask]:
    tracing = daemon.parts.get(TRACING)
    return () if tracing is None else (DaemonTask("traces", tracing.recorder.run),)


def _counts(daemon: DaemonState) -> SpanCounts:
    tracing = daemon.parts.get(TRACING)
    return SpanCounts(0, 0) if tracing is None else SpanCounts(tracing.sent, tracing.dropped)


FEATURE: Final = Feature(name="tracing", tasks=_tasks, metrics=Measured(_counts, METRICS))
