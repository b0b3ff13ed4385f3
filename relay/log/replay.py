"""Replays: what an observer of a pattern would have received, read from the log.

The index sends an observer ``+`` for the first fact with certain captures and ``-`` for the last, so a
reader of the past must know how many facts there were with each captures at the epoch where it begins.
That bag is made from whatever is nearest: a cursor that an earlier reader left, the newest snapshot of the
state, the facts that hold now, or the emptiness before the first epoch; and from there through the log,
forwards or, since net changes can be undone, backwards.

Always: a replay from any epoch gives exactly the events that a live observer received, in the same order;
it holds the bag and about 256 KiB of the log in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, Generic, Protocol, TypeVar

from dataspace.kernel.changes import Epoch
from dataspace.steps import batched
from index.patterns.patterns import capture
from index.patterns.readers import match_reader
from index.patterns.skeletons import skeleton
from index.values.values import Value, key
from relay.log.cursors import Captures, Cursors, FactRows, RowCounts, key_bytes, row_keys
from relay.log.segments import Change, Segment, table
from relay.log.selections import Counts, Select, flat_selection, records_only
from relay.log.snapshots import ClaimedValues
from relay.store.errors import LogDamaged

Rows = tuple[int, int, list[Captures], list[Captures], list[Captures]]
"""Number and time of an epoch, and the captures added, sent and removed in it."""

Selected = tuple[list[Captures], list[Captures], list[Captures]]
"""The captures added, sent and removed in an epoch."""


@dataclass(frozen=True, slots=True)
class Live:
    """The facts that hold at ``epoch``, and the entries up to it that are not on disk yet.

    A silent entry waits for the disk like any other, but has no visible change, and its number may be an
    epoch that is on disk already: so only visible entries say how far the disk is.
    """

    epoch: int
    facts: Iterable[Value]
    pending: Sequence[Epoch] = ()

    @property
    def unwritten(self) -> list[Epoch]:
        """Returns the epochs that hold in ``facts`` and are not on disk, in order."""
        return [each for each in self.pending if not each.silent]

    @property
    def durable(self) -> int:
        """Returns the epoch whose state is ``facts`` without what is unwritten; all up to it are on disk."""
        return next((each.number - 1 for each in self.pending if not each.silent), self.epoch)


LOOKED_AT: Final = 64
"""Epochs without changes after which a replay in steps lets others work."""

PACE_VALUES: Final = 512
"""Values of a state that are read between two calls of ``Replay.pace``."""


class ReplayedLog(Protocol):
    """The epochs that a replay reads: a log, or an archive without one.  Calls block."""

    @property
    def cursors(self) -> Cursors:
        """Returns the states that earlier readers left."""

    @property
    def oldest(self) -> int:
        """Returns the oldest epoch that can be read."""

    @property
    def erased(self) -> int:
        """Returns the newest epoch that an erasure reached: earlier states may have erased facts."""

    def check_retained(self, after: int) -> None:
        """Raises ``Refused("epoch-gone")`` for an epoch whose successors are not all there."""

    def segments(self, after: int, upto: int) -> Iterator[Segment]:
        """Returns the segments that hold the epochs in (after, upto], and more at both ends."""

    def distance(self, one: int, other: int) -> int:
        """Returns about how many segments lie between two epochs."""

    def is_settled(self, epoch: int) -> bool:
        """True if all epochs up to this one are there that ever will be."""

    def snapshot_epoch(self) -> int | None:
        """Returns the epoch of the newest state that is kept, or None."""

    def snapshot_values(self) -> AbstractContextManager[tuple[int, Iterable[ClaimedValues]]]:
        """Lends that epoch and the values that were claimed after it, in parts; a value may come again."""


class StateBag(Protocol):
    """Counts the rows of a state: in memory (``RowCounts``), or to sort them (``StateSorter``)."""

    def start_from(self, bag: RowCounts) -> None:
        """Takes the rows of a bag, which is not changed."""

    def add_facts(self, parts: Iterable[FactRows]) -> None:
        """Adds the captures of facts, each fact once, where a fact may come several times."""

    def change(self, added: Sequence[Captures], removed: Sequence[Captures]) -> None:
        """Adds many facts and then removes many."""

    def undo(self, epochs: Iterable[tuple[Sequence[Captures], Sequence[Captures]]]) -> None:
        """Takes back what epochs added and removed."""


Bag = TypeVar("Bag", bound=StateBag)


class Replay:
    """One reader of one pattern, at an epoch.  For one thread at a time; all calls but ``tail`` block.

    ``pace`` is called again and again while the bag is made, and may block so that others can work.
    """

    def __init__(self, log: ReplayedLog, pattern: Value, after: int, *, live: Live | None = None) -> None:
        """Raises ``UsageError`` for no pattern, ``Refused("epoch-gone")`` for a beginning not retained."""
        log.check_retained(after)
        self.at = after
        self.pace: Callable[[], None] = _at_once
        self._log = log
        self.live = live
        form = skeleton(pattern)
        self._match: Final = match_reader(form)
        self._flat: Final = flat_selection(form)
        self._whole: Final = () in form.captures
        self._name: Hashable = key(pattern)
        self._empty: type[RowCounts] = RowCounts
        self._bag: RowCounts | None = None
        self._kept = False

    def at_hand(self) -> bool:
        """True if the starting state is known already, so that ``live`` is not needed."""
        found = self._log.cursors.find(self._name, self.at)
        return found is not None and found[0] == self.at >= self._log.erased

    @property
    def held(self) -> int:
        """Returns how many rows it holds that are not kept for others as well."""
        return 0 if self._bag is None or self._kept else len(self._bag)

    def prepare(self) -> None:
        """Makes the bag at the beginning, unless it is there; O(distance to the nearest known state)."""
        if self._bag is None:
            self._bag, self._kept = self.from_nearest(self._empty), False

    def bag(self) -> list[Captures]:
        """Returns the distinct captures at the epoch where this replay is."""
        return self._prepared().rows()

    def epochs(self, upto: int) -> Iterator[Rows]:
        """Yields the changes of the epochs (at, upto], each epoch whole; epochs without changes are left out.

        ``upto`` must be on disk.  It can be left off between epochs and gone on with later.  Raises as
        ``Log.read``.
        """
        for rows in self.steps(upto):
            if rows is not None:
                yield rows

    def steps(self, upto: int, segments: Sequence[Segment] | None = None) -> Iterator[Rows | None]:
        """Does the same, and yields None after every ``LOOKED_AT`` epochs without changes, and after segments
        in which as many entries are notes.

        So a caller in the event loop can let others work, whatever part of the log matches.  ``segments`` has
        these epochs, if the caller has read them already.
        """
        bag, looked_at = self.own_bag(), 0
        if segments is None and upto <= self.at:
            segments = ()
        for segment in self._log.segments(self.at, upto) if segments is None else segments:
            for number, time, counts, rows, plain in segment.rows_after(self.at, upto):
                came, sent, went = self._selected(counts, rows, plain)
                self.at = number
                if came:
                    came = bag.add_all(came)
                if went:
                    went = bag.remove_all(went)
                if came or sent or went:
                    looked_at = 0
                    yield number, time, came, sent, went
                elif looked_at < LOOKED_AT:
                    looked_at += 1
                    continue
                else:
                    looked_at = 0
                    yield None
                if self._kept:
                    bag = self.own_bag()
            looked_at += segment.entries  # notes among them are read as well, but come as no rows
            if looked_at > LOOKED_AT:
                looked_at = 0
                yield None
                if self._kept:
                    bag = self.own_bag()
        self.at = max(self.at, upto)
        self.leave()

    def tail(self, epochs: Iterable[Epoch]) -> Iterator[Rows]:
        """Yields the same for epochs that follow and are not on disk yet."""
        bag = self.own_bag()
        for epoch in epochs:
            if not epoch.silent:
                came, went = bag.add_all(self._rows(epoch.added)), bag.remove_all(self._rows(epoch.removed))
                sent = self._rows(epoch.messages)
                self.at = epoch.number
                if came or sent or went:
                    yield epoch.number, epoch.time, came, sent, went

    def _selected(self, counts: Counts, rows: Sequence[Any], plain: Sequence[int]) -> Selected:
        """Returns the captures that came, were sent and went in one epoch, from its rows in the log."""
        if self._flat is None:
            select: Select = self._rows
            rows = table(rows, plain, sum(counts))
        else:
            select = self._flat.select
            if plain:
                counts, rows = records_only(counts, rows, plain)
        added, messages, removed = counts
        end = added + messages
        came = select(rows[:added]) if added else []
        sent = select(rows[added:end]) if messages else []
        went = select(rows[end : end + removed]) if removed else []
        return came, sent, went

    # -- the bag --------------------------------------------------------------------------------------

    def _prepared(self) -> RowCounts:
        self.prepare()
        assert self._bag is not None  # as just prepared
        return self._bag

    def own_bag(self) -> RowCounts:
        """Returns the bag, to be changed: a bag that was left for others is copied first."""
        bag = self._prepared()
        if self._kept:
            bag = self._bag = bag.copy()
            self._kept = False
        return bag

    def leave(self) -> None:
        """Keeps the bag for readers that continue from here, if no later write can belong in it."""
        bag = self._prepared()
        if self._log.is_settled(self.at):
            self._kept = True
            self._log.cursors.leave(self._name, self.at, bag)

    def from_nearest(self, empty: Callable[[], Bag]) -> Bag:
        """Returns the bag at ``at``, from the nearest base that is not behind a damaged segment.

        ``empty`` makes the bag; it is called again if a base turns out to be damaged.
        """
        bases = [base for base in self._bases(empty) if base.epoch >= self._log.oldest - 1]
        damage = LogDamaged(f"no state is known from which epoch {self.at} could be reached")
        for base in sorted(bases, key=lambda base: self._log.distance(base.epoch, self.at) + base.cost):
            try:
                return self._bag_from(base)
            except LogDamaged as found:
                damage = found
        raise damage

    def _bag_from(self, base: BagBase[Bag]) -> Bag:
        epoch, bag = base.make()  # which says itself of which epoch it is: a snapshot may be newer by now
        if epoch <= self.at:
            for segment in self._log.segments(epoch, self.at) if epoch < self.at else ():
                self.pace()
                for _, _, counts, rows, plain in segment.rows_after(epoch, self.at):
                    came, _, went = self._selected(counts, rows, plain)
                    bag.change(came, went)
        else:
            bag.undo(self._matched(self._changes(self.at, epoch)))
        return bag

    def _bases(self, empty: Callable[[], Bag]) -> Iterator[BagBase[Bag]]:
        log = self._log
        cursor = log.cursors.find(self._name, self.at)
        if cursor is not None and cursor[0] >= log.erased:  # the first of all that are equally near
            yield BagBase(cursor[0], 0, lambda: started(empty, *cursor))
        yield BagBase(0, 0, lambda: (0, empty()))
        try:
            snapshot = log.snapshot_epoch()
        except LogDamaged:
            snapshot = None  # there may be another way
        if snapshot is not None and snapshot >= log.erased:
            yield BagBase(snapshot, 1, lambda: self._bag_of_snapshot(empty))
        if self.live is not None:
            yield BagBase(self.live.durable, 1, lambda: self._bag_of_live(empty))

    def _bag_of_snapshot(self, empty: Callable[[], Bag]) -> tuple[int, Bag]:
        bag = empty()
        with self._log.snapshot_values() as (epoch, parts):
            bag.add_facts(self._rows_of_facts(parts))
        return epoch, bag

    def _rows_of_facts(self, parts: Iterable[ClaimedValues]) -> Iterator[FactRows]:
        """Yields captures of claimed values, and hashes of the values: none, or an empty one, where captures
        say which it is."""
        flat = self._flat
        narrow = flat if flat is not None and flat.faithful else None
        for rows, plain in parts:
            every: Sequence[Any] = table(rows, plain, len(rows))
            if flat is not None:
                every = records_only((len(rows), 0, 0), rows, plain)[1]
            for some in batched(every, PACE_VALUES):
                self.pace()
                if self._whole or (narrow is not None and not narrow.wider(some)):
                    yield self._rows(some) if flat is None else flat.select(some), None
                    continue
                found = [flat.select([each]) if flat else self._rows([each]) for each in some]
                matched = [(each,) for each, rows in zip(some, found, strict=True) if rows]
                hashes = [
                    # the same for a fact wherever it comes: here, or where all facts are as narrow
                    b"" if narrow and not narrow.wider(each) else _hashed(at)
                    for each, at in zip(matched, row_keys(matched), strict=True)
                ]
                yield [row for rows in found for row in rows], hashes

    def _bag_of_live(self, empty: Callable[[], Bag]) -> tuple[int, Bag]:
        """Returns the bag of what holds now, taken back to where the disk is."""
        assert self.live is not None  # else it is no base
        bag = empty()
        for some in batched(self.live.facts, PACE_VALUES):
            bag.change(self._rows(some), ())
            self.pace()
        unwritten = self.live.unwritten
        bag.undo(self._matched([(e.number, e.time, e.added, (), e.removed) for e in unwritten]))
        return self.live.durable, bag

    def _matched(self, changes: Iterable[Change]) -> Iterator[tuple[list[Captures], list[Captures]]]:
        rows = self._rows
        return ((rows(added), rows(removed)) for _, _, added, _, removed in changes)

    def _changes(self, after: int, upto: int) -> Iterator[Change]:
        for segment in self._log.segments(after, upto) if after < upto else ():
            self.pace()
            yield from segment.changes_after(after, upto)

    def _rows(self, values: Iterable[Value]) -> list[Captures]:
        return [row for row in map(self._match, values) if row is not None]


def _hashed(key: Hashable) -> bytes:
    return blake2b(key_bytes(key), digest_size=16).digest()


def _at_once() -> None:
    """Does not yield: nothing else runs meanwhile."""


@dataclass(frozen=True, slots=True)
class BagBase(Generic[Bag]):
    """A state to begin from: its epoch, what using it costs beyond the way from there, in segments."""

    epoch: int
    cost: int
    make: Callable[[], tuple[int, Bag]]


def started(empty: Callable[[], Bag], epoch: int, base: RowCounts) -> tuple[int, Bag]:
    """Returns an epoch and a bag that starts from another one there; O(rows)."""
    bag = empty()
    bag.start_from(base)
    return epoch, bag


def state_at(log: ReplayedLog, epoch: int) -> list[Value]:
    """Returns the facts that held after an epoch, in no certain order.

    O(distance to the nearest known state).
    """
    return [row[0] for row in Replay(log, capture(), epoch).bag()]
