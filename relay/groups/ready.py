"""Items that are ready to be handed out: the oldest first, or those of the highest level.

Where items have levels, those of the highest are first, and of these the oldest; but of ``TURNS`` hand-outs
one gets the oldest item of all, so that an item of a low level waits a bounded number of hand-outs.

Always: an item that is ready is here by the rank that it has, or is kept for the member that has earlier
items of its key.  Its rank only rises while it waits: it is here again then, and its other entry comes late.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final

from relay.groups.members import Rank
from relay.groups.state import At, Item

TURNS: Final = 16
"""Hand-outs of which one gets the oldest item of all."""

SPARE: Final = 64
"""Entries beyond twice those that were right at the last look, after which entries are looked through."""


class ReadyItems:
    """The ready items of a group; ``level_of`` returns the level of an item now, where items have levels.

    ``is_ready`` is false for an item that was handed out, is done, or waits.
    """

    __slots__ = ("_again", "_fresh", "_is_ready", "_level_of", "_most", "_oldest", "_turn")

    def __init__(
        self, is_ready: Callable[[Item], bool], level_of: Callable[[Item], int] | None = None
    ) -> None:
        self._is_ready = is_ready
        self._level_of = level_of
        self._fresh: deque[tuple[At, Item]] = deque()
        """Items in the order of the log, each as it came; where there are levels, none."""
        self._again: list[tuple[Rank, Item]] = []
        """Items that are ready again, or have a level or a key: a heap."""
        self._oldest: list[tuple[At, Item]] = []
        """The same, where there are levels, by their names alone."""
        self._turn = 0
        """Hand-outs since the last one of the oldest of all."""
        self._most = SPARE

    def __len__(self) -> int:
        """About how many are ready."""
        return len(self._fresh) + len(self._again)

    def add(self, item: Item) -> None:
        """Adds an item without a key; O(1) if it is later than all others and has no level."""
        if self._level_of is None and (not self._fresh or self._fresh[-1][0] < item.at):
            self._fresh.append((item.at, item))
        else:
            self.add_again(item)

    def add_again(self, item: Item) -> None:
        """Adds an item wherever its place is; O(log items)."""
        heappush(self._again, (self.rank(item), item))
        if self._level_of is not None:
            heappush(self._oldest, (item.at, item))
            if len(self._again) + len(self._oldest) > self._most:
                self._tidy()

    def rank(self, item: Item) -> Rank:
        """Returns what items are ordered by, the lowest first."""
        return item.at if self._level_of is None else (-self._level_of(item), *item.at)

    def _tidy(self) -> None:
        """Removes entries that are no longer right: what one order has handed out stays in the other."""
        ready = {item.at: item for _, item in self._again if self._is_ready(item)}
        self._again = [(self.rank(item), item) for item in ready.values()]
        self._oldest = [(item.at, item) for item in ready.values()]
        heapify(self._again)
        heapify(self._oldest)
        self._most = 4 * len(ready) + SPARE

    def pop(self, keyed: list[tuple[Rank, Item]]) -> Item | None:
        """Removes the first item of these and of those kept for one member, and returns it; None if there is
        none.  It may be one that is not ready."""
        if self._level_of is not None:
            return self._pop_oldest(keyed) if self._turn >= TURNS - 1 else self._pop_highest(keyed)
        fresh, again = self._fresh, self._again
        if keyed and not (fresh and fresh[0] < keyed[0]) and not (again and again[0] < keyed[0]):
            return heappop(keyed)[1]
        if again and not (fresh and fresh[0] < again[0]):
            return heappop(again)[1]
        return fresh.popleft()[1] if fresh else None

    def _pop_highest(self, keyed: list[tuple[Rank, Item]]) -> Item | None:
        again = self._again
        if not keyed and not again:
            return None
        return heappop(keyed if keyed and not (again and again[0] < keyed[0]) else again)[1]

    def _pop_oldest(self, keyed: list[tuple[Rank, Item]]) -> Item | None:
        oldest = self._oldest
        while oldest and not self._is_ready(oldest[0][1]):
            heappop(oldest)
        mine = min((entry for entry in keyed if self._is_ready(entry[1])), key=_name, default=None)
        if mine is not None and not (oldest and oldest[0][0] < mine[1].at):
            keyed.remove(mine)
            heapify(keyed)
            return mine[1]
        return heappop(oldest)[1] if oldest else None

    def handed_out(self) -> None:
        """Notes that an item with a level was handed out."""
        self._turn = (self._turn + 1) % TURNS


def _name(entry: tuple[Rank, Item]) -> At:
    return entry[1].at
