"""Rules and flows: what follows from the facts, kept up to date one tick at a time.

Two layers.  *Flows* are graphs of operators, cut into strata at the inputs that block (``graphs``,
``operators``, ``flows``).  *Rules* derive facts from facts and retract them again (``program``).
``RULES.md`` beside this file explains both.
"""

from dataspace.rules.flows import Flow
from dataspace.rules.graphs import BlockingCycle, Edge, Graph

__all__ = ["Flow", "Graph", "Edge", "BlockingCycle"]
