"""The index: values, patterns over them, and who is interested in what.

``HOWITWORKS.md`` explains the algorithm, ``TEXT.md`` how values and patterns are written.
"""

from index.errors import DataspaceError, InternalError, UsageError
from index.jsons import captures_json, from_json, to_json
from index.patterns import (
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
from index.text import ParseError, parse, parse_pattern, unparse, unparse_pattern
from index.trie import Event, Index, IndexStatistics, Net
from index.values import Map, Record, Value, bounded, freeze, key, keys, order_key, same

__all__ = [
    "Value",
    "Record",
    "Map",
    "freeze",
    "bounded",
    "key",
    "keys",
    "same",
    "order_key",
    "Pattern",
    "DISCARD",
    "discard",
    "capture",
    "lit",
    "exact",
    "observe",
    "matcher",
    "capture_names",
    "Skeleton",
    "skeleton",
    "Index",
    "Event",
    "Net",
    "IndexStatistics",
    "parse",
    "parse_pattern",
    "unparse",
    "unparse_pattern",
    "ParseError",
    "to_json",
    "from_json",
    "captures_json",
    "DataspaceError",
    "UsageError",
    "InternalError",
]
