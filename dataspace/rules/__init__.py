"""Rules and flows: what follows from the facts, kept up to date one tick at a time.

Two layers.  *Flows* are graphs of operators, cut into strata at the inputs that block (``graphs``,
``operators``, ``flows``).  *Rules* derive facts from facts and retract them again (``program``).
``RULES.md`` above this folder explains both.
"""

from dataspace.rules.flows import Flow
from dataspace.rules.graphs import BlockingCycle, Edge, Graph
from dataspace.rules.program import Program
from dataspace.rules.reading import read_rule, read_rules

__all__ = ["Program", "read_rule", "read_rules", "Flow", "Graph", "Edge", "BlockingCycle"]
