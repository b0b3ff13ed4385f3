"""The undone items of a group in memory: which are ready, which wait, and which of one key come first.

A fact that went and came again is one item, the later one.  An item that waits for long may be *parked*: its
place and when it is due stay in memory, and its row is read again then.

Always: of one key the first item that is not out is where the members find it that may get it, or waits until
it is due; ``size`` and ``held`` are the sums over all undone items.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable
from hashlib import blake2b
from heapq import heappop, heappush
from typing import Final

from dataspace.codec import pack
from index.values.values import Value, key as key_of
from relay.groups.keys import KeyQueue
from relay.groups.members import GroupCounts, GroupMember, JobDelivery
from relay.groups.memory import KEY_BYTES, ItemMemory, item_bytes
from relay.groups.ready import ReadyItems
from relay.groups.state import At, GroupState, Item

PARKED_AFTER: Final = 10_000_000
"""An item that waits longer than this, in microseconds, may be parked."""


class GroupItems(ABC):
    """The items of one group; ``key_at`` returns the key of a value, ``level_at`` its priority, where there
    is one."""

    def __init__(
        self,
        state: GroupState,
        key_at: Callable[[Value], Hashable] | None,
        level_at: Callable[[Value], int] | None,
        memory: ItemMemory | None,
    ) -> None:
        """Items count in ``memory`` until ``close``."""
        self.state: Final = state
        self.counts = GroupCounts()
        self.out: dict[int, JobDelivery] = {}
        self.gone: list[At] = []
        """Items of facts that have gone, to be noted as done."""
        self.size = 0
        """About how many bytes the undone items have that are here, as they are on the wire."""
        self.held = 0
        """About how many bytes of memory they take, with their deliveries."""
        self.postponed = 0
        """How many undone items wait until they are due."""
        self.to_read: deque[Item] = deque()
        """Parked items that are due: their values are to be read again."""
        self._memory = ItemMemory() if memory is None else memory
        self._memory.groups += 1
        self._key_at = key_at
        self._level_at = level_at
        self._ready = ReadyItems(self._waits, None if level_at is None else self._level_of)
        self._postponed: list[tuple[int, At, Item]] = []
        self._keys: dict[Hashable, KeyQueue] = {}
        self._facts: dict[Hashable, Item] = {}
        self._parked: dict[bytes, Item] = {}
        """Parked facts by their digests."""

    @abstractmethod
    def _stand(self, member: GroupMember) -> None:
        """Puts a member among those to which is handed out next, if it may have more."""

    def close(self) -> None:
        """Counts no item in the memory any more: nothing is handed out from here."""
        self._memory.groups -= 1
        self.hold(-self.held)
        self._memory = ItemMemory()

    def hold(self, size: int) -> None:
        """Counts so many bytes of memory more, or less."""
        self.held += size
        self._memory.used += size

    @property
    def room(self) -> int:
        """About how many bytes of memory the group may take for further items."""
        return self._memory.room(self.held)

    def take(self, item: Item) -> None:
        """Reads an item that is on disk, later than all before; O(log items)."""
        if self.state.take(item):
            self.enter(item)

    def out_of(self, fact: Value) -> JobDelivery | None:
        """Returns the delivery that has a fact which is going; None if the fact is out to nobody."""
        item = self._facts.get(key_of(fact)) if self._facts else None
        return self.out.get(item.token) if item is not None else None

    def enter(self, item: Item) -> None:
        """Makes an item ready that is undone and out to nobody."""
        self.size += item.size
        self.hold(item_bytes(item))
        if item.due:
            self.postponed += 1
        if item.is_parked:
            self._enter_parked(item)
            return
        if not item.is_message:
            at = key_of(item.value)
            earlier = self._facts.get(at)
            if earlier is None and self._parked:
                earlier = self._parked.get(digest_of(item.value))
            if earlier is not None and not earlier.token:
                self._pass_over(earlier)  # a fact that went and came again is worked on once
            self._facts[at] = item
        if self._key_at is None and self._level_at is None:
            self._line_up(item)
        else:
            self._place(item)

    def _place(self, item: Item) -> None:
        """Puts an item among the others, by its level and its key."""
        if self._level_at is not None:
            item.level = self._level_at(item.value)
        if self._key_at is None:
            self._line_up(item)
            return
        item.key = self._key_at(item.value)
        queue = self._keys.get(item.key)
        if queue is None:
            queue = self._keys[item.key] = KeyQueue()
            self.hold(KEY_BYTES)
        queue.add(item)
        self._head(queue)

    def _line_up(self, item: Item) -> None:
        """Puts an item where members without an earlier claim to it find it."""
        if item.due:
            heappush(self._postponed, (item.due, item.at, item))
        else:
            self._ready.add(item)

    def _head(self, queue: KeyQueue) -> None:
        """Puts the first item of a key that is not out where the member that may get it finds it."""
        item = queue.head
        if item is None:
            return
        if item.due:
            heappush(self._postponed, (item.due, item.at, item))
        elif queue.out and queue.member is not None:
            heappush(queue.member.keyed, (self._ready.rank(item), item))
            self._stand(queue.member)
        else:
            self._ready.add_again(item)

    def _level_of(self, item: Item) -> int:
        """Returns the level of an item now: the first of a key has the best of those that wait behind it."""
        return item.level if self._key_at is None else self._keys[item.key].level

    def come_due(self, wall: int) -> None:
        """Gets ready the postponed items whose time has come; ``wall`` is in microseconds since 1970."""
        while self._postponed and self._postponed[0][0] <= wall:
            due, _, item = heappop(self._postponed)
            if item.token or item.due != due or item.at not in self.state.undone:
                continue
            self._be_due(item)
            if item.is_parked:
                self.to_read.append(item)
            elif self._key_at is None:
                self._ready.add_again(item)
            else:
                self._head(self._keys[item.key])

    @property
    def has_ready(self) -> bool:
        """True if items may be ready for any member."""
        return bool(self._ready)

    def _be_due(self, item: Item) -> None:
        self.postponed -= item.due > 0
        item.due = 0

    @property
    def next_due(self) -> int | None:
        """The time at which the next postponed item is due."""
        return self._postponed[0][0] if self._postponed else None

    def _pass_over(self, item: Item) -> None:
        """Counts an item as done, whose fact has gone."""
        self.gone.append(item.at)
        self.counts.gone += 1
        self.state.done(item.at)
        self._forget(item)

    def _forget(self, item: Item) -> None:
        """Forgets an item that is done."""
        self.size -= item.size
        self.hold(-item_bytes(item))
        if item.due:
            self._be_due(item)
        if item.is_parked:
            self._forget_digest(item)
        elif not item.is_message and self._facts.get(at := key_of(item.value)) is item:
            del self._facts[at]
        queue = self._keys.get(item.key) if self._key_at is not None else None
        if queue is None:
            return
        queue.forget(item)
        if len(queue):
            self._head(queue)
        else:
            del self._keys[item.key]
            self.hold(-KEY_BYTES)

    # -- items that wait for long ---------------------------------------------------------------------

    def may_park(self, item: Item, wall: int) -> bool:
        """True if an item waits for long, and its row is in the log for as long."""
        is_row = item.at[0] > self.state.saved and not item.stays and not self.state.topic
        return is_row and self._key_at is None and item.due > wall + PARKED_AFTER and not item.is_parked

    @property
    def may_park_any(self) -> bool:
        """True if there may be items that wait, and can be parked; O(1)."""
        return self._key_at is None and not self.state.topic and self.postponed > 0 and self.size > 0

    def park(self, item: Item) -> None:
        """Keeps the place of a postponed item, and when it is due, alone; its row is read again then."""
        digest = b"" if item.is_message else digest_of(item.value)
        if not item.is_message and self._facts.get(at := key_of(item.value)) is item:
            del self._facts[at]
            self._parked[digest] = item
        self.size -= item.size
        self.hold(-item_bytes(item))
        self.state.park(item, digest)
        self.hold(item_bytes(item))

    def _enter_parked(self, item: Item) -> None:
        assert isinstance(item.value, bytes)  # a digest
        if digest := item.value:
            if (earlier := self._parked.get(digest)) is not None:
                self._pass_over(earlier)  # as in ``enter``
            self._parked[digest] = item
        if item.due:
            heappush(self._postponed, (item.due, item.at, item))
        else:
            self.to_read.append(item)

    def _forget_digest(self, item: Item) -> bool:
        """Forgets the digest of a parked item; returns False if it had none, or another one came since."""
        assert isinstance(item.value, bytes)  # as ``park`` has made it
        if self._parked.get(item.value) is not item:
            return False
        del self._parked[item.value]
        return True

    def unpark(self, item: Item, row: Item | None) -> None:
        """Makes a parked item ready, whose row was read again; passes it over if there is no such row."""
        if not item.is_parked or self.state.undone.get(item.at) is not item:
            return  # it was reported as done meanwhile
        if row is None:
            self._pass_over(item)
            return
        is_latest = self._forget_digest(item)
        self.hold(-item_bytes(item))
        item.value, item.size, item.is_parked = row.value, row.size, False
        item.is_message, item.time = row.is_message, row.time
        self.size += item.size
        self.hold(item_bytes(item))
        if is_latest:
            self._facts[key_of(item.value)] = item
        self._place(item)

    def _waits(self, item: Item) -> bool:
        """True if an item is undone, out to nobody, and due."""
        return not item.token and not item.due and self.state.undone.get(item.at) is item


def digest_of(value: Value) -> bytes:
    """Returns what stands for the value of a parked fact."""
    return blake2b(pack(value), digest_size=16, person=b"parked").digest()
