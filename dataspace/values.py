"""Values: records, maps, and what makes two values the same."""

from dataspace.facts import literal
from index.values.freezing import bounded, freeze
from index.values.jsons import captures_json, from_json, to_json
from index.values.values import Map, Record, Value, key, keys, order_key, same

__all__ = [
    "Map",
    "Record",
    "Value",
    "bounded",
    "freeze",
    "key",
    "keys",
    "order_key",
    "same",
    "captures_json",
    "from_json",
    "to_json",
    "literal",
]
