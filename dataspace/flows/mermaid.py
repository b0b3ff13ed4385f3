"""Drawing: a graph of operators as the source draws it, for mermaid.

Strata are boxes, a handoff stands between the boxes where data waits, an edge into an input that blocks is
red and ends in a cross, and what arrives a tick later is dotted.

Always: the same graph gives the same text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dataspace.flows.graphs import Edge, Graph, Strata


@dataclass(frozen=True, slots=True)
class DiagramPart:
    """A graph in a drawing; ``kinds`` has the kind of a node, where its name does not state it."""

    title: str
    graph: Graph
    strata: Strata
    kinds: Mapping[str, str] | None = None


def mermaid(*parts: DiagramPart) -> str:
    """Returns the text of a mermaid flowchart of graphs that are not connected."""
    lines = ["flowchart LR"]
    blocking: list[int] = []
    links = 0
    for at, part in enumerate(parts):
        prefix = f"p{at}" if at else ""
        lines += _boxes(part, prefix)
        for link, blocks in _edges(part, prefix):
            lines.append(f"    {link}")
            if blocks:
                blocking.append(links)
            links += 1
    if blocking:
        lines.append(f"    linkStyle {','.join(map(str, blocking))} stroke:red")
    return "\n".join(lines) + "\n"


def rows(*parts: DiagramPart) -> Iterator[dict[str, str | int | bool]]:
    """Yields the same for programs: a row for each node with its stratum, then one for each edge.

    Names of nodes are as drawn, and differ within one graph; ``part`` counts the graphs.
    """
    for at, part in enumerate(parts):
        for name in part.graph.nodes:
            kind = (part.kinds or {}).get(name, "")
            stratum = part.strata.number[name]
            yield {"part": at, "title": part.title, "node": name, "kind": kind, "stratum": stratum}
    for at, part in enumerate(parts):
        handoffs = set(part.strata.handoffs)
        for edge in part.graph.edges:
            ends: dict[str, str | int | bool] = {"part": at, "from": edge.source, "to": edge.target}
            how = {"blocking": edge.blocking, "delayed": edge.delayed, "handoff": edge in handoffs}
            yield ends | {"port": edge.port} | how


def _numbers(part: DiagramPart, prefix: str) -> dict[str, str]:
    return {name: f"{prefix}n{at}" for at, name in enumerate(part.graph.nodes, start=1)}


def _boxes(part: DiagramPart, prefix: str) -> Iterator[str]:
    """Yields the strata with their members."""
    number = _numbers(part, prefix)
    title = _escaped(part.title)
    for stratum in range(part.strata.count):
        yield f'    subgraph {prefix}s{stratum}["{title}stratum {stratum}"]'
        for members in part.strata.members(stratum):
            yield from [f'        {number[name]}["{_shown(name, part.kinds)}"]' for name in members]
        yield "    end"


def _edges(part: DiagramPart, prefix: str) -> Iterator[tuple[str, bool]]:
    """Yields the links, each with True if it leads into an input that blocks."""
    number, handoffs = _numbers(part, prefix), set(part.strata.handoffs)
    for at, edge in enumerate(part.graph.edges):
        *before, last = _links(f"{prefix}h{at}", edge, number, edge in handoffs)
        yield from [(link, False) for link in before]
        yield last, edge.blocking


def _links(handoff: str, edge: Edge, number: Mapping[str, str], is_handoff: bool) -> list[str]:
    start, end = number[edge.source], number[edge.target]
    label = f"|{edge.port}|" if edge.port else ""
    if not is_handoff:
        return [f"{start} -->{label} {end}"]
    arrow = "-.->" if edge.delayed else ("--x" if edge.blocking else "-->")
    return [f'{start} --> {handoff}(["handoff"])', f"{handoff} {arrow}{label} {end}"]


def _shown(name: str, kinds: Mapping[str, str] | None) -> str:
    kind = (kinds or {}).get(name, "")
    text = f"{name.strip()}: {kind}" if kind and not name.startswith(kind) else name.strip()
    return _escaped(text)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
