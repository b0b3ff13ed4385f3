"""The cluster as a member counts it, for metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import TYPE_CHECKING, Final

from server.parts import PartKey

if TYPE_CHECKING:
    from server.cluster.database.store import StoreHome


@dataclass(frozen=True, slots=True)
class ClusterFigures:
    """Counts of the members of a cluster, and its leaders, as seen last; nothing outside of one."""

    members: int = 0
    """Members whose lease lasts."""
    gone: int = 0
    """Members whose lease has run out within the last day."""
    drained: int = 0
    """Daemons that an operator has drained."""
    differing: int = 0
    """Members with other settings than this daemon."""
    terms: Mapping[str, int] = field(default_factory=dict)
    """The term of each space."""
    led: Mapping[str, int] = field(default_factory=dict)
    """1 for each space that a living member leads, 0 for others."""
    silence: float = 0.0
    """Seconds since the store answered."""
    is_durable: bool = True
    """True if a failover of the database keeps all acknowledged turns."""
    is_sure: bool = True
    """False while another daemon may lead what this one leads."""
    late: int = 0
    """How often the last third of the lease had begun before it was renewed."""


class ClusterView:
    """The cluster as this daemon has seen it last."""

    def __init__(self) -> None:
        self._seen = ClusterFigures()
        self._home: StoreHome | None = None
        self._answered = 0.0

    def begin(self, home: StoreHome) -> None:
        """Begins to look at a store, which has just answered."""
        self._home, self._answered = home, monotonic()

    def note(self, seen: ClusterFigures) -> None:
        """Notes what the store has answered."""
        self._seen, self._answered = seen, monotonic()

    def figures(self) -> ClusterFigures:
        """Returns the figures of now; the members and leaders are those that were seen last."""
        if self._home is None:
            return self._seen
        lease = self._home.lease
        return replace(
            self._seen,
            silence=monotonic() - self._answered,
            is_durable=lease.durability is None or lease.durability.holds,
            is_sure=self._home.is_sure(),
            late=lease.late,
        )


CLUSTER: Final = PartKey[ClusterView]("cluster")
