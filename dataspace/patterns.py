"""Patterns: built in Python, and matched against values without a daemon."""

from index.patterns.patterns import (
    DISCARD,
    Pattern,
    Skeleton,
    capture,
    capture_names,
    discard,
    exact,
    lit,
    matcher,
    observe,
    skeleton,
)
from index.trie.trie import Event, Index, IndexStatistics, Net

__all__ = [
    "DISCARD",
    "Pattern",
    "Skeleton",
    "capture",
    "capture_names",
    "discard",
    "exact",
    "lit",
    "matcher",
    "observe",
    "skeleton",
    "Event",
    "Index",
    "IndexStatistics",
    "Net",
]
