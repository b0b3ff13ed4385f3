"""Cursors: where readers of the log left off, so that the next one need not begin at the beginning.

To find the rows that appeared in the past, a reader needs the rows before them: the bag of a pattern's
captures at that epoch.  A reader that goes on where another one stopped, as every batch of a stream does,
finds its bag here.

Always: a bag that was left here is never changed again, a reader that continues copies it; the number of
rows kept is bounded, the least recently used cursors go first.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final, Protocol

from dataspace.codec import pack, packer, unpack_own
from dataspace.kernel.actions import NUMBERS as NUMBERS
from index.errors import InternalError
from index.patterns.events import Captures as Captures
from index.values.values import keys, text_of

ROWS: Final = 1_000_000
"""Rows kept in all cursors together."""

CURSORS: Final = 256
"""Cursors kept."""

BYTES: Final = 256 << 20
"""About the bytes of memory that all cursors together take."""

ROW_BYTES: Final = 240
PACKED_FACTOR: Final = 3
SINCE_BYTES: Final = 120
"""About what a row takes, and each byte of its packed form: its key and the captures."""

FEW: Final = 16
"""Rows for which a packer of one's own is not worth making."""


class RowCounts:
    """Rows of captures, each as often as there are facts with those captures.

    Rows are distinguished by their packed bytes, which are the same exactly for the same values: quicker to
    make than their text, and hashed with a key as well.
    """

    __slots__ = ("_more", "_rows")

    def __init__(self) -> None:
        self._rows: dict[Hashable, Captures] = {}
        self._more: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def objects(self) -> int:
        """Returns how many rows are kept as objects."""
        return len(self._rows)

    @property
    def bytes(self) -> int:
        """Returns about how many bytes of memory the rows take; O(rows), 25 ns each."""
        return ROW_BYTES * len(self._rows) + PACKED_FACTOR * sum(map(len, self._rows))  # type: ignore[arg-type]  # bytes or text

    def rows(self) -> list[Captures]:
        """Returns the distinct rows."""
        return list(self._rows.values())

    def keyed(self) -> Iterable[tuple[Hashable, Captures]]:
        """Returns the distinct rows with their keys, as ``row_keys`` makes them."""
        return self._rows.items()

    def add_all(self, rows: Sequence[Captures]) -> list[Captures]:
        """Adds many rows in order; returns the rows that are the first of their kind."""
        return [rows[at] for at in self.first_at(rows)]

    def first_at(self, rows: Sequence[Captures]) -> list[int]:
        """Adds many rows in order; returns the places of the rows that are the first of their kind."""
        known, more = self._rows, self._more
        first: list[int] = []
        for place, (at, row) in enumerate(zip(row_keys(rows), rows, strict=True)):
            if at in known:
                more[at] = more.get(at, 0) + 1
            else:
                known[at] = row
                first.append(place)
        return first

    def remove_all(self, rows: Sequence[Captures]) -> list[Captures]:
        """Removes many rows in order; returns the rows that were the last of their kind."""
        last = self.last_at(rows)
        return [*rows] if len(last) == len(rows) else [rows[at] for at in last]

    def last_at(self, rows: Sequence[Captures]) -> Sequence[int]:
        """Removes many rows in order; returns the places of the rows that were the last of their kind."""
        if self._more:
            keyed = enumerate(zip(row_keys(rows), rows, strict=True))
            return [place for place, (at, row) in keyed if self._removed(at, row)]
        drop = self._rows.pop
        for at, row in zip(row_keys(rows), rows, strict=True):
            if drop(at, None) is None:
                raise _never_there(row)
        return range(len(rows))

    def _removed(self, at: Hashable, row: Captures) -> bool:
        if self._more:
            more = self._more.pop(at, 0)
            if more:
                if more > 1:
                    self._more[at] = more - 1
                return False
        if self._rows.pop(at, None) is None:
            raise _never_there(row)
        return True

    def change(self, added: Iterable[Captures], removed: Iterable[Captures]) -> None:
        """Adds many facts and then removes many, without returning which were first or last."""
        self.add_all([*added])
        self.remove_all([*removed])

    def copy(self) -> RowCounts:
        """Returns a bag that can be changed without changing this one; O(rows)."""
        copied = RowCounts()
        copied._rows = self._rows.copy()
        copied._more = self._more.copy()
        return copied


Since = tuple[int, int, str | None]
"""The epoch in which something was asserted, its time in microseconds, and the owner, if that is known."""


class TimedCounts(RowCounts):
    """Rows with the epoch since which each of them is there; ``now`` is the epoch in which rows are added.

    ``owners``, if it is set, are the owners of the rows that are added next.
    """

    __slots__ = ("_since", "now", "owners")

    def __init__(self) -> None:
        super().__init__()
        self.now: tuple[int, int] = 0, 0
        self.owners: Sequence[str | None] | None = None
        self._since: dict[Hashable, Since] = {}

    @classmethod
    def of(cls, rows: RowCounts) -> TimedCounts:
        """Returns the same rows, without the epochs since which they are there; O(rows)."""
        made = cls()
        made._rows = rows._rows.copy()
        made._more = rows._more.copy()
        return made

    @property
    def bytes(self) -> int:
        return super().bytes + SINCE_BYTES * len(self._since)

    def since(self) -> list[Since | None]:
        """Returns since when each of ``rows()`` is there; None where that is not known."""
        return [self._since.get(at) for at in self._rows]

    def first_at(self, rows: Sequence[Captures]) -> list[int]:
        first, named, owners = super().first_at(rows), row_keys(rows), self.owners
        if owners is None:
            self._since.update(dict.fromkeys([named[at] for at in first], (*self.now, None)))
        else:
            self._since.update([(named[at], (*self.now, owners[at])) for at in first])
        return first

    def ended(self, rows: Sequence[Captures]) -> tuple[Sequence[int], list[Since | None]]:
        """Removes as ``last_at`` does; returns also since when each of the last rows was there."""
        last, named = self.last_at(rows), row_keys(rows)
        return last, [self._since.pop(named[at], None) for at in last]

    def remove_all(self, rows: Sequence[Captures]) -> list[Captures]:
        return [rows[at] for at in self.ended(rows)[0]]

    def copy(self) -> TimedCounts:
        copied = TimedCounts.of(self)
        copied._since = self._since.copy()
        return copied


def net_counts(
    epochs: Iterable[tuple[Iterable[Captures], Iterable[Captures]]],
) -> dict[Hashable, tuple[int, Captures]]:
    """Returns how many facts more (or less, below 0) there are with each captures, after some epochs.

    An epoch is given by its added and its removed captures; O(captures).
    """
    net: dict[Hashable, tuple[int, Captures]] = {}
    for added, removed in epochs:
        for rows, by in ((added, 1), (removed, -1)):
            for row in rows:
                at = keys(row)
                net[at] = (net[at][0] + by if at in net else by, row)
    return net


def _never_there(row: Captures) -> InternalError:
    return InternalError(f"captures {row!r:.200} vanish, but were never there")


def row_keys(rows: Sequence[Captures]) -> Sequence[Hashable]:
    """Returns the key of each row: its bytes, unless they may hold a NaN.

    There is one such value, but many ways to write it.
    """
    packed = [*map(packer(), rows)] if len(rows) > FEW else [*map(pack, rows)]
    whole = b"".join(packed)
    if b"\xcb\x7f" in whole or b"\xcb\xff" in whole:
        return [
            text_of(row) if b"\xcb\x7f" in at or b"\xcb\xff" in at else at
            for at, row in zip(packed, rows, strict=True)
        ]
    return packed


class StateShares:
    """The rows of a state in the order of their numbers, packed, so that parts of it are read by themselves.

    The number of a row is a hash of its key, below ``NUMBERS``: the same wherever and whenever it is made,
    and spread evenly.  A share are the rows with numbers from one on and below another.

    Always: rows with one number are ordered by their keys.
    """

    __slots__ = ("_ends", "_numbers", "_packed", "_since")

    def __init__(
        self, keyed: Iterable[tuple[Hashable, Captures]], since: Sequence[Since | None] | None = None
    ) -> None:
        """``since`` says since when each row was there.  About 2 µs a row, and 48 bytes beside the packed."""
        sorters: list[list[tuple[int, bytes, bytes, int]]] = [[] for _ in range(1 << _SORTERS)]
        for at, (key, row) in enumerate(keyed):
            said: Any = key if key.__class__ is bytes else str(key).encode()
            number = int.from_bytes(blake2b(said, digest_size=6).digest())
            packed = said if key.__class__ is bytes else pack(row)
            sorters[number >> _SORTED_BITS].append((number, said, packed, at))
        self._numbers = array("Q")
        self._ends = array("Q", [0])
        self._packed = bytearray()
        self._since: list[Since | None] | None = None if since is None else []
        for some in sorters:  # each sorted alone: a sort holds up all other threads
            some.sort()
            for number, _, packed, at in some:
                self._numbers.append(number)
                self._packed += packed
                self._ends.append(len(self._packed))
                if since is not None and self._since is not None:
                    self._since.append(since[at])
            some.clear()

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def objects(self) -> int:
        """Returns how many rows are kept as objects: none."""
        return 0

    @property
    def bytes(self) -> int:
        """Returns about how many bytes of memory the rows take."""
        return len(self._packed) + 16 * len(self) + SINCE_BYTES * len(self._since or ())

    def upto(self, low: int, most: int) -> int:
        """Returns the number below which there are at most so many rows from ``low`` on, but at least one."""
        first = bisect_left(self._numbers, low)
        end = first + most
        if end < len(self) and self._numbers[end] == self._numbers[first]:
            end = bisect_left(self._numbers, self._numbers[end] + 1)
        return self._numbers[end] if end < len(self) else NUMBERS

    def places(self, low: int, high: int) -> range:
        """Returns the places of the rows of a share."""
        return range(bisect_left(self._numbers, low), bisect_left(self._numbers, high))

    def rows(self, places: range) -> Iterator[Captures]:
        """Yields the rows at some places; about 1 µs each."""
        for at in places:
            yield unpack_own(bytes(self._packed[self._ends[at] : self._ends[at + 1]]))  # type: ignore[misc]  # captures, as they were packed

    def since(self, places: range) -> list[Since | None]:
        """Returns since when the rows at some places are there."""
        return [] if self._since is None else self._since[places.start : places.stop]


_SORTERS: Final = 12
_SORTED_BITS: Final = NUMBERS.bit_length() - 1 - _SORTERS


class KeptState(Protocol):
    """A state that is left for later readers."""

    @property
    def objects(self) -> int:
        """Returns how many rows are kept as objects."""

    @property
    def bytes(self) -> int:
        """Returns about how many bytes of memory it takes."""


class Cursors:
    """Bags by pattern and epoch.  Safe for threads."""

    def __init__(self, *, rows: int = ROWS, cursors: int = CURSORS, size: int = BYTES) -> None:
        self._limit_rows = rows
        self._limit = cursors
        self._limit_bytes = size
        self._rows = 0
        self.bytes = 0
        """About how many bytes of memory they take."""
        self._kept: OrderedDict[tuple[Hashable, int], tuple[KeptState, int]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def clear(self) -> None:
        """Forgets all cursors; later readers start from a base that is farther away."""
        with self._lock:
            self._kept.clear()
            self._rows = self.bytes = 0

    def leave(self, pattern: Hashable, epoch: int, bag: KeptState) -> None:
        """Keeps a bag, which must not be changed any more, for readers that continue from this epoch."""
        size = bag.bytes
        with self._lock:
            self._drop((pattern, epoch))
            if bag.objects <= self._limit_rows and size <= self._limit_bytes:
                self._kept[pattern, epoch] = bag, size
                self._rows += bag.objects
                self.bytes += size
            while (
                self._rows > self._limit_rows
                or self.bytes > self._limit_bytes
                or len(self._kept) > self._limit
            ):
                self._drop(next(iter(self._kept)))

    def find(self, pattern: Hashable, epoch: int) -> tuple[int, Any] | None:
        """Returns the epoch and bag nearest to an epoch, before it if there is one; O(cursors)."""
        with self._lock:
            epochs = [at for of, at in self._kept if of == pattern]
            if not epochs:
                return None
            nearest = max([at for at in epochs if at <= epoch], default=None) or min(epochs)
            self._kept.move_to_end((pattern, nearest))
            return nearest, self._kept[pattern, nearest][0]

    def _drop(self, at: tuple[Hashable, int]) -> None:
        kept = self._kept.pop(at, None)
        if kept is not None:
            bag, size = kept
            self._rows -= bag.objects
            self.bytes -= size
