"""Memory of items: what the undone items of the groups of one space take together, as they lie in memory.

One group takes a bounded number of items.  Hundreds of groups of one client over the same messages would each
take as many, so the items of all groups have a bound together: beyond it a group has an equal share, and
reads the rest from the log later.

Always: ``used`` is the sum of what the groups hold that have not been closed.
"""

from __future__ import annotations

from typing import Final

from relay.groups.state import Item

ITEM_BYTES: Final = 400
VALUE_FACTOR: Final = 8
"""About what an item takes in memory, beside its value, and what a value takes of its packed size."""

KEY_BYTES: Final = 600
"""About what a further key takes."""

DELIVERY_BYTES: Final = 300
"""About what a delivery takes, beside the packed value that waits for its member."""

ITEMS_BYTES: Final = 128 << 20
"""Bytes of items in memory, unless the limit is another one."""

LEAST: Final = 64 << 10
"""Bytes of items that each group may have in any case."""


def item_bytes(item: Item) -> int:
    """Returns about how many bytes an item takes in memory, with its value."""
    return ITEM_BYTES + VALUE_FACTOR * item.size


def delivery_bytes(item: Item) -> int:
    """Returns about how many bytes more an item takes that is out."""
    return DELIVERY_BYTES + item.size


class ItemMemory:
    """What the items of several groups hold; ``limit`` in bytes."""

    __slots__ = ("groups", "limit", "used")

    def __init__(self, limit: int = ITEMS_BYTES) -> None:
        self.limit = limit
        self.used = 0
        self.groups = 0

    @property
    def share(self) -> int:
        """Returns the bytes that one group may hold while all hold too much."""
        return max(LEAST, self.limit // max(1, self.groups))

    def room(self, held: int) -> int:
        """Returns how many bytes more a group may take that holds so many; 0 or less for none."""
        return max(self.limit - self.used, self.share - held)
