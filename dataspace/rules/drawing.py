"""Drawing: a graph of operators as the source draws it, for mermaid.

Strata are boxes, a handoff stands between the boxes where data waits, an edge into an input that blocks is
red and ends in a cross, and what arrives a tick later is dotted.

Always: the same graph gives the same text.
"""

from __future__ import annotations

from collections.abc import Mapping

from dataspace.rules.graphs import Edge, Graph, Strata


def mermaid(graph: Graph, strata: Strata, kinds: Mapping[str, str] | None = None) -> str:
    """The text of a mermaid flowchart; ``kinds`` says of what kind a node is, where its name does not."""
    number = {name: at for at, name in enumerate(graph.nodes, start=1)}
    lines = ["flowchart LR"]
    for stratum in range(strata.count):
        lines.append(f'    subgraph s{stratum}["stratum {stratum}"]')
        for members in strata.members(stratum):
            lines += [f'        n{number[name]}["{_shown(name, kinds)}"]' for name in members]
        lines.append("    end")
    blocking: list[int] = []
    links, handoffs = 0, set(strata.handoffs)
    for at, edge in enumerate(graph.edges):
        for link in _links(at, edge, number, edge in handoffs):
            lines.append(f"    {link}")
            links += 1
        if edge.blocking:
            blocking.append(links - 1)
    if blocking:
        lines.append(f"    linkStyle {','.join(map(str, blocking))} stroke:red")
    return "\n".join(lines) + "\n"


def _links(at: int, edge: Edge, number: Mapping[str, int], is_handoff: bool) -> list[str]:
    start, end = f"n{number[edge.source]}", f"n{number[edge.target]}"
    label = f"|{edge.port}|" if edge.port else ""
    if not is_handoff:
        return [f"{start} -->{label} {end}"]
    arrow = "-.->" if edge.delayed else ("--x" if edge.blocking else "-->")
    return [f'{start} --> h{at}(["handoff"])', f"h{at} {arrow}{label} {end}"]


def _shown(name: str, kinds: Mapping[str, str] | None) -> str:
    kind = (kinds or {}).get(name, "")
    text = f"{name.strip()}: {kind}" if kind and not name.startswith(kind) else name.strip()
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
