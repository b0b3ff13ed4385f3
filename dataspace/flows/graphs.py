"""Graphs: which operators feed which, and in what order must they run?

The source ("Technical Details") puts a *handoff* in front of every input that blocks, calls the parts between
handoffs *strata*, refuses cycles through a handoff and numbers the rest so that data flows upwards. Flows and
rules are both such graphs, so this file serves both, and does not depend on what operators do.

Always: an edge leads to a stratum that is not lower, a blocking edge to a higher stratum; a delayed edge
(into the following tick) orders nothing; a blocking edge within a cycle is refused, and the error names the
whole cycle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from index.errors import UsageError

N = TypeVar("N", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge: data flows from ``source`` to the input ``port`` of ``target``.

    ``blocking``: the port waits for all of its input in the tick.  ``delayed``: the data arrives a tick
    later.
    """

    source: str
    target: str
    port: str = ""
    blocking: bool = False
    delayed: bool = False


class BlockingCycle(UsageError):
    """A cycle through an input that blocks: it would wait for itself; ``cycle`` names its members."""

    def __init__(self, cycle: Sequence[str], text: str) -> None:
        super().__init__(text)
        self.cycle = tuple(cycle)


@dataclass(frozen=True, slots=True)
class Strata:
    """An ordered graph.

    ``components`` come in an order in which each can run after the components before it; components of more
    than one member are cycles.  ``handoffs`` are the edges at which data waits for its stratum to begin.
    """

    number: dict[str, int]
    components: tuple[tuple[str, ...], ...]
    handoffs: tuple[Edge, ...]

    @property
    def count(self) -> int:
        """Returns the number of strata."""
        return max(self.number.values(), default=-1) + 1

    def members(self, stratum: int) -> list[tuple[str, ...]]:
        """Returns the components of a stratum, in the order in which they run."""
        return [each for each in self.components if self.number[each[0]] == stratum]


@dataclass(slots=True)
class Graph:
    """Operators by name, and the edges between them; edges may name operators that come later."""

    nodes: dict[str, None] = field(default_factory=dict)
    edges: list[Edge] = field(default_factory=list)

    def strata(self, way_out: str = "next_tick") -> Strata:
        """Returns the strata of this graph; raises ``BlockingCycle`` where there are none.  O(nodes + edges).

        ``way_out`` is the advice in that error.
        """
        ordering = [edge for edge in self.edges if not edge.delayed]
        onward: dict[str, list[str]] = {name: [] for name in self.nodes}
        for edge in ordering:
            onward[edge.source].append(edge.target)
        parts = components(onward)
        place = {name: at for at, members in enumerate(parts) for name in members}
        for edge in ordering:
            if edge.blocking and place[edge.source] == place[edge.target]:
                raise _refusal(edge, parts[place[edge.source]], ordering, way_out)
        number = _numbered(parts, place, ordering)
        handoffs = [
            edge
            for edge in self.edges
            if edge.delayed or edge.blocking or number[edge.source] != number[edge.target]
        ]
        return Strata(number, tuple(parts), tuple(handoffs))


def _numbered(
    components: Sequence[tuple[str, ...]], place: dict[str, int], edges: Iterable[Edge]
) -> dict[str, int]:
    """Returns the longest path to each node, counted in blocking edges."""
    into: dict[int, list[Edge]] = {}
    for edge in edges:
        into.setdefault(place[edge.target], []).append(edge)
    number: dict[str, int] = {}
    for at, members in enumerate(components):
        upstream = [number[edge.source] + edge.blocking for edge in into.get(at, ()) if edge.source in number]
        number.update(dict.fromkeys(members, max(upstream, default=0)))
    return number


def _refusal(edge: Edge, members: Sequence[str], edges: Iterable[Edge], way_out: str) -> BlockingCycle:
    way = _way(edge.target, edge.source, set(members), edges)
    text = " -> ".join(way)
    port = f" (input {edge.port!r} blocks)" if edge.port else ""
    return BlockingCycle(way, f"{text} -!-> {edge.target}: break it with {way_out}{port}")


def _way(start: str, end: str, within: set[str], edges: Iterable[Edge]) -> list[str]:
    """Returns the shortest path between two members of a cycle."""
    onward: dict[str, list[str]] = {}
    for edge in edges:
        if edge.source in within and edge.target in within:
            onward.setdefault(edge.source, []).append(edge.target)
    before: dict[str, str | None] = {start: None}
    waiting = deque([start])
    while end not in before:
        here = waiting.popleft()
        for there in onward.get(here, ()):
            if there not in before:
                before[there] = here
                waiting.append(there)
    way = [end]
    while (previous := before[way[-1]]) is not None:
        way.append(previous)
    return way[::-1]


def components(onward: Mapping[N, Sequence[N]]) -> list[tuple[N, ...]]:
    """Returns the strongly connected components, upstream first (Tarjan's algorithm, without recursion).

    ``onward`` has the nodes that each node leads to.  O(nodes + edges).
    """
    search = _Search(onward)
    for name in onward:
        search.visit(name)
    return search.found[::-1]


class _Search(Generic[N]):
    """One depth-first walk over a graph, collecting components as it leaves them."""

    def __init__(self, onward: Mapping[N, Sequence[N]]) -> None:
        self.found: list[tuple[N, ...]] = []
        self._onward = onward
        self._order: dict[N, int] = {}
        self._low: dict[N, int] = {}
        self._open: dict[N, None] = {}

    def visit(self, root: N) -> None:
        if root in self._order:
            return
        path = [(root, iter(self._enter(root)))]
        while path:
            name, rest = path[-1]
            for there in rest:
                if there not in self._order:
                    path.append((there, iter(self._enter(there))))
                    break
                if there in self._open:
                    self._low[name] = min(self._low[name], self._order[there])
            else:
                path.pop()
                self._leave(name)
                if path:
                    above = path[-1][0]
                    self._low[above] = min(self._low[above], self._low[name])

    def _enter(self, name: N) -> Sequence[N]:
        self._order[name] = self._low[name] = len(self._order)
        self._open[name] = None
        return self._onward[name]

    def _leave(self, name: N) -> None:
        if self._low[name] != self._order[name]:
            return
        members: list[N] = []
        while not members or members[-1] != name:
            members.append(self._open.popitem()[0])
        self.found.append(tuple(members[::-1]))
