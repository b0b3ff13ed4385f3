"""The cluster as a member counts it, for metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from server.parts import PartKey


@dataclass(frozen=True, slots=True)
class ClusterFigures:
    """Counts of the members of a cluster, and its leaders, as seen last; nothing outside of one."""

    members: int = 0
    """Members whose lease lasts."""
    gone: int = 0
    """Members whose lease has run out within the last day."""
    differing: int = 0
    """Members with other settings than this daemon."""
    terms: Mapping[str, int] = field(default_factory=dict)
    """The term of each space."""
    led: Mapping[str, int] = field(default_factory=dict)
    """1 for each space that a living member leads, 0 for others."""


class ClusterView:
    """The cluster as this daemon has seen it last."""

    def __init__(self) -> None:
        self.figures = ClusterFigures()


CLUSTER: Final = PartKey[ClusterView]("cluster")
