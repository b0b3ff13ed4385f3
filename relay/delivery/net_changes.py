"""Net changes: many epochs as one, for an observer that could not take them one by one.

Always: a row that came and went again, or the reverse, is not in it; messages are, all of them, in order.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from dataspace.kernel.actions import CONFLATED
from dataspace.kernel.changes import Captures, Changes
from index.values.values import keys


class NetChange:
    """The net changes of the epochs from ``first`` on: rows that came or went, and all messages.

    A row is absent, came or went, as it was seen by one observer; ``RowCounts`` of the log counts the facts
    behind each row, so the two are not one class.
    """

    __slots__ = ("epochs", "first", "messages", "net", "number", "time")

    def __init__(self, first: int) -> None:
        self.first = first
        self.number = first
        self.time = 0
        self.epochs = 0
        self.net: dict[Hashable, tuple[bool, Captures]] = {}
        self.messages: list[Captures] = []

    def fold(self, changes: Changes) -> None:
        """Adds one more epoch; O(its changes)."""
        self.number, self.time = changes.number, changes.time
        self.epochs += 1
        for row in changes.added:
            self._turn(row, came=True)
        self.messages.extend(changes.messages)
        for row in changes.removed:
            self._turn(row, came=False)

    def _turn(self, row: Captures, *, came: bool) -> None:
        """Adds a row, or removes it if it is there: a row that comes and goes again leaves no change."""
        at = keys(row)
        if self.net.pop(at, None) is None:
            self.net[at] = (came, row)

    def __len__(self) -> int:
        return len(self.net) + len(self.messages)

    def changes(self) -> Changes:
        """Returns the net changes as one stream value."""
        rows = self.net.values()
        return Changes(
            self.number,
            self.time,
            [row for came, row in rows if came],
            self.messages,
            [row for came, row in rows if not came],
            flags=CONFLATED,
            first=self.first,
        )


def net_of(epochs: Sequence[Changes]) -> Changes:
    """Returns the net changes of some epochs in order, at least one; O(their changes)."""
    net = NetChange(epochs[0].first)
    for each in epochs:
        net.fold(each)
    return net.changes()
