"""Flows: operators in a graph, run tick by tick, stratum by stratum; pure."""
