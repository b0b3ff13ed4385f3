"""Cursors: where readers of the log left off, so that the next one need not begin at the beginning.

To find the rows that appeared in the past, a reader needs the rows before them: the bag of a pattern's
captures at that epoch.  A reader that goes on where another one stopped, as every batch of a stream does,
finds its bag here.

Always: a bag that was left here is never changed again, a reader that continues copies it; the number of
rows kept is bounded, the least recently used cursors go first.
"""

from __future__ import annotations

import sys
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from itertools import accumulate, pairwise
from typing import Any, Final, Protocol

from dataspace.codec import pack, packer, unpack_own
from dataspace.kernel.actions import NUMBERS as NUMBERS
from index.errors import InternalError
from index.patterns.events import Captures as Captures
from index.values.values import keys, text_of
from relay.store.spilled import SpilledBytes

ROWS: Final = 1_000_000
"""Rows kept in all cursors together."""

CURSORS: Final = 256
"""Cursors kept."""

BYTES: Final = 256 << 20
"""About the bytes of memory that all cursors together take."""

SPILLED: Final = 4 << 30
"""Bytes in files that all cursors together take."""

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

    __slots__ = ("_keys_only", "_more", "_rows")

    def __init__(self, *, keys_only: bool = False) -> None:
        """With ``keys_only``, of a row whose key is its packed form that alone is kept, in half the memory.

        ``rows()`` has no captures for such a row.
        """
        self._rows: dict[Hashable, Captures] = {}
        self._more: dict[Hashable, int] = {}
        self._keys_only = keys_only

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def objects(self) -> int:
        """Returns how many rows are kept as objects."""
        return len(self._rows)

    @property
    def spilled(self) -> int:
        """Returns how many bytes the rows take in files: none."""
        return 0

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
        named = row_keys(rows)
        if self._keys_only:
            rows = [() if at.__class__ is bytes else row for at, row in zip(named, rows, strict=True)]
        for place, (at, row) in enumerate(zip(named, rows, strict=True)):
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
        copied = RowCounts(keys_only=self._keys_only)
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

    def __init__(self, *, keys_only: bool = False) -> None:
        super().__init__(keys_only=keys_only)
        self.now: tuple[int, int] = 0, 0
        self.owners: Sequence[str | None] | None = None
        self._since: dict[Hashable, Since] = {}

    @classmethod
    def of(cls, rows: RowCounts) -> TimedCounts:
        """Returns the same rows, without the epochs since which they are there; O(rows)."""
        made = cls(keys_only=rows._keys_only)
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
    and spread evenly.  A share are the rows with numbers from one on and below another.  A large state is in
    a file without a name, so that it is prepared once however large it is.

    Always: rows with one number are ordered by their keys.
    """

    __slots__ = ("_count", "_ends", "_numbers", "_packed", "_since", "_since_ends")

    def __init__(
        self, keyed: Iterable[tuple[Hashable, Captures]], since: Sequence[Since | None] | None = None
    ) -> None:
        """``since`` says since when each row was there.  About 2.5 µs a row."""
        sorters: list[list[tuple[int, bytes, bytes, int]]] = [[] for _ in range(1 << _SORTERS)]
        for at, (key, row) in enumerate(keyed):
            key_bytes: Any = key if key.__class__ is bytes else str(key).encode()
            number = int.from_bytes(blake2b(key_bytes, digest_size=6).digest())
            packed = key_bytes if key.__class__ is bytes else pack(row)
            sorters[number >> _SORTED_BITS].append((number, key_bytes, packed, at))
        self._count = 0
        self._numbers, self._ends, self._packed = SpilledBytes(), SpilledBytes(), SpilledBytes()
        self._since = None if since is None else SpilledBytes()
        self._since_ends = SpilledBytes()
        for some in sorters:  # each sorted alone: a sort holds up all other threads
            some.sort()
            self._add(some, since)
            some.clear()

    def _add(
        self, some: Sequence[tuple[int, bytes, bytes, int]], since: Sequence[Since | None] | None
    ) -> None:
        """Adds rows that come after all others."""
        self._count += len(some)
        self._numbers.add(array("Q", [each[0] for each in some]).tobytes())
        _add_all(self._packed, self._ends, [each[2] for each in some])
        if self._since is not None and since is not None:
            _add_all(self._since, self._since_ends, [pack(since[each[3]]) for each in some])

    def __len__(self) -> int:
        return self._count

    @property
    def objects(self) -> int:
        """Returns how many rows are kept as objects: none."""
        return 0

    def _all(self) -> list[SpilledBytes]:
        parts = [self._numbers, self._ends, self._packed, self._since_ends]
        return parts if self._since is None else [*parts, self._since]

    @property
    def bytes(self) -> int:
        """Returns about how many bytes of memory the rows take."""
        return sum([each.held for each in self._all()])

    @property
    def spilled(self) -> int:
        """Returns how many bytes the rows take in files."""
        return sum([each.spilled for each in self._all()])

    def _number(self, at: int) -> int:
        return int.from_bytes(self._numbers.part(8 * at, 8 * at + 8), sys.byteorder)

    def _first(self, number: int) -> int:
        """Returns the place of the first row with a number, or a higher one."""
        return bisect_left(range(self._count), number, key=self._number)

    def _end(self, at: int) -> int:
        """Returns how many bytes the rows up to a place are, that row included."""
        return int.from_bytes(self._ends.part(8 * at, 8 * at + 8), sys.byteorder)

    def upto(self, low: int, most: int, size: int | None = None) -> int:
        """Returns the number below which there are at most so many rows from ``low`` on, but at least one.

        With ``size``, rows of at most so many bytes, packed.
        """
        first = self._first(low)
        end = first + most
        if size is not None:
            begin = self._end(first - 1) if first else 0
            fitting = bisect_right(range(self._count), begin + size, lo=first, key=self._end)
            end = min(end, max(first + 1, fitting))
        if end < len(self) and self._number(end) == self._number(first):
            end = self._first(self._number(end) + 1)
        return self._number(end) if end < len(self) else NUMBERS

    def places(self, low: int, high: int) -> range:
        """Returns the places of the rows of a share."""
        return range(self._first(low), self._first(high))

    def rows(self, places: range) -> Iterator[Captures]:
        """Yields the rows at some places; about 1 µs each."""
        for each in _items(self._packed, self._ends, places):
            yield unpack_own(each)  # type: ignore[misc]  # captures, as they were packed

    def since(self, places: range) -> list[Since | None]:
        """Returns since when the rows at some places are there."""
        if self._since is None:
            return []
        return [unpack_own(each) for each in _items(self._since, self._since_ends, places)]  # type: ignore[misc]  # as it was packed


def _add_all(into: SpilledBytes, ends: SpilledBytes, items: Sequence[bytes]) -> None:
    """Adds byte strings, and where each ends."""
    begin = len(into)
    into.add(b"".join(items))
    ends.add(array("Q", accumulate(map(len, items), initial=begin))[1:].tobytes())


def _items(of: SpilledBytes, ends: SpilledBytes, places: range) -> Iterator[bytes]:
    """Yields the byte strings at places that follow each other."""
    if not places:
        return
    known = array("Q", bytes(8) if not places.start else b"")
    known.frombytes(ends.part(8 * max(0, places.start - 1), 8 * places.stop))
    whole = of.part(known[0], known[-1])
    for start, end in pairwise(known):
        yield whole[start - known[0] : end - known[0]]


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

    @property
    def spilled(self) -> int:
        """Returns how many bytes it takes in files."""


class Cursors:
    """Bags by pattern and epoch.  Safe for threads."""

    def __init__(
        self, *, rows: int = ROWS, cursors: int = CURSORS, size: int = BYTES, spilled: int = SPILLED
    ) -> None:
        self._limit_rows = rows
        self._limit = cursors
        self._limit_bytes = size
        self._limit_spilled = spilled
        self._rows = self._spilled = 0
        self.bytes = 0
        """About how many bytes of memory they take."""
        self._kept: OrderedDict[tuple[Hashable, int], tuple[KeptState, int]] = OrderedDict()
        self._lock = threading.Lock()
        self._preparing: dict[tuple[Hashable, int], tuple[threading.Lock, int]] = {}
        """Of each state that is being prepared, its lock, and how many threads hold it or wait for it."""

    def __len__(self) -> int:
        return len(self._kept)

    def clear(self) -> None:
        """Forgets all cursors; later readers start from a base that is farther away."""
        with self._lock:
            self._kept.clear()
            self._rows = self._spilled = self.bytes = 0

    def leave(self, pattern: Hashable, epoch: int, bag: KeptState) -> None:
        """Keeps a bag, which must not be changed any more, for readers that continue from this epoch."""
        size = bag.bytes
        with self._lock:
            self._drop((pattern, epoch))
            if (
                bag.objects <= self._limit_rows
                and size <= self._limit_bytes
                and bag.spilled <= self._limit_spilled
            ):
                self._kept[pattern, epoch] = bag, size
                self._rows += bag.objects
                self._spilled += bag.spilled
                self.bytes += size
            while (
                self._rows > self._limit_rows
                or self._spilled > self._limit_spilled
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

    @contextmanager
    def preparing(self, pattern: Hashable, epoch: int) -> Iterator[None]:
        """Admits one thread at a time for the same state; blocks.  The next thread finds what was left.

        Without it the tasks of a batch, or a client that asks again after its timeout, would each prepare a
        large state: four requests at once took 5.4 times the CPU time of one and 4 times its memory.
        """
        at = pattern, epoch
        with self._lock:
            own, users = self._preparing.get(at) or (threading.Lock(), 0)
            self._preparing[at] = own, users + 1
        try:
            with own:
                yield
        finally:
            with self._lock:
                _, users = self._preparing.pop(at)
                if users > 1:
                    self._preparing[at] = own, users - 1

    def _drop(self, at: tuple[Hashable, int]) -> None:
        kept = self._kept.pop(at, None)
        if kept is not None:
            bag, size = kept
            self._rows -= bag.objects
            self._spilled -= bag.spilled
            self.bytes -= size
