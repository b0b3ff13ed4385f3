"""Cursors: where readers of the log left off, so that the next one need not begin at the beginning.

To tell an observer of the past what appeared, a reader must know what was there: the bag of a pattern's
captures at that epoch.  A reader that goes on where another one stopped, as every batch of a stream does,
finds its bag here.

Always: a bag that was left here is never changed again, who goes on from it copies it first; the number of
rows kept is bounded, the least recently used cursors go first.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from typing import Final

from index.errors import InternalError
from index.values import Value, keys

ROWS: Final = 1_000_000
"""Rows kept in all cursors together."""

CURSORS: Final = 256
"""Cursors kept."""

Captures = tuple[Value, ...]


class Bag:
    """Rows of captures, each as often as there are facts with those captures."""

    __slots__ = ("_more", "_rows")

    def __init__(self) -> None:
        self._rows: dict[Hashable, Captures] = {}
        self._more: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self) -> list[Captures]:
        """The distinct rows."""
        return list(self._rows.values())

    def add(self, row: Captures) -> bool:
        """One fact more with these captures: whether it is the first.  O(size of the row)."""
        at = keys(row)
        if at in self._rows:
            self._more[at] = self._more.get(at, 0) + 1
            return False
        self._rows[at] = row
        return True

    def remove(self, row: Captures) -> bool:
        """One fact less with these captures: whether it was the last.  O(size of the row)."""
        at = keys(row)
        if self._more:
            more = self._more.pop(at, 0)
            if more:
                if more > 1:
                    self._more[at] = more - 1
                return False
        if self._rows.pop(at, None) is None:
            raise InternalError(f"captures {row!r:.200} vanish, but were never there")
        return True

    def change(self, added: Iterable[Captures], removed: Iterable[Captures]) -> None:
        """Many facts more and then many less, in any order that does not matter to who asks later."""
        for row in added:
            self.add(row)
        for row in removed:
            self.remove(row)

    def copy(self) -> Bag:
        """A bag that can be changed without changing this one; O(rows)."""
        copied = Bag()
        copied._rows = self._rows.copy()
        copied._more = self._more.copy()
        return copied


class Cursors:
    """Bags by pattern and epoch.  Safe for threads."""

    def __init__(self, *, rows: int = ROWS, cursors: int = CURSORS) -> None:
        self._limit_rows = rows
        self._limit = cursors
        self._rows = 0
        self._kept: OrderedDict[tuple[Hashable, int], Bag] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def leave(self, pattern: Hashable, epoch: int, bag: Bag) -> None:
        """Keeps a bag, which must not be changed any more, for who goes on from this epoch."""
        with self._lock:
            self._drop((pattern, epoch))
            if len(bag) <= self._limit_rows:
                self._kept[pattern, epoch] = bag
                self._rows += len(bag)
            while self._rows > self._limit_rows or len(self._kept) > self._limit:
                self._drop(next(iter(self._kept)))

    def find(self, pattern: Hashable, epoch: int) -> tuple[int, Bag] | None:
        """The epoch and bag nearest to an epoch, before it if there is one; O(cursors)."""
        with self._lock:
            epochs = [at for of, at in self._kept if of == pattern]
            if not epochs:
                return None
            nearest = max([at for at in epochs if at <= epoch], default=None) or min(epochs)
            self._kept.move_to_end((pattern, nearest))
            return nearest, self._kept[pattern, nearest]

    def _drop(self, at: tuple[Hashable, int]) -> None:
        bag = self._kept.pop(at, None)
        if bag is not None:
            self._rows -= len(bag)
