"""Fillings: handlers that are installed in steps, while values go on to come and go.

The first handler for a set of positions needs a look at all values that may be concerned, some microseconds
for each.  So a filling installs the handler empty, with the nodes, group and leaf that lead to it: from then
on new values are filed there like in all other places.  Earlier values are *pending*, and are filed a few at
a time.

Always: each value is filed in the new places or pending; a pending value is filed before it is removed, so
that its removal finds it at its place; nothing reads the new places until nothing is pending.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from index.patterns.skeletons import Skeleton
from index.trie.nodes import At, Group, Handler, News, Node, Values
from index.values.positions import Class, Path, class_of, project
from index.values.values import COMPILED, Value


class Filling:
    """One handler that is being filled.

    ``nodes`` are the new nodes, each with the class that values have at a path; ``group`` is the new group,
    or None if only the handler is new.
    """

    __slots__ = ("_group", "_nodes", "_order", "_pending", "_values", "handler", "skeleton")

    def __init__(
        self,
        skeleton: Skeleton,
        handler: Handler,
        group: Group | None,
        nodes: list[tuple[Path, Class, Node]],
        values: Values,
        before: Values,
    ) -> None:
        """``values`` are the values of the group's node; ``before`` is copied: the earlier values that are
        to be filed."""
        self.skeleton: Final = skeleton
        self.handler: Final = handler
        self._group: Final = group
        self._nodes: Final = nodes
        self._values: Final = values
        self._pending: Final = before.copy()
        self._order: Iterator[At] | None = (
            None  # made by the first step, as either copy takes 2 ms for 300 000
        )

    def __len__(self) -> int:
        """Returns how many values are pending."""
        return len(self._pending)

    def concerns(self, way: list[Node], group: Group | None, handler: Handler | None) -> bool:
        """True if nodes, a group or a handler are among the new places, or reached through them."""
        if self._nodes:
            return self._nodes[0][2] in way
        return group is self._group if self._group is not None else handler is self.handler

    def fill(self, count: int) -> bool:
        """Files up to so many values, the oldest first; True if none is pending any more."""
        pending = self._pending
        if self._order is None:
            self._order = iter(list(pending))  # rows stay in the order in which their values appeared
        while pending and count > 0:
            at = next(self._order)
            if at in pending:
                self._file(at, pending.pop(at))
                count -= 1
        return not pending

    def take(self, at: At) -> None:
        """Files a value that is about to be removed, if it is pending; O(1)."""
        if at in self._pending:
            self._file(at, self._pending.pop(at))

    def stop(self) -> None:
        """Notes that the places are filled in another way, or gone."""
        self._pending.clear()

    def _file(self, at: At, value: Value) -> None:
        for path, of_class, node in self._nodes:
            if class_of(project(value, path)) != of_class:
                return
            node.values[at] = value
        news: News = []  # nobody is called yet
        group = self._group
        if group is None:
            row = self.handler.row(value, None)
            if row is not None:
                self.handler.add(row)
        elif COMPILED:
            group.walk_in(at, value, self._values, news)
        else:
            group.file(group, at, value, self._values, news)
