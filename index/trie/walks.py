"""Walks: which nodes of the trie does a value reach?

The one traversal of the source's ``modify``, without what is done on the way: additions, removals and
messages all ask for the nodes and go on from there.  A walk loops rather than recurses, so the depth of
values and patterns is no matter of the interpreter's stack.  Records labelled by text, the most frequent
structure by far, are looked at without a call.

Always: a walk gives each node once, and exactly those whose shape the value has.
"""

from __future__ import annotations

from typing import TypeAlias

from index.trie.nodes import Node
from index.values.positions import class_of, step
from index.values.values import Record, Value

Trail: TypeAlias = tuple[Value, ...]
"""A part of a value, what that is in, and so on up to the value: what moves rootward go back on."""


def reached(top: Node, value: Value) -> list[Node]:
    """The nodes below the root whose shape a value has, given the first of them; O(moves tried)."""
    nodes = [top]
    waiting: list[tuple[Node, Trail]] = [(top, (value,))]
    while waiting:
        node, trail = waiting.pop()
        for (up, (by,)), table in node.moves.items():
            above = trail[up:] if up else trail
            whole = above[0]
            if type(whole) is Record and type(by) is int:
                fields = whole.fields
                if by >= len(fields):
                    continue
                part = fields[by]
            else:
                part = step(whole, by)  # type: ignore[assignment]  # MISSING has no class
            if type(part) is Record and type(part.label) is str:
                below = table.get(part.label)
            else:
                below = table.get(class_of(part))
            if below is not None:
                nodes.append(below)
                if below.moves:
                    waiting.append((below, (part, *above)))
    return nodes
