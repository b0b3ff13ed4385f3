"""The exposition: readings in the text form of Prometheus or of OpenMetrics.

This is the only file that needs the package ``prometheus-client`` (the extra ``metrics``), and it is loaded
only where metrics are asked for.  The library writes the text and negotiates its form; it counts nothing,
since its counters cost a lock for each event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric as Family,
)
from prometheus_client.registry import Collector

from server.metrics import Buckets, Metric, Reading


class _Readings(Collector):
    """The readings of one scrape."""

    def __init__(self, metrics: Sequence[Metric[Any]]) -> None:
        self._metrics: Final = metrics
        self.now: Sequence[Reading] = ()

    def collect(self) -> Iterator[Family]:
        """Yields each metric with its readings."""
        found: dict[Metric[Any], list[Reading]] = {each: [] for each in self._metrics}
        for reading in self.now:
            found[reading[0]].append(reading)
        for metric, some in found.items():
            yield _family(metric, some)


class Exposition:
    """Writes readings as text."""

    def __init__(self, metrics: Sequence[Metric[Any]]) -> None:
        self._readings: Final = _Readings(metrics)
        self._registry: Final = CollectorRegistry()
        self._registry.register(self._readings)
        ProcessCollector(registry=self._registry)  # what the system knows of the process

    def text(self, some: Sequence[Reading], accept: str) -> tuple[str, bytes]:
        """Returns the type of the content and the text, in the form that ``accept`` prefers."""
        encode: Callable[[CollectorRegistry], bytes]
        encode, kind = choose_encoder(accept)
        self._readings.now = some
        return kind, encode(self._registry)


def _family(metric: Metric[Any], some: Iterable[Reading]) -> Family:
    name, help_text, labels = metric.name, metric.help, metric.labels
    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(name, help_text, labels=labels)
        for _, at, value in some:
            assert isinstance(value, Buckets)  # by readings
            histogram.add_metric(at, [(_bound(each), count) for each, count in value.counts], value.total)
        return histogram
    if metric.kind == "info":
        info = InfoMetricFamily(name, help_text, labels=labels)
        for _, at, value in some:
            assert isinstance(value, dict)  # as above
            info.add_metric(at, value)
        return info
    family = (CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily)(
        name, help_text, labels=labels
    )
    for _, at, value in some:
        assert isinstance(value, int | float)  # as above
        family.add_metric(at, value)
    return family


def _bound(seconds: float) -> str:
    return "+Inf" if seconds == float("inf") else repr(seconds)
