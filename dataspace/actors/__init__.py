"""Actors: conversations in a dataspace, as facets that come and go with facts (ACTORS.md).

The kernel is pure; ``dataspace.actors.shell`` runs it on trio.
"""

from dataspace.actors.actor import Actor
from dataspace.actors.engine import Engine, EngineStatistics
from dataspace.actors.facets import Facet, Rank
from dataspace.actors.fields import Derived, Field
from dataspace.actors.homes import Home
from dataspace.actors.records import RecordOf, pattern_of, record
from dataspace.actors.rendering import mermaid, readable
from dataspace.actors.tracing import Trace, TurnRecord
from dataspace.actors.turn import Turn
from index.patterns import DISCARD, capture, lit, observe

__all__ = [
    "DISCARD",
    "Actor",
    "Derived",
    "Engine",
    "EngineStatistics",
    "Facet",
    "Field",
    "Home",
    "Rank",
    "RecordOf",
    "Trace",
    "Turn",
    "TurnRecord",
    "capture",
    "lit",
    "mermaid",
    "observe",
    "pattern_of",
    "readable",
    "record",
]
