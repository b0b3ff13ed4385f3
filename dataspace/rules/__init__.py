"""Rules and flows: what follows from the facts, kept up to date one tick at a time (RULES.md).

A *rule* derives facts from facts and retracts them again.  A *flow* is a graph of operators; rules are
carried out on the strata of such graphs, which are in ``dataspace.flows``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataspace.faces import face

if TYPE_CHECKING:
    from dataspace.flows.flows import Flow as Flow
    from dataspace.flows.graphs import BlockingCycle as BlockingCycle, Edge as Edge, Graph as Graph
    from dataspace.rules.engine.program import Program as Program
    from dataspace.rules.language.parser import read_rule as read_rule, read_rules as read_rules

__all__, __getattr__ = face(
    __name__,
    {
        "dataspace.flows.flows": "Flow",
        "dataspace.flows.graphs": "BlockingCycle Edge Graph",
        "dataspace.rules.engine.program": "Program",
        "dataspace.rules.language.parser": "read_rule read_rules",
    },
)
