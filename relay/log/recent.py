"""Recent epochs: what happened last, in memory, for observers that were disconnected for a moment.

When a daemon is started again, or a network was down, all observers come back at once, and each wants what
it has missed.  To read the log for each of them, and to reckon from a snapshot what it knew, would cost
all facts and all of those epochs for every one.  Here it costs the changes of facts that are of a
pattern's class; what an observer knew follows from what the index counts now and from those changes alone.

Always: every epoch beyond ``after`` is here, in order; memory is bounded in changes and bytes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Final

from dataspace.codec import pack
from dataspace.kernel.changes import Epoch
from dataspace.steps import Steps, at_once
from index.patterns.readers import match_reader
from index.patterns.skeletons import Skeleton
from index.values.positions import Class, class_of
from index.values.values import Value, keys
from relay.delivery.packed import PackedChanges, packing
from relay.log.cursors import Captures, net_counts
from relay.log.reader import LogReader
from relay.log.replay import Rows
from relay.log.segments import Change

CHANGES: Final = 32_768
BYTES: Final = 4 << 20
"""Bytes of kept epochs, as they are encoded."""

CHANGE_BYTES: Final = 250
FACTOR: Final = 2
"""About what a change takes in memory, and each of its encoded bytes."""

TOLD: Final = 1_024
"""Changes that one observer gets from here; an observer that has missed more is fed from the log."""

STEP: Final = 128
"""Changes that are looked at in one step."""

SORTED: Final = 256
"""Changes that are sorted by class in one step."""

_number = itemgetter(0)


class RecentEpochs:
    """The latest epochs of one space, from the next one after ``after`` on."""

    def __init__(self, after: int, *, changes: int = CHANGES, size: int = BYTES) -> None:
        self.after = after
        self._began = after
        self._too_far = -1
        self._limit = changes
        self._limit_bytes = size
        self._epochs: deque[tuple[Change, int]] = deque()
        self._changes = self._bytes = 0
        self._of_class: dict[Class | None, list[Change]] = {}
        self._sorted_to = after
        self._gone = 0

    def __len__(self) -> int:
        return len(self._epochs)

    @property
    def bytes(self) -> int:
        """Returns about how many bytes of memory the epochs take; O(1)."""
        return CHANGE_BYTES * self._changes + FACTOR * self._bytes

    def add(self, epoch: Epoch, size: int) -> None:
        """Takes in the next epoch, of so many bytes; O(1) on average."""
        if not epoch[8]:  # silent
            change = epoch[:5]
            self._epochs.append((change, size))  # as ``_append``, for each turn
            self._changes += 1 + len(change[2]) + len(change[3]) + len(change[4])
            self._bytes += size
            while self._changes > self._limit or self._bytes > self._limit_bytes:
                self._forget()

    def lacks(self, after: int) -> bool:
        """True if epochs beyond this one were never here but can be read, and are not too many."""
        return self._too_far < after < self.after == self._began

    def missing(self, log: LogReader, after: int) -> list[Change] | None:
        """Returns what lies between an epoch and the first one here; None if it is too much.

        Blocks, and may run in a thread; ``put_before`` takes it in.  An excess is found only once in this
        way.
        """
        if not self.lacks(after):
            return None
        read: list[Change] = []
        room = self._limit - self._changes
        for segment in log.segments(after, self.after):
            for change in segment.changes_after(after, self.after):
                read.append(change)
                room -= _size(change)
                if room < 0:
                    self._too_far = after
                    return None
        return read

    def put_before(self, after: int, changes: Sequence[Change]) -> None:
        """Takes in what ``missing`` has read, unless something was forgotten meanwhile; O(all here)."""
        if self.after != self._began:
            return
        later, self._epochs = self._epochs, deque()
        for change in changes:
            self._append(change, 0)  # it is bounded by its count, as it was when it was written
        self._epochs += later
        self.after = self._began = after
        self._of_class.clear()
        self._sorted_to = after

    def of_class(self, after: int, root: Class | None) -> Sequence[Change]:
        """Returns the epochs beyond ``after`` with their changes of values of a class; all of them for None.

        O(epochs not asked about before) and O(found changes).
        """
        if root is None:
            return self._beyond(after)
        at_once(self.sort())
        found = self._of_class.get(root, [])
        return found[bisect_right(found, after, key=_number) :]

    def _append(self, change: Change, size: int) -> None:
        self._epochs.append((change, size))
        self._changes += _size(change)
        self._bytes += size

    def _forget(self) -> None:
        change, size = self._epochs.popleft()
        self._changes -= _size(change)
        self._bytes -= size
        self.after = change[0]
        self._gone += 1

    def is_sorted(self, most: int) -> bool:
        """True if ``of_class`` has no more than about so many changes to sort first; O(most)."""
        for change, _ in reversed(self._epochs):
            if change[0] <= self._sorted_to:
                return True
            most -= _size(change)
            if most < 0:
                return False
        return True

    def sort(self) -> Steps[None]:
        """Puts under their classes the epochs that have come since, and none that have gone, in steps."""
        if self._gone > len(self._epochs):
            self._of_class.clear()
            self._sorted_to = self.after
        if not self._of_class:
            self._gone = 0
        seen = 0
        for change in self._beyond(self._sorted_to):
            if change[0] <= self._sorted_to:
                continue  # it was done between two of these steps
            seen += _size(change)
            parts = at_once(_parts(change)) if seen < SORTED else (yield from _parts(change))
            if change[0] <= self._sorted_to:
                continue  # as above
            for root, part in parts:
                self._of_class.setdefault(root, []).append(part)
            self._sorted_to = change[0]
            if seen >= SORTED:
                seen = 0
                yield

    def _beyond(self, after: int) -> list[Change]:
        """Returns the epochs beyond ``after``; O(those)."""
        found: list[Change] = []
        for change, _ in reversed(self._epochs):
            if change[0] <= after:
                break
            found.append(change)
        found.reverse()
        return found


class RecentReplay:
    """What an observer of a pattern would have received since an epoch, found in steps.

    New epochs may come between two steps.  When ``step`` returns False all epochs there are have been looked
    at, or ``is_too_much`` is true and there is nothing to be had from here.
    """

    def __init__(self, recent: RecentEpochs, form: Skeleton, after: int) -> None:
        self._recent = recent
        self._root = form.shape[0][1] if form.shape else None
        self._match: Final = match_reader(form)
        self._at = after
        self._left_to_tell = TOLD
        self._found: list[Rows] = []
        self._packed: dict[int, bytes] = {}
        self._left: Iterator[Change] = iter(())
        self.is_too_much = False
        """True if the changes are too many, or epochs that were not looked at are no longer in memory."""

    def step(self, most: int = STEP) -> bool:
        """Looks at about ``most`` changes; returns False once there is nothing more to look at."""
        seen = 0
        while not self.is_too_much and seen < most:
            change = next(self._left, None)
            if change is None:
                later = self._later()
                if not later:
                    return False
                self._left = iter(later)
                continue
            seen += _size(change)
            self._take(change)
        return not self.is_too_much

    def epochs(self, count: Callable[[Captures], int]) -> Iterator[Rows]:
        """Returns the epochs with their visible changes.

        ``count`` returns how many facts there are now with some captures; called when the first is read.
        """
        return _visible(self._found, count)

    def values(self, count: Callable[[Captures], int]) -> list[PackedChanges]:
        """Returns the same as stream values; the rows were packed in the steps."""
        values: list[PackedChanges] = []
        for number, time, *lists in self.epochs(count):
            kinds = [[self._packed[id(row)] for row in rows] for rows in lists]
            values += at_once(packing((number, time, number, 0), kinds))
        return values

    def _later(self) -> Sequence[Change]:
        """Returns the epochs after the newest examined one."""
        self.is_too_much |= self._at < self._recent.after
        return () if self.is_too_much else self._recent.of_class(self._at, self._root)

    def _take(self, change: Change) -> None:
        number, time, added, messages, removed = change
        came, sent, went = self._rows(added), self._rows(messages), self._rows(removed)
        self._at = number
        if came or sent or went:
            self._found.append((number, time, came, sent, went))
            for rows in (came, sent, went):
                self._packed.update([(id(row), pack(row)) for row in rows])
            self._left_to_tell -= len(came) + len(sent) + len(went)
            self.is_too_much |= self._left_to_tell < 0

    def _rows(self, values: Iterable[Value]) -> list[Captures]:
        return [row for row in map(self._match, values) if row is not None]


def _visible(found: Sequence[Rows], count: Callable[[Captures], int]) -> Iterator[Rows]:
    """Yields these epochs with only the rows that were the first, or the last, of their kind."""
    net = net_counts((came, went) for _, _, came, _, went in found)
    # Not a RowCounts: after a short absence that would cost 11 µs instead of 7 for each observer that comes
    # back.  ``test_recent.py`` holds this equal to a live observer, ``test_replay.py`` the bag.
    there = {at: count(row) - by for at, (by, row) in net.items()}

    def turns(row: Captures, by: int) -> bool:
        at = keys(row)
        there[at] += by
        return there[at] == (1 if by > 0 else 0)

    for number, time, came, sent, went in found:
        first = [row for row in came if turns(row, +1)]
        last = [row for row in went if turns(row, -1)]
        if first or sent or last:
            yield number, time, first, sent, last


def _parts(change: Change) -> Steps[list[tuple[Class | None, Change]]]:
    """Returns an epoch by the classes of its values, in steps; mostly there is one class."""
    number, time, *lists = change
    parts: dict[Class | None, tuple[list[Value], list[Value], list[Value]]] = {}
    for at, values in enumerate(lists):
        for begin in range(0, len(values), SORTED):
            if begin:
                yield
            for value in values[begin : begin + SORTED]:
                root = class_of(value)
                part = parts.get(root)
                if part is None:
                    part = parts[root] = ([], [], [])
                part[at].append(value)
    if len(parts) == 1:
        return [(next(iter(parts)), change)]  # it takes no memory of its own
    return [(root, (number, time, *part)) for root, part in parts.items()]


def _size(change: Change) -> int:
    return 1 + len(change[2]) + len(change[3]) + len(change[4])
