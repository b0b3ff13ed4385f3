"""The items of one key, which are worked on in order by one member at a time.

Always: the items that are out are the oldest of their key, and are all out to one member.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator

from relay.groups.members import GroupMember
from relay.groups.state import At, Item


class KeyQueue:
    """The undone items of one key, in order: the first of them are ``out``, to ``member``; the others wait.

    Ordered tables: an item in the middle is removed in O(1), since clients choose what ends first.
    """

    __slots__ = ("levels", "member", "out", "waiting")

    def __init__(self) -> None:
        self.out: OrderedDict[At, Item] = OrderedDict()
        self.waiting: OrderedDict[At, Item] = OrderedDict()
        self.member: GroupMember | None = None
        self.levels: Counter[int] = Counter()
        """How many items wait of each level above 0."""

    def __len__(self) -> int:
        return len(self.out) + len(self.waiting)

    @property
    def head(self) -> Item | None:
        """The first item that is not out."""
        return next(iter(self.waiting.values()), None)

    @property
    def level(self) -> int:
        """The highest level of the items that wait, which the first of them has in their place; O(levels)."""
        return max(self.levels, default=0)

    def add(self, item: Item) -> None:
        """Adds an item behind the others."""
        self.waiting[item.at] = item
        if item.level:
            self.levels[item.level] += 1

    def _remove(self, item: Item) -> None:
        del self.waiting[item.at]
        if item.level:
            self.levels[item.level] -= 1
            if not self.levels[item.level]:
                del self.levels[item.level]

    def in_order(self) -> Iterator[Item]:
        """Yields all items, the first first."""
        yield from self.out.values()
        yield from self.waiting.values()

    def hand_out(self, item: Item, member: GroupMember) -> None:
        """Notes that the first item that waits is out to a member."""
        self._remove(item)
        self.out[item.at] = item
        self.member = member

    def forget(self, item: Item) -> None:
        """Removes an item that is done."""
        if self.out.pop(item.at, None) is None:
            self._remove(item)
        if not self.out:
            self.member = None

    def take_back(self, item: Item) -> list[Item]:
        """Puts an outstanding item back, and those of its key after it; returns these, the last first."""
        later: list[Item] = []
        while (back := self.out.popitem()[1]) is not item:
            later.append(back)
            self._wait_first(back)
        self._wait_first(item)
        if not self.out:
            self.member = None
        return later

    def _wait_first(self, item: Item) -> None:
        self.add(item)
        self.waiting.move_to_end(item.at, last=False)
