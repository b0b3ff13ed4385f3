"""Shares: a state that is sorted once, within bounded memory, and read in parts.

A state that readers take in parts needs an order that is the same wherever it is made, and a large one may
take neither its size in memory while it is sorted nor be sorted for each part.  So rows are counted in a bag
of bounded size.  A bag that is full is written to a file as a sorted run, and in the end all runs are merged:
an external merge sort, in which rows that have gone meanwhile cancel rows of earlier runs.

Always: the order and the rows are those of sorting in memory, whatever the budget; memory is the budget, a
block of each run, and the first 16 MB of each part of what is made: numbers, ends, rows, and two of times.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import accumulate, pairwise
from typing import Final

from dataspace.codec import pack, unpack_own
from dataspace.kernel.actions import NUMBERS
from dataspace.steps import batched
from relay.log.cursors import (
    Captures,
    FactRows,
    RowCounts,
    RowEntry,
    Since,
    TimedCounts,
    entry_bytes,
    fact_keys,
    key_bytes,
    never_there,
    row_keys,
)
from relay.store.spilled import SortedRuns, SpilledBytes

SORTED_BYTES: Final = 64 << 20
"""About the bytes of memory in which rows are sorted; more rows are sorted in files."""

WRITTEN_ROWS: Final = 1024
"""Rows that are added to a sorted state at once."""

KEPT_ROWS: Final = 50_000
"""Rows of a bag of a cursor in one run."""

_SORTERS: Final = 8
_SORTED_BITS: Final = NUMBERS.bit_length() - 1 - _SORTERS
"""Into how many lists rows are divided by the first bits of their numbers, as its logarithm."""

SortedRow = tuple[int, bytes, Since | None]
"""The number of a row, its packed captures, and since when it is there."""

Entry = tuple[int, bytes, int, bytes, int, int, bytes | None, Since | None]
"""A row that is sorted: its number and the bytes of its key; 0 for a fact of the beginning, and what
distinguishes it from others with this key, or the number of a run of changes, and nothing; how many facts
went and came, as in ``RowEntry``; its packed captures if the key is not these; since when it is there."""


class StateShares:
    """The rows of a state in the order of their numbers, packed, so that parts of it are read by themselves.

    The number of a row is a hash of its key, below ``NUMBERS``: the same wherever and whenever it is made,
    and spread evenly.  A share are the rows with numbers from one on and below another.  A large state is in
    a file without a name, so that it is prepared once however large it is.

    Always: rows with one number are ordered by their keys.
    """

    __slots__ = ("_count", "_ends", "_numbers", "_packed", "_since", "_since_ends")

    def __init__(self, *, timed: bool = False) -> None:
        """A ``timed`` state says since when each row was there."""
        self._count = 0
        self._numbers, self._ends, self._packed = SpilledBytes(), SpilledBytes(), SpilledBytes()
        self._since = SpilledBytes() if timed else None
        self._since_ends = SpilledBytes()

    def add(self, some: Sequence[SortedRow]) -> None:
        """Adds rows that come after all others.  Raises ``LogFailed`` as ``SpilledBytes.add`` does."""
        self._count += len(some)
        self._numbers.add(array("Q", [each[0] for each in some]).tobytes())
        _add_all(self._packed, self._ends, [each[1] for each in some])
        if self._since is not None:
            _add_all(self._since, self._since_ends, [pack(each[2]) for each in some])

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


class StateSorter:
    """Counts the rows of a state, as a bag does, and sorts them; for one thread.

    What it is given first is its beginning: facts, of which each may come several times, or a bag; changes
    follow.  Only the end is checked: there no row may have gone that never came.  Methods raise ``LogFailed``
    where there is no room for files.
    """

    __slots__ = ("_bag", "_budget", "_facts", "_grown", "_order", "_runs", "_timed", "now", "owners")

    def __init__(self, *, timed: bool = False, budget: int | None = None) -> None:
        """With ``timed``, rows are there since ``now`` and by ``owners``, as in ``TimedCounts``."""
        self._timed = timed
        self._budget = SORTED_BYTES if budget is None else budget
        self._runs = SortedRuns()
        self._order = 0
        self._facts: dict[Hashable, Captures] = {}
        self._grown = 0
        self.now: tuple[int, int] | None = None
        self.owners: Sequence[str | None] | None = None
        self._bag = self._empty()

    def _empty(self) -> RowCounts:
        return TimedCounts(partial=True) if self._timed else RowCounts(partial=True)

    @property
    def runs(self) -> int:
        """Returns how many sorted runs are in files."""
        return len(self._runs)

    def start_from(self, bag: RowCounts) -> None:
        """Takes the rows of a bag, which is not changed."""
        if bag.bytes <= self._budget:
            self._bag.start_from(bag)
            self._bag.regrow()
            return
        for some in batched(bag.entries(), KEPT_ROWS):
            self._write(some)

    def add_facts(self, parts: Iterable[FactRows]) -> None:
        """Takes the captures of facts; as ``RowCounts.add_facts``."""
        for rows, facts in parts:
            named = row_keys(rows)
            kept = [() if at.__class__ is bytes else row for at, row in zip(named, rows, strict=True)]
            self._grown += entry_bytes(named)
            self._facts.update(zip(fact_keys(named, facts), kept, strict=True))
            if self._grown > self._budget:
                self._spill_facts()

    def _spill_facts(self) -> None:
        self._grown = entry_bytes([at[0] if isinstance(at, tuple) else at for at in self._facts])
        if self._grown > self._budget // 2:
            facts, self._facts, self._grown = self._facts, {}, 0
            self._runs.add(_in_order(map(_fact, facts.items())))

    def change(self, added: Sequence[Captures], removed: Sequence[Captures]) -> None:
        """Adds many facts and then removes many."""
        bag = self._bag
        if isinstance(bag, TimedCounts):
            bag.now, bag.owners = self.now, self.owners
        bag.change(added, removed)
        # rows that come and go all the time are counted, and do not fill files
        if bag.grown > self._budget and bag.regrow() > self._budget // 2:
            self._bag = self._empty()
            self._write(bag.entries())

    def undo(self, epochs: Iterable[tuple[Sequence[Captures], Sequence[Captures]]]) -> None:
        """Takes back what epochs added and removed."""
        for added, removed in epochs:
            self.change(removed, added)
        self._bag.balance()

    def _write(self, entries: Iterable[RowEntry]) -> None:
        self._runs.add(_in_order(self._changes(entries)))

    def _changes(self, entries: Iterable[RowEntry]) -> Iterator[Entry]:
        self._order += 1
        order = self._order
        for at, row, less, more, since in entries:
            key = key_bytes(at)
            packed = None if key is at or not more else pack(row)
            yield _number(key), key, order, b"", less, more, packed, since

    def shares(self) -> StateShares:
        """Returns the state in its order; to be called once.  About 3 µs a row."""
        facts, bag, made = self._facts, self._bag, StateShares(timed=self._timed)
        self._facts, self._bag = {}, self._empty()
        last = [_in_order(map(_fact, facts.items())), _in_order(self._changes(bag.entries()))]
        for some in batched(_counted(self._runs.merged(*last)), WRITTEN_ROWS):
            made.add(some)
        return made


def _number(key: bytes) -> int:
    return int.from_bytes(blake2b(key, digest_size=6).digest())


def _fact(item: tuple[Hashable, Captures]) -> Entry:
    at, row = item
    at, fact = at if isinstance(at, tuple) else (at, b"")
    key = key_bytes(at)
    return _number(key), key, 0, fact, 0, 1, None if key is at else pack(row), None


def _in_order(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yields entries in order; sorts parts of them, since a sort holds up all other threads."""
    sorters: list[list[Entry]] = [[] for _ in range(1 << _SORTERS)]
    for each in entries:
        sorters[each[0] >> _SORTED_BITS].append(each)
    for some in sorters:
        some.sort()
        yield from some
        some.clear()


def _counted(entries: Iterable[Entry]) -> Iterator[SortedRow]:
    """Yields the rows of which there are facts in the end; entries come in order."""
    at, name, known, count, packed, began = 0, b"", None, 0, b"", None
    for number, key, order, fact, less, more, row, since in entries:
        if key != name:
            if count:
                yield _there(at, name, count, packed, began)
            at, name, count = number, key, 0
        elif not order and fact == known:
            continue  # it is claimed twice
        known = fact
        if more and count <= less:  # there was none with these captures before
            packed, began = key if row is None else row, since
        count += more - less
    if count:
        yield _there(at, name, count, packed, began)


def _there(number: int, key: bytes, count: int, packed: bytes, since: Since | None) -> SortedRow:
    if count < 0:
        raise never_there(key)
    return number, packed, since
