"""Actors: conversations in a dataspace, as facets that start and stop with facts (ACTORS.md).

The engine is pure; ``dataspace.running.actors`` runs it on trio.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataspace.faces import face

if TYPE_CHECKING:
    from dataspace.actors.engine.actors import Actor as Actor, ActorSpace as ActorSpace, Facet as Facet
    from dataspace.actors.engine.endpoints import Rank as Rank
    from dataspace.actors.engine.engine import Engine as Engine, EngineStatistics as EngineStatistics
    from dataspace.actors.engine.fields import DerivedField as DerivedField, Field as Field
    from dataspace.actors.engine.records import (
        RecordOf as RecordOf,
        pattern_of as pattern_of,
        record as record,
    )
    from dataspace.actors.engine.tracing import Trace as Trace, TurnRecord as TurnRecord
    from dataspace.actors.engine.turns import Turn as Turn
    from dataspace.actors.rendering import mermaid as mermaid, readable as readable
    from index.patterns.patterns import DISCARD as DISCARD, capture as capture, lit as lit, observe as observe

__all__, __getattr__ = face(
    __name__,
    {
        "dataspace.actors.engine.actors": "Actor ActorSpace Facet",
        "dataspace.actors.engine.endpoints": "Rank",
        "dataspace.actors.engine.engine": "Engine EngineStatistics",
        "dataspace.actors.engine.fields": "DerivedField Field",
        "dataspace.actors.engine.records": "RecordOf pattern_of record",
        "dataspace.actors.rendering": "mermaid readable",
        "dataspace.actors.engine.tracing": "Trace TurnRecord",
        "dataspace.actors.engine.turns": "Turn",
        "index.patterns.patterns": "DISCARD capture lit observe",
    },
)
