"""Cursors: where readers of the log left off, so that the next one need not begin at the beginning.

To find the rows that appeared in the past, a reader needs the rows before them: the bag of a pattern's
captures at that epoch.  A reader that goes on where another one stopped, as every batch of a stream does,
finds its bag here.

Always: a bag that was left here is never changed again, a reader that continues copies it; the number of
rows kept is bounded, the least recently used cursors go first.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol

from dataspace.codec import pack, packer
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

SPILLED: Final = 4 << 30
"""Bytes in files that all cursors together take."""

ROW_BYTES: Final = 240
PACKED_FACTOR: Final = 3
SINCE_BYTES: Final = 120
"""About what a row takes, and each byte of its packed form: its key and the captures."""

SORTED_ROW_BYTES: Final = 300
"""About what a row takes beside its key in a bag and in a list that is sorted."""

FEW: Final = 16
"""Rows for which a packer of one's own is not worth making."""

Since = tuple[int, int, str | None]
"""The epoch in which something was asserted, its time in microseconds, and the owner, if that is known."""

FactRows = tuple[Sequence[Captures], Sequence[bytes] | None]
"""Captures of facts, and what distinguishes each fact from others: None, or nothing, if its captures do."""

RowEntry = tuple[Hashable, Captures, int, int, Since | None]
"""Of a row its key and its captures; how many facts with it went that were elsewhere, and how many came after
that and are there; and since when there is one of these."""


class RowCounts:
    """Rows of captures, each as often as there are facts with those captures.

    Rows are distinguished by their packed bytes, which are the same exactly for the same values: quicker to
    make than their text, and hashed with a key as well.
    """

    __slots__ = ("_lacking", "_more", "_rows", "grown")

    def __init__(self, *, partial: bool = False) -> None:
        """With ``partial``, of some changes alone: rows may go that are elsewhere, and are counted.

        Then of a row whose key is its packed form that alone is kept, in half the memory: ``rows()`` has no
        captures for it.
        """
        self._rows: dict[Hashable, Captures] = {}
        self._more: dict[Hashable, int] = {}
        self._lacking: dict[Hashable, int] | None = {} if partial else None
        self.grown = 0
        """Of a partial bag, about the bytes that it takes to sort it, and those of rows that have gone."""

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

    def add_all(self, rows: Sequence[Captures]) -> list[Captures]:
        """Adds many rows in order; returns the rows that are the first of their kind."""
        return [rows[at] for at in self.first_at(rows)]

    def first_at(self, rows: Sequence[Captures]) -> list[int]:
        """Adds many rows in order; returns the places of the rows that are the first of their kind."""
        known, more = self._rows, self._more
        first: list[int] = []
        named = row_keys(rows)
        if self._lacking is not None:
            self.grown += entry_bytes(named)
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
                self._lack(at, row)
        return range(len(rows))

    def _removed(self, at: Hashable, row: Captures) -> bool:
        if self._more:
            more = self._more.pop(at, 0)
            if more:
                if more > 1:
                    self._more[at] = more - 1
                return False
        if self._rows.pop(at, None) is None:
            self._lack(at, row)
        return True

    def _lack(self, at: Hashable, row: Captures) -> None:
        """Counts a row that goes and is not here; raises if all rows are here."""
        if self._lacking is None:
            raise never_there(row)
        self._lacking[at] = self._lacking.get(at, 0) + 1
        self.grown += entry_bytes([at])

    def change(self, added: Iterable[Captures], removed: Iterable[Captures]) -> None:
        """Adds many facts and then removes many, without returning which were first or last."""
        self.add_all([*added])
        self.remove_all([*removed])

    def undo(self, epochs: Iterable[tuple[Sequence[Captures], Sequence[Captures]]]) -> None:
        """Takes back what epochs added and removed; O(captures) of memory."""
        for by, row in net_counts(epochs).values():
            self.change([row] * -by, [row] * by)

    def add_facts(self, parts: Iterable[FactRows]) -> None:
        """Adds the captures of facts, each fact once, where a fact may come several times.

        O(facts) of memory meanwhile.
        """
        seen: set[Hashable] = set()
        for rows, facts in parts:
            named = fact_keys(row_keys(rows), facts)
            fresh = {at: row for at, row in zip(named, rows, strict=True) if at not in seen}
            seen |= fresh.keys()
            self.add_all([*fresh.values()])

    def balance(self) -> None:
        """Takes rows that are lacking off those that came later: of a partial bag whose changes were taken
        back, so that it is the beginning of others."""
        lacking = self._lacking or {}
        for at in lacking.keys() & self._rows.keys():
            less = min(lacking[at], 1 + self._more.get(at, 0))
            for _ in range(less):
                self._removed(at, ())
            lacking[at] -= less
            if not lacking[at]:
                del lacking[at]

    def start_from(self, bag: RowCounts) -> None:
        """Makes the rows of this empty bag those of another one; O(rows)."""
        self._rows = bag._rows.copy()
        self._more = bag._more.copy()

    def copy(self) -> RowCounts:
        """Returns a bag that can be changed without changing this one; O(rows)."""
        copied = RowCounts()
        copied.start_from(self)
        return copied

    def regrow(self) -> int:
        """Counts ``grown`` anew, without what has gone, and returns it; O(rows)."""
        self.grown = entry_bytes(self._rows) + entry_bytes(self._lacking or ())
        return self.grown

    def entries(self) -> Iterator[RowEntry]:
        """Yields the rows with their keys and counts, and then the rows that are lacking."""
        more, since, lacking = self._more, self._since_all(), self._lacking or {}
        for at, row in self._rows.items():
            yield at, row, lacking.get(at, 0), 1 + more.get(at, 0), since.get(at)
        for at, count in lacking.items():
            if at not in self._rows:
                yield at, (), count, 0, None

    def _since_all(self) -> Mapping[Hashable, Since]:
        return {}


class TimedCounts(RowCounts):
    """Rows with the epoch since which each of them is there; ``now`` is the epoch in which rows are added,
    None if that is not known.

    ``owners``, if it is set, are the owners of the rows that are added next.
    """

    __slots__ = ("_since", "now", "owners")

    def __init__(self, *, partial: bool = False) -> None:
        super().__init__(partial=partial)
        self.now: tuple[int, int] | None = None
        self.owners: Sequence[str | None] | None = None
        self._since: dict[Hashable, Since] = {}

    def start_from(self, bag: RowCounts) -> None:
        """Makes the rows those of another bag, which may not know since when they are there; O(rows)."""
        super().start_from(bag)
        self._since = {**bag._since_all()}

    @property
    def bytes(self) -> int:
        return super().bytes + SINCE_BYTES * len(self._since)

    def since(self) -> list[Since | None]:
        """Returns since when each of ``rows()`` is there; None where that is not known."""
        return [self._since.get(at) for at in self._rows]

    def first_at(self, rows: Sequence[Captures]) -> list[int]:
        first = super().first_at(rows)
        if self.now is None:
            return first
        named, owners = row_keys(rows), self.owners
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
        copied = TimedCounts()
        copied.start_from(self)
        return copied

    def _since_all(self) -> Mapping[Hashable, Since]:
        return self._since


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


def never_there(row: object) -> InternalError:
    """Returns the error for captures that go and are not there."""
    return InternalError(f"captures {row!r:.200} vanish, but were never there")


def entry_bytes(named: Collection[Hashable]) -> int:
    """Returns about how many bytes rows with such keys take while they are sorted; 25 ns each."""
    return SORTED_ROW_BYTES * len(named) + sum(map(len, named))  # type: ignore[arg-type]  # bytes or text


def fact_keys(named: Sequence[Hashable], facts: Sequence[bytes] | None) -> Sequence[Hashable]:
    """Returns the keys of facts, from those of their captures and what distinguishes them beside these."""
    if facts is None:
        return named
    return [(at, fact) if fact else at for at, fact in zip(named, facts, strict=True)]


def key_bytes(key: Hashable) -> bytes:
    """Returns a key of ``row_keys`` as bytes; no two keys have the same."""
    return key if isinstance(key, bytes) else str(key).encode()


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
