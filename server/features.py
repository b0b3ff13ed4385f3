"""A feature: what a capability adds to the daemon, as one record.

The daemon has a list of them (``server/daemon/features.py``).  It makes their parts once it has its spaces,
joins their verbs, begins their tasks and asks for their rows of the status and their metrics; it knows no
more of them.  A feature that a daemon is not configured for begins no task.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

from server.metrics import Metric
from server.sessions.requests import Verb
from server.sessions.state import DaemonState
from server.spaces.keeping import DAEMON

if TYPE_CHECKING:
    from server.spaces.space import HostedSpace

Figures = TypeVar("Figures")


class DaemonTask(NamedTuple):
    """What runs until the daemon ends; begun again after a defect in it (``keep``)."""

    name: str
    """For the line about a defect, in the plural."""
    run: Callable[[], Awaitable[None]]
    space: str = DAEMON
    """The space that it is for, if it is for one."""


Status: TypeAlias = "Callable[[DaemonState, HostedSpace], Mapping[str, object]]"


@dataclass(frozen=True, slots=True)
class Measured(Generic[Figures]):
    """Metrics with the function that collects the figures which they read, once for each scrape."""

    figures: Callable[[DaemonState], Figures]
    metrics: tuple[Metric[Figures], ...]


@dataclass(frozen=True, slots=True)
class MeasuredSpaces(Generic[Figures]):
    """The same for each space; the last label of each metric before its own is the space."""

    figures: Callable[[HostedSpace], Figures]
    metrics: tuple[Metric[Figures], ...]


def _nothing(_daemon: DaemonState) -> None:
    pass


def _joins_nothing(_daemon: DaemonState, _hosted: HostedSpace) -> None:
    pass


def _none(_daemon: DaemonState) -> Sequence[DaemonTask]:
    return ()


def _no_verbs(_daemon: DaemonState) -> Mapping[str, Verb]:
    return {}


def _not_led(_daemon: DaemonState, _spaces: Sequence[HostedSpace]) -> Sequence[DaemonTask]:
    return ()


def _no_rows(_daemon: DaemonState, _hosted: HostedSpace) -> Mapping[str, object]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """What one capability adds to a daemon."""

    name: str
    make: Callable[[DaemonState], None] = _nothing
    """Adds its parts to the state, which has its spaces."""
    joins: Callable[[DaemonState, HostedSpace], None] = _joins_nothing
    """Adds to a space what the feature does there: to each after ``make``, and to one that follows anew."""
    verbs: Callable[[DaemonState], Mapping[str, Verb]] = _no_verbs
    """Returns its requests, by the names that they have on the wire."""
    tasks: Callable[[DaemonState], Iterable[DaemonTask]] = _none
    leads: Callable[[DaemonState, Sequence[HostedSpace]], Iterable[DaemonTask]] = _not_led
    """Returns what runs from when the daemon leads these spaces; may begin what ends by itself."""
    status: Status = _no_rows
    """Returns its rows of ``dataspace status`` for one space."""
    inspected: frozenset[str] = frozenset()
    """Those of them that are shown only to bearers that may inspect the daemon."""
    metrics: Measured[Any] | None = None
    space_metrics: MeasuredSpaces[Any] | None = None
