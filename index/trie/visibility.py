"""Visibility: values that only some handlers see, depending on the paths at which these capture.

The source restricts an assertion to handlers whose capture paths are within given ones (HOWITWORKS).  A
restricted value is in the tables like any other, under a key that includes its restriction; only the handlers
of a leaf are checked one by one.  Restricted values are rare, so this code is written for brevity and not for
speed.

Always: a handler counts a restricted value if and only if the handler captures within the value's paths.
"""

from __future__ import annotations

from index.patterns.events import Restricted, Visible
from index.trie.nodes import At, News, Node
from index.values.positions import MISSING
from index.values.values import Value


def appear(visible: dict[At, Visible], at: At, entry: Restricted, nodes: list[Node], news: News) -> None:
    """Files a restricted value in all nodes that it reaches."""
    visible[at] = entry.paths
    value = entry.value
    for node in nodes:
        node.values[at] = value
        for group in node.each:
            place = group.place(value)
            if place is MISSING:
                continue
            leaf = group.leaves.get(place)
            if leaf is None:
                group.rest(at, place, node.values)
                continue
            leaf.values[at] = value
            for handler in leaf.handlers:
                if handler.code.paths <= entry.paths:
                    handler.gain(handler, value, news)


def vanish(visible: dict[At, Visible], at: At, value: Value, nodes: list[Node], news: News) -> None:
    """Takes a restricted value out of all nodes that it reached."""
    paths = visible.pop(at)
    for node in nodes:
        node.values.pop(at, None)  # already removed from the root's table
        for group in node.each:
            place = group.place(value)
            if place is MISSING:
                continue
            leaf = group.leaves.get(place)
            if leaf is None:
                group.rouse(at, place)
                continue
            del leaf.values[at]
            for handler in leaf.handlers:
                if handler.code.paths <= paths:
                    handler.lose(handler, value, news)


def collect(value: Value, paths: Visible | None, nodes: list[Node], news: News) -> None:
    """Adds to ``news`` the handlers that a message concerns; those within ``paths`` if it is restricted."""
    for node in nodes:
        for group in node.each:
            leaf = group.leaves.get(group.place(value))
            if leaf is not None:
                for handler in leaf.handlers:
                    row = handler.row(value, paths)
                    if row is not None:
                        news.append((handler, row))
