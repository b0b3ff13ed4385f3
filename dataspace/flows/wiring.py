"""Wiring: the graph of a flow as it is written: operators by name, and the edges between them.

Names may be used before they are defined, and edges added in any order, so nothing is checked before the
whole graph is needed.  It is apart from ``flows``, which runs the graph, because the interface that adds to
it (``fluent``) does not depend on running it.

Always: a graph that was checked has every input connected, by as many edges as the input takes; a graph that
has run is no longer changed.
"""

from __future__ import annotations

from collections.abc import Iterable

from dataspace.flows.graphs import Edge, Graph, Strata
from dataspace.flows.mermaid import DiagramPart, mermaid
from dataspace.flows.operators import Operator, Port
from dataspace.flows.outputs import Outcome
from index.errors import UsageError


class Wiring:
    """Operators and the edges between them; ``outcome`` collects what its outputs assert and send."""

    def __init__(self) -> None:
        self.operators: dict[str, Operator] = {}
        self.kinds: dict[str, str] = {}
        self.edges: list[tuple[Edge, str]] = []
        self.outcome = Outcome()
        self.time = 0
        """The time of the present tick, in microseconds since 1970; it never goes back."""
        self._is_fixed = False

    def place(self, kind: str, operator: Operator, name: str | None = None) -> str:
        """Adds an operator without connections; returns its name.  Raises ``UsageError`` for one in use."""
        self._refuse_if_fixed()
        name = name or f"{kind}-{len(self.operators) + 1}"
        if name in self.operators:
            raise UsageError(f"the name {name!r} is taken by a {self.kinds[name]}")
        self.operators[name] = operator
        self.kinds[name] = kind
        return name

    def lead(self, source: str, output: str, target: str, port: str) -> None:
        """Connects an output of one operator to an input of another; both may be added later."""
        self._refuse_if_fixed()
        self.edges.append((Edge(source, target, port), output))

    def operator(self, name: str) -> Operator:
        """Returns the operator of a name; raises ``UsageError`` where there is none."""
        if name not in self.operators:
            raise UsageError(f"no stage is named {name!r}")
        return self.operators[name]

    def _refuse_if_fixed(self) -> None:
        if self._is_fixed:
            raise UsageError("this flow has run: its graph is fixed")

    # -- the graph ------------------------------------------------------------------------------------

    def graph(self) -> Graph:
        """Returns the present graph; raises ``UsageError`` for unknown names and ports, and for unconnected
        ones."""
        return Graph(dict.fromkeys(self.operators), [edge for edge, _ in self.checked()])

    def strata(self) -> Strata:
        """Returns the strata of the graph; raises ``BlockingCycle`` where there are none."""
        return self.graph().strata()

    def mermaid(self) -> str:
        """Returns the graph as a mermaid drawing: strata as boxes, handoffs between them, blocking inputs
        crossed."""
        return mermaid(self.part())

    def part(self, title: str = "") -> DiagramPart:
        """Returns the graph as a part of a drawing."""
        graph = self.graph()
        return DiagramPart(title, graph, graph.strata(), self.kinds)

    def checked(self) -> list[tuple[Edge, str]]:
        """Returns the edges, each with the kind of its input and the output that it comes from."""
        checked = [self._checked_edge(edge, output) for edge, output in self.edges]
        ended: dict[tuple[str, str], int] = {}
        for edge, _ in checked:
            ended[edge.target, edge.port] = ended.get((edge.target, edge.port), 0) + 1
        for name, operator in self.operators.items():
            for port in operator.inputs:
                self._check_port(name, port, ended.get((name, port.name), 0))
        return checked

    def _checked_edge(self, edge: Edge, output: str) -> tuple[Edge, str]:
        source, target = self.operator(edge.source), self.operator(edge.target)
        outputs = getattr(source, "names", source.outputs)
        if output not in outputs:
            raise UsageError(f"{self.kinds[edge.source]} has no output {output!r}, {_allowed(outputs)}")
        ports = {port.name: port for port in target.inputs}
        if edge.port not in ports:
            raise UsageError(f"{self.kinds[edge.target]} has no input {edge.port!r}, {_allowed(ports)}")
        blocking = ports[edge.port].blocking
        return Edge(edge.source, edge.target, edge.port, blocking, target.delays), output

    def _check_port(self, name: str, port: Port, edges: int) -> None:
        what = f"{self.kinds[name]} {name!r}" + (f", input {port.name!r}" if port.name else "")
        if not edges:
            raise UsageError(f"nothing is connected to {what}")
        if edges > 1 and not port.many:
            raise UsageError(f"{edges} stages are connected to {what}: join them with union first")


def _allowed(names: Iterable[str]) -> str:
    known = [repr(name) for name in names]
    return f"it has {', '.join(known)}" if known and known != ["''"] else "it has one without a name"
