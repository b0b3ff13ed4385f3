"""Figures of the cluster and of archives, which metrics read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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


@dataclass(frozen=True, slots=True)
class ArchiveLag:
    """How far the archive of a space is behind its log: epochs on disk that it lacks, the age of its newest
    epoch in seconds if it lacks any, whether archiving fails now, how many completed epochs of durable
    topics, which stand with ``main``, their archives lack.

    Then how many erasures wait, when something was erased last (microseconds since 1970, 0 for never), how
    many ranges and bytes the archive has, and how many of its ranges wait to be merged.
    """

    epochs: int
    seconds: float
    fails: bool
    topic_epochs: int = 0
    erasures: int = 0
    erased_at: int = 0
    ranges: int = 0
    bytes: int = 0
    to_merge: int = 0
