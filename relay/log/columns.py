"""Columnar replays: what an observer would have received, by the column instead of by the change.

A reader of a million changes needs columns in the end, and a row that is made for each change, packed,
unpacked and taken apart again is work for nothing.  So here captures are taken from the log's plain rows
without making the records, and leave as one packed column for each capture.  Order and meaning are the same
as in ``Replay``.

If captures distinguish facts, the net change of the facts is the net change of the captures, and nothing need
be counted: not the state at the beginning, nor the changes on the way.  That holds for patterns that are
*faithful* (see ``selections``) as long as no fact is wider than they say; from the epoch with a wider fact
on, captures are counted.

Always: the changes of the blocks, in order, equal the changes of ``Replay.epochs``; a block holds whole
epochs unless it is flagged ``MORE``; memory is about 256 KiB of the log and one block, and the bag where
captures are counted.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final

from dataspace.codec import low_first, packer
from dataspace.errors import UsageError
from dataspace.kernel.actions import MORE, SNAPSHOT
from index.patterns.patterns import DISCARD
from index.patterns.skeletons import skeleton
from index.values.values import Record, Value
from relay.delivery.blocks import ColumnBlock, cut
from relay.log.cursors import Captures, RowCounts, Since, TimedCounts
from relay.log.replay import Bag, BagBase, Live, Replay, ReplayedLog, Selected, started
from relay.log.segments import Rows, Segment, table
from relay.log.selections import Counts, Flat, flat_places, records_only
from relay.log.shares import StateShares, StateSorter

BLOCK_ROWS: Final = 16_384
"""Changes after which a block is closed, and that it holds at most."""

BLOCK_BYTES: Final = 1 << 20
"""About how much a block takes at most, unless one change alone is larger."""

UNKNOWN: Final[Since] = -1, -1, None
"""Stands for the epoch, time and owner of messages, and of rows that are older than the oldest epoch."""

SETTLED_ROWS: Final = 2048
"""Rows that are turned into columns at once: as many as a processor's cache can hold."""


class ColumnReplay(Replay):
    """A replay that answers with blocks.  For one thread at a time; all calls block."""

    def __init__(
        self,
        log: ReplayedLog,
        pattern: Value,
        after: int,
        *,
        live: Live | None = None,
        captures: Sequence[int] | None = None,
        places: bool = False,
        asserted: bool = False,
        owners: bool = False,
        share: tuple[int, int] | None = None,
        shares: StateShares | None = None,
    ) -> None:
        """``captures`` are the numbers of those to be sent, by default all; which rows there are is the same.

        With ``places``, blocks say which change of its epoch each row is; with ``asserted``, since when it
        was there, with ``owners``, by whose claim it came.  For these everything since the oldest epoch is
        read, unless an earlier reader has left off.  Of a state, only a ``share`` is sent, out of ``shares``
        if these are known.  Raises ``UsageError`` for the number of a capture that the pattern has not.
        """
        super().__init__(log, pattern, after, live=live)
        self._form: Final = skeleton(pattern)
        self._shown: Final = _shown(captures, len(self._form.captures))
        self._placed: Final = places
        self._pattern: Final = pattern
        self._timed: Final = asserted or owners
        self._rest_of: Final = places, asserted, owners
        self._owned: Final = owners
        if self._timed:
            self._empty = TimedCounts
            self._name = "owned" if owners else "asserted", self._name
        self._share: Final = share
        self._shares = shares
        self._places_of: Callable[[Sequence[Any]], list[int]] | None = None
        flat = self._flat
        self._apart = not self._timed and (
            () in self._form.captures or (flat is not None and flat.faithful and flat.exact)
        )
        """True if captures distinguish facts whatever facts there are."""
        self._counted = True

    def at_hand(self) -> bool:
        """True if the starting state is known already, so that ``live`` is not needed."""
        if self._share is not None:
            return self._kept_shares() is not None
        name = self._name
        if self._flat is not None and self._flat.faithful:
            name = _Watch.name_of(self._flat)
        found = self._log.cursors.find(name, self.at)
        return self._apart or (found is not None and found[0] == self.at)

    def state(self, time: int) -> Iterator[ColumnBlock]:
        """Yields the captures at the epoch where this replay is, which was made at ``time``."""
        forming = _Forming(self._shown, self._rest_of, SNAPSHOT)
        if self._share is not None:
            yield from self._part_of_state(forming, self._share, time)
            return
        rows, bag = self.bag(), self._prepared()
        since = bag.since() if isinstance(bag, TimedCounts) else None
        Replay.leave(self)  # so that the same state is at hand for the next reader
        for start in range(0, len(rows), BLOCK_ROWS):
            part = rows[start : start + BLOCK_ROWS]
            if since is not None:
                forming.since += since[start : start + BLOCK_ROWS]
            forming.add(self.at, time, (part, [], []), None, 64 * len(part))
            yield from forming.blocks()

    def _part_of_state(self, forming: _Forming, share: tuple[int, int], time: int) -> Iterator[ColumnBlock]:
        shares = self.shares()
        places = shares.places(*share)
        for start in range(places.start, places.stop, BLOCK_ROWS):
            part = places[start - places.start :][:BLOCK_ROWS]
            forming.since += shares.since(part)
            forming.add(self.at, time, ([*shares.rows(part)], [], []), part, 64 * len(part))
            yield from forming.blocks()

    def shares(self) -> StateShares:
        """Returns the state at the epoch where this replay is, to be read in parts, and keeps it for others.

        About 2 µs a row where it is not there yet, beside making the bag; where another thread is at that,
        this one waits for it.
        """
        found = self._kept_shares() if self._shares is None else self._shares
        if found is None:
            with self._log.cursors.preparing(shares_name(self._name), self.at):
                found = self._kept_shares()  # of the thread before
                if found is None:
                    found = self._sorted_shares()
        return found

    def _sorted_shares(self) -> StateShares:
        sorter = self.from_nearest(partial(StateSorter, timed=self._timed))
        found = sorter.shares()
        if self._log.is_settled(self.at):
            self._log.cursors.leave(shares_name(self._name), self.at, found)
        return found

    def _kept_shares(self) -> StateShares | None:
        found = self._log.cursors.find(shares_name(self._name), self.at)
        return found[1] if found is not None and found[0] == self.at >= self._log.erased else None

    def blocks(self, upto: int) -> Iterator[ColumnBlock]:
        """Yields the changes of the epochs (at, upto]; as ``Replay.epochs``."""
        forming = _Forming(self._shown, self._rest_of)
        if upto > self.at:
            self._counted = not self._are_distinct()
            for segment in self._log.segments(self.at, upto):
                self._add_segment(forming, segment, upto)
                self.at = max(self.at, min(segment.last, upto))
                if forming.full:
                    yield from forming.blocks()
            self.at = upto
            self.leave()
        yield from forming.blocks()

    def leave(self) -> None:
        """Keeps the state reached for readers that continue from here."""
        if self._counted:
            super().leave()
        elif self._flat is not None and not self._apart and self._log.is_settled(self.at):
            self._log.cursors.leave(_Watch.name_of(self._flat), self.at, RowCounts())

    def _are_distinct(self) -> bool:
        """True if captures distinguish the facts that there are at the beginning."""
        flat = self._flat
        if self._timed:
            return False
        if self._apart or flat is None or not flat.faithful:
            return self._apart
        watch = _Watch(self._log, flat, self.at, self.live)
        watch.prepare()
        if not watch.found:
            watch.leave()
        return not watch.found

    def _add_segment(self, forming: _Forming, segment: Segment, upto: int) -> None:
        share = len(segment.body) // max(1, segment.entries)
        if self._timed:
            for entry, owners in _with_owners(segment, self.at, upto, owned=self._owned):
                forming.add(entry[0], entry[1], *self._captured_since(forming, entry, owners), share)
            return
        entries = [*segment.rows_after(self.at, upto)]
        if not self._counted and self._added_whole(forming, entries, share):
            return
        for number, time, counts, rows, plain in entries:
            selected, places = self._captured(number, counts, rows, plain)
            forming.add(number, time, selected, places, share)

    def _added_whole(self, forming: _Forming, entries: Sequence[Rows], share: int) -> bool:
        """Adds all epochs at once, if all their values match; the usual case of a log of one kind."""
        if self._flat is None or any(plain for *_, plain in entries):
            return False
        rows = [*chain.from_iterable([rows[: sum(counts)] for _, _, counts, rows, _ in entries])]
        columns = self._flat.columns(rows) if 0 < len(rows) <= BLOCK_ROWS else None
        if columns is None:
            return False
        runs = [(number, time, *counts) for number, time, counts, _, _ in entries if any(counts)]
        forming.add_columns(runs, [columns[at] for at in self._shown], share * len(entries))
        return True

    def _captured(
        self, number: int, counts: Counts, rows: Sequence[Any], plain: Sequence[int]
    ) -> tuple[Selected, Sequence[int] | None]:
        """Returns the captures that came, were sent and went in one epoch; the first and last of their kind
        where they are counted.

        Beside them their places in the epoch, or None where these are not wanted, or 0, 1, 2 and so on.
        """
        whole = counts, rows, plain
        if self._flat is not None and not self._counted:
            counts, rows = records_only(counts, rows, plain)
            plain = ()
            if self._flat.wider(rows):
                self._counted, self._bag, self.at = True, None, number - 1
        came, sent, went = self._selected(counts, rows, plain)
        if not self._placed:
            if self._counted:
                bag = self.own_bag()
                came = bag.add_all(came) if came else came
                went = bag.remove_all(went) if went else went
            return (came, sent, went), None
        places = self._places(*whole, found=len(came) + len(sent) + len(went))
        if self._counted:
            bag, end = self.own_bag(), len(came) + len(sent)
            first, last = bag.first_at(came), bag.last_at(went)
            places = [
                *[places[at] for at in first],
                *places[len(came) : end],
                *[places[end + at] for at in last],
            ]
            came, went = [came[at] for at in first], [went[at] for at in last]
        is_dense = not places or places[-1] == len(places) - 1  # since they ascend
        return (came, sent, went), None if is_dense else places

    def _captured_since(
        self, forming: _Forming, entry: Rows, owners: Sequence[str | None] | None
    ) -> tuple[Selected, Sequence[int] | None]:
        """Does the same, always counted, and notes since when each row was there, and by whose claim."""
        bag = self.own_bag()
        assert isinstance(bag, TimedCounts)  # as it was made
        (came, sent, went), places = self._taken(bag, entry, owners)
        first, end = bag.first_at(came), len(came) + len(sent)
        last, since = bag.ended(went)
        now = entry[:2]
        begun = [(*now, None if bag.owners is None else bag.owners[at]) for at in first]
        forming.since += [*begun, *[None] * len(sent), *since]
        places = [
            *[places[at] for at in first],
            *places[len(came) : end],
            *[places[end + at] for at in last],
        ]
        selected = [came[at] for at in first], sent, [went[at] for at in last]
        is_dense = not places or places[-1] == len(places) - 1
        return selected, None if is_dense or not self._placed else places

    def _taken(
        self, bag: TimedCounts | StateSorter, entry: Rows, owners: Sequence[str | None] | None
    ) -> tuple[Selected, Sequence[int]]:
        """Returns the captures of an epoch and their places; tells the bag the epoch and the owners."""
        number, time, counts, rows, plain = entry
        came, sent, went = self._selected(counts, rows, plain)
        places = self._places(counts, rows, plain, found=len(came) + len(sent) + len(went))
        bag.now = number, time
        bag.owners = None if owners is None else [owners[at] for at in places[: len(came)]]
        return (came, sent, went), places

    def _bases(self, empty: Callable[[], Bag]) -> Iterator[BagBase[Bag]]:
        """Yields the states that a replay may begin with: only earlier ones, where time is to be known."""
        if not self._timed:
            yield from super()._bases(empty)
            return
        found = self._log.cursors.find(self._name, self.at)
        if found is not None and found[0] <= self.at:
            yield BagBase(found[0], 0, lambda: started(empty, *found))
        yield BagBase(max(0, self._log.oldest - 1), 1, lambda: self._oldest_bag(empty))

    def _oldest_bag(self, empty: Callable[[], Bag]) -> tuple[int, Bag]:
        """Returns the oldest state that there is; since when it was so is not known."""
        epoch = max(0, self._log.oldest - 1)
        if not epoch:
            return epoch, empty()
        return epoch, Replay(self._log, self._pattern, epoch, live=self.live).from_nearest(empty)

    def _bag_from(self, base: BagBase[Bag]) -> Bag:
        if not self._timed:
            return super()._bag_from(base)
        epoch, bag = base.make()
        assert isinstance(bag, TimedCounts | StateSorter)  # as only these are asked for
        if not self._owned:
            for number, time, added, _, removed in self._changes(epoch, self.at):
                bag.now = number, time
                bag.change(self._rows(added), self._rows(removed))
            return bag
        for segment in self._log.segments(epoch, self.at) if epoch < self.at else ():
            self.pace()
            for entry, owners in segment.owned_rows_after(epoch, self.at):
                (came, _, went), _ = self._taken(bag, entry, owners)
                bag.change(came, went)
        return bag

    def _places(
        self, counts: Counts, rows: Sequence[Any], plain: Sequence[int], *, found: int
    ) -> Sequence[int]:
        """Returns the places of the ``found`` values of an epoch that match."""
        count = sum(counts)
        if found == count:
            return range(count)
        if self._flat is None:
            return [
                at for at, value in enumerate(table(rows, plain, count)) if self._match(value) is not None
            ]
        if self._places_of is None:
            self._places_of = flat_places(self._form, self._flat)
        if not plain:
            return self._places_of(rows[:count])
        bare = {*plain}
        kept = [at for at in range(count) if at not in bare]
        return [kept[at] for at in self._places_of([rows[at] for at in kept])]


def _shown(captures: Sequence[int] | None, width: int) -> Sequence[int]:
    """Returns the numbers of the captures that are sent."""
    if captures is None:
        return range(width)
    if [*captures] != sorted({*captures} & {*range(width)}):
        raise UsageError(f"captures must be ascending numbers below {width}, got {captures!r:.60}")
    return captures


def _with_owners(
    segment: Segment, after: int, upto: int, *, owned: bool
) -> Iterator[tuple[Rows, Sequence[str | None] | None]]:
    """Yields the epochs of a segment, with the owner of each added value if that is wanted."""
    if owned:
        yield from segment.owned_rows_after(after, upto)
    else:
        for entry in segment.rows_after(after, upto):
            yield entry, None


def shares_name(of: Hashable) -> Hashable:
    """Returns the name under which the shares of a state are kept; ``of`` is the key of its pattern."""
    return "shares", of


class _Watch(Replay):
    """Looks for facts that are wider than a pattern says, from the nearest state where there are none.

    Its bag stays empty; an empty bag that was left under its name says that there were none.
    """

    def __init__(self, log: ReplayedLog, flat: Flat, after: int, live: Live | None) -> None:
        super().__init__(log, DISCARD, after, live=live)
        self._name = self.name_of(flat)
        self._label, self._fields = flat.label, flat.parts - 1
        self.found = False

    @staticmethod
    def name_of(flat: Flat) -> Hashable:
        """Returns what stands for the question; no pattern has such a key."""
        return ("wider", flat.label, flat.parts)

    def _rows(self, values: Iterable[Value]) -> list[Captures]:
        label, fields = self._label, self._fields
        self.found = self.found or any(
            value.__class__ is Record and len(value.fields) > fields and value.label == label
            for value in values
        )
        return []


class _Forming:
    """A block that is being filled, epoch by epoch."""

    def __init__(self, shown: Sequence[int], rest: tuple[bool, bool, bool], flags: int = 0) -> None:
        """``rest`` says what is sent of each row beside: its place, since when it was there, its owner."""
        self._shown = shown
        self._flags = flags
        self._rest_of = rest
        self._pack = packer()
        self._clear()

    def _clear(self) -> None:
        self._runs: list[tuple[int, ...]] = []
        self._rows: list[Captures] = []
        self._columns: list[list[Value]] = [[] for _ in self._shown]
        self._places: list[Sequence[int] | None] = []
        self.since: list[Since | None] = []
        self._length = 0
        self._bytes = 0

    @property
    def full(self) -> bool:
        return self._length >= BLOCK_ROWS or self._bytes >= BLOCK_BYTES

    def add(self, number: int, time: int, rows: Selected, places: Sequence[int] | None, size: int) -> None:
        """Adds one epoch, of about ``size`` bytes in the log; one without changes is ignored."""
        added, messages, removed = rows
        if added or messages or removed:
            self._places.append(places)
            self._runs.append((number, time, len(added), len(messages), len(removed)))
            self._rows += added
            self._rows += messages
            self._rows += removed
            self._length += len(added) + len(messages) + len(removed)
            self._bytes += size

    def add_columns(
        self, runs: Sequence[tuple[int, ...]], columns: Sequence[Sequence[Value]], size: int
    ) -> None:
        """Adds several epochs, each with changes and all of them, by the column."""
        self._settle()
        self._runs += runs
        self._places += [None] * len(runs)
        self._length += sum([sum(run[2:]) for run in runs])
        self._bytes += size
        for column, values in zip(self._columns, columns, strict=True):
            column += values

    def _settle(self) -> None:
        """Turns the rows that came one by one into columns, some at a time."""
        for start in range(0, len(self._rows) if self._shown else 0, SETTLED_ROWS):
            parts = [*zip(*self._rows[start : start + SETTLED_ROWS], strict=True)]
            for column, at in zip(self._columns, self._shown, strict=True):
                column += parts[at]
        self._rows = []

    def blocks(self) -> Iterator[ColumnBlock]:
        """Yields what has been added, as blocks, which are more than one where an epoch is large."""
        self._settle()
        count = self._length
        most = min(BLOCK_ROWS, max(1, BLOCK_BYTES * count // max(1, self._bytes)))
        places = self._all_places()
        if count > 2 * most:
            for runs, skipped, start, stop, more in cut(self._runs, most):
                columns = [column[start:stop] for column in self._columns]
                rest = self._rest(places, start, stop)
                yield self._block(runs, stop - start, columns, rest, skipped, more=more)
        elif count:
            rest = self._rest(places, 0, count)
            yield self._block(self._runs, count, self._columns, rest, 0, more=False)
        self._clear()

    def _rest(self, places: array[int] | None, start: int, stop: int) -> list[object]:
        """Returns the parts of a block behind its columns, as far as they are wanted."""
        placed, timed, owned = self._rest_of
        parts: list[object] = [low_first(places[start:stop]) if placed and places is not None else None]
        since = [each or UNKNOWN for each in self.since[start:stop]]
        epochs, times, owners = zip(*since, strict=True) if since else ((), (), ())
        parts.append([low_first(array("q", each)) for each in (epochs, times)] if timed else None)
        parts.append(owners if owned else None)
        while parts and parts[-1] is None and not (placed and len(parts) == 1):
            parts.pop()
        return parts

    def _all_places(self) -> array[int] | None:
        """Returns the place of each row in its epoch; None if these are 0, 1, 2 and so on in all of them."""
        if not any(self._places):
            return None
        made = array("i")
        for run, places in zip(self._runs, self._places, strict=True):
            made.extend(range(sum(run[2:])) if places is None else places)
        return made

    def _block(
        self,
        runs: Iterable[tuple[int, ...]],
        length: int,
        columns: Sequence[Sequence[Value]],
        rest: Sequence[object],
        skipped: int,
        *,
        more: bool,
    ) -> ColumnBlock:
        flags = self._flags | (MORE if more else 0)
        value = [flags, skipped, *zip(*runs, strict=True), columns, *rest]
        return ColumnBlock(length, self._pack(value))
