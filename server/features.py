"""A feature: what a capability adds to the daemon, as one record.

The daemon has a list of them (``server/daemon/features.py``).  It makes their parts once it has its spaces,
joins their verbs, streams and routes, begins their tasks and asks for their rows of the status and their
metrics; it knows no more of them.  A feature that a daemon is not configured for begins no task.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

from dataspace.wire.packets import Packet
from server.metrics import Metric
from server.sessions.feeding import Feeder
from server.sessions.peer import FeederKey
from server.sessions.requests import Verb
from server.sessions.state import DaemonState
from server.spaces.keeping import DAEMON
from server.spaces.space import MadeParts

if TYPE_CHECKING:
    from server.spaces.space import HostedSpace

Source = TypeVar("Source", "DaemonState", "HostedSpace")
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
class Measured(Generic[Source, Figures]):
    """Metrics of a daemon, or of each space, with the function that collects their figures at each scrape."""

    figures: Callable[[Source], Figures]
    metrics: tuple[Metric[Figures], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """What one capability adds to a daemon."""

    name: str
    make: Callable[[DaemonState], None] = lambda _daemon: None
    """Adds its parts to the state, which has its spaces."""
    spaces: MadeParts = ()
    """What it keeps in each space."""
    joins: Callable[[DaemonState, HostedSpace], None] = lambda _daemon, _hosted: None
    """Adds to a space what the feature does there: to each after ``make``, and to one that follows anew."""
    verbs: Callable[[DaemonState], Mapping[str, Verb]] = lambda _daemon: {}
    """Returns its requests, by the names that they have on the wire."""
    streams: Mapping[str, FeederKey[Feeder]] = field(default_factory=dict)
    """What feeds the streams that clients open, by their kinds."""
    packets: Mapping[type[Packet], FeederKey[Feeder]] = field(default_factory=dict)
    """What takes packets that are the feature's own."""
    routes: str = ""
    """The module below ``server`` with its ``ROUTES``, which a daemon without HTTP does not load."""
    relimit: Callable[[DaemonState], None] = lambda _daemon: None
    """Takes the limits that the daemon has now."""
    tasks: Callable[[DaemonState], Iterable[DaemonTask]] = lambda _daemon: ()
    """Returns what runs as long as the daemon serves, whether it leads or follows."""
    leads: Callable[[DaemonState, Sequence[HostedSpace]], Iterable[DaemonTask]] = lambda _daemon, _spaces: ()
    """Returns what runs from when the daemon leads these spaces; may begin what ends by itself."""
    status: Status = lambda _daemon, _hosted: {}
    """Returns its rows of ``dataspace status`` for one space."""
    inspected: frozenset[str] = frozenset()
    """Those of them that are shown only to bearers that may inspect the daemon."""
    metrics: Measured[DaemonState, Any] | None = None
    space_metrics: Measured[HostedSpace, Any] | None = None
    """Their labels are the space, and then their own."""
