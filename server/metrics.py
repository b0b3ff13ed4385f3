"""What a metric is: its name, kind and help, as Prometheus' conventions want them, and how it is read.

Always: names have base units, counters end with ``_total``; no label has values that clients choose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar

if TYPE_CHECKING:
    from relay.store.durations import Durations

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

SPACE: Final = ("space",)
"""The label of a metric that each space has."""
