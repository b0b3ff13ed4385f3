"""Reading a journal: the topics that are in it, their steps, and their completed epochs by number.

The half of the journal that changes nothing.  It is apart from the writing half so that it can be verified
while a daemon writes it, from a copy, or from a medium that cannot be written.

Always: a step or an epoch that was altered or is missing is ``LogDamaged``, never served.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeVar

from dataspace.topics.antichains import Antichain
from dataspace.topics.times import Time
from relay.journal.rows import (
    FORMAT,
    SLOT_BITS,
    Begun,
    Row,
    epoch_of,
    frontier_of,
    is_slot,
    key,
    last_name,
    span,
    step_of,
    topic_of,
)
from relay.store.acknowledged import AcknowledgedMark
from relay.store.errors import LogDamaged
from relay.store.reader import StoreReader
from relay.store.storage import Storage, check_format
from relay.topics.steps import Completed, Moved, Step, StepLog

PART_BYTES: Final = 1 << 20
"""About what one reading of steps gives."""

MOST_EPOCHS: Final = 4_096
"""Epochs that one reading gives at most, and rows that one question fetches."""

LAST: Final = (1 << SLOT_BITS) - 1
"""Beyond every position and number."""

_TOPIC: Final = (
    "SELECT slot, topics.seal, topics.body, position, states.seal, states.body"
    " FROM topics JOIN states USING (slot) WHERE slot = ?"
)
_EPOCHS: Final = "SELECT * FROM epochs WHERE id BETWEEN ? AND ? ORDER BY id"
_STEPS: Final = "SELECT * FROM steps WHERE id BETWEEN ? AND ? ORDER BY id"
_ENDS: Final = "SELECT name FROM meta WHERE name LIKE 'last:%'"
_FRONTIERS: Final = "SELECT * FROM frontiers WHERE id BETWEEN ? AND ? ORDER BY id"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Piece:
    """One epoch, or a part of it: packed batches, and whether there are more in the next piece."""

    number: int
    time: Time
    crashed: str
    items: tuple[bytes, ...]
    next: tuple[int, int] | None
    """Where to go on within the epoch: a partition and a position."""


class JournalReader(StoreReader):
    """Reads the file ``topics.sqlite`` of a data directory, from any number of threads."""

    FILE = "topics.sqlite"
    MARK = "topics-acknowledged"

    def __init__(self, storage: Storage, mark: AcknowledgedMark) -> None:
        """``LogDamaged`` for a file of another format."""
        super().__init__(storage, mark)
        meta = dict(storage.rows("SELECT name, value FROM meta"))
        check_format(storage.path, meta, FORMAT)
        self.count: int = meta.get("steps", 0)
        if self.count.__class__ is not int:
            raise self._damage("the count of steps was altered")

    def shortfall(self) -> str:
        if self.count < self._acknowledged.epoch:
            return f"{self._acknowledged.epoch} steps of topics were acknowledged, it holds {self.count}"
        known = set(map(last_name, self.slots()))
        missing = [name for (name,) in self._storage.rows(_ENDS) if name not in known]
        return f"the topic with {missing[0]} is gone" if missing else ""

    def counts(self) -> tuple[int, int, int]:
        """Returns how many topics, steps and completed epochs are retained; O(those)."""
        tables = ("topics", "steps", "epochs")
        topics, steps, epochs = [self._storage.rows(f"SELECT count(*) FROM {each}")[0][0] for each in tables]
        return topics, steps, epochs

    # -- recovery -------------------------------------------------------------------------------------

    def slots(self) -> list[int]:
        """Returns the slots with topics, whole or not."""
        slots = [slot for (slot,) in self._storage.rows("SELECT slot FROM topics ORDER BY slot")]
        if not all(map(is_slot, slots)):
            raise self._damage("there is a topic in no slot")
        return slots

    def topic(self, slot: int) -> tuple[Begun, int]:
        """Returns the topic in a slot with a state, and the position of that state."""
        rows = self._storage.rows(_TOPIC, slot)
        if not rows:
            raise self._damage(f"the state of slot {slot} is missing")
        return self._checked(topic_of, rows[0])

    def steps_after(self, slot: int, position: int) -> Iterator[Step]:
        """Yields all steps of a topic after a position; ``LogDamaged`` if the last one is missing."""
        while part := self.steps(slot, position):
            yield from part
            position = part[-1].position
        rows = self._storage.rows("SELECT value FROM meta WHERE name = ?", last_name(slot))
        if not rows or position < rows[0][0]:
            raise self._damage(f"steps of slot {slot} after {position} are missing")

    def epochs(self, slot: int, first: int = 0, last: int = LAST) -> Iterator[tuple[Completed, int]]:
        """Yields the completed epochs of a range of numbers, and when each was completed."""
        for row in self._pages(_EPOCHS, slot, first, last):
            yield self._checked(epoch_of, row)

    def epoch_numbers(self, slot: int) -> tuple[int, int, int]:
        """Returns the count of completed epochs, the first number and the last; reads no bodies."""
        question = "SELECT count(*), min(id), max(id) FROM epochs WHERE id BETWEEN ? AND ?"
        count, first, last = self._storage.rows(question, *span(slot))[0]
        return (count, first - key(slot, 0), last - key(slot, 0)) if count else (0, 0, 0)

    def frontiers(self, slot: int) -> Iterator[tuple[int, Moved]]:
        """Yields the positions from which a reader can start, and the frontiers there."""
        for row in self._pages(_FRONTIERS, slot, 0, LAST):
            yield self._checked(frontier_of, row)

    def _pages(self, question: str, slot: int, first: int, last: int) -> Iterator[Row]:
        """Yields rows by key, some at a time, so that a slow reader does not hold up the writer."""
        begin, end = span(slot, first, last)
        while rows := self._storage.rows(f"{question} LIMIT {MOST_EPOCHS}", begin, end):
            yield from rows
            begin = rows[-1][0] + 1

    def _checked(self, made: Callable[[Row], T], row: Row) -> T:
        try:
            return made(row)
        except LogDamaged as damage:
            raise self._damage(str(damage)) from None

    def _damage(self, what: str) -> LogDamaged:
        return LogDamaged(f"{self._storage.path}: {what}")

    # -- reading --------------------------------------------------------------------------------------

    def steps(self, slot: int, after: int, upto: int = LAST) -> list[Step]:
        """Returns about a mebibyte of steps after a position; none at the end."""
        found: list[Step] = []
        size = 0
        with self._storage.reading() as connection:
            for row in connection.execute(_STEPS, span(slot, after + 1, upto)):
                step, position = self._checked(step_of, row), after + 1 + len(found)
                if step.position != position:
                    raise self._damage(f"step {position} of slot {slot} is missing")
                found.append(step)
                size += len(row[-1])
                if size >= PART_BYTES:
                    break
        return found

    def past(self, ledger: StepLog, after: int) -> list[Step]:
        """Returns about a mebibyte of the steps after a position that are on disk, one at least.

        Raises ``LogDamaged`` if they are missing.
        """
        steps = self.steps(ledger.slot, after, ledger.durable)
        if not steps:
            raise self._damage(f"steps of topic {ledger.topic.name!r} after {after} are missing")
        return steps

    def beginning(self, ledger: StepLog, since: Antichain) -> tuple[int, Moved]:
        """Returns where to start reading for some times: a position, and the frontiers there.

        O(completed epochs) for tuples, O(log) and those wanted for integers.
        """
        slot = ledger.slot
        # epochs that were completed but are not on disk yet are in memory
        open_first = min(ledger.begun_at_or_after(since), ledger.durable + 1)
        wanted = self.number_at(slot, since, ledger.oldest) + 1
        first = min([each.first for each, _ in self.epochs(slot, wanted)], default=open_first)
        first = min(first, open_first)
        rows = self._storage.rows(f"{_FRONTIERS} DESC LIMIT 1", *span(slot, 0, first - 1))
        return self._checked(frontier_of, rows[0]) if rows else (first - 1, ())

    def number_at(self, slot: int, since: Antichain, oldest: int) -> int:
        """Returns the number before the first completed epoch at or after some times, or the newest."""
        newest = self._storage.rows("SELECT max(id) FROM epochs WHERE id BETWEEN ? AND ?", *span(slot))[0][0]
        low, high = oldest - 1, (oldest - 1 if newest is None else newest - key(slot, 0))
        if all(isinstance(each, int) for each in since):  # numbers go with times
            while low < high:
                middle = (low + high) // 2 + 1
                if since.less_equal(self._time(slot, middle)):
                    high = middle - 1
                else:
                    low = middle
            return low
        for epoch, _ in self.epochs(slot, low + 1, high):
            if since.less_equal(epoch.time):
                return epoch.number - 1
        return high

    def _time(self, slot: int, number: int) -> Time:
        for epoch, _ in self.epochs(slot, number, number):
            return epoch.time
        raise self._damage(f"epoch {number} of slot {slot} is missing")

    def oldest_epochs(self, slot: int, oldest: int, most: int) -> list[tuple[Completed, int]]:
        """Returns the oldest completed epochs, and when each was completed."""
        return list(islice(self.epochs(slot, oldest), most))

    def pieces(
        self, slot: int, partitions: int, after: int, upto: int, at: tuple[int, int] | None, budget: int
    ) -> list[Piece]:
        """Returns completed epochs (after, upto] in pieces of about ``budget`` bytes; the same each time.

        ``at`` goes on within the first of them.  Batches are in the order of partitions, then of sending.
        """
        epochs: list[Completed] = []
        for epoch, _ in self.epochs(slot, after + 1, min(upto, after + MOST_EPOCHS)):
            budget -= epoch.size
            if epochs and budget < 0:
                break
            epochs.append(epoch)
        if [each.number for each in epochs] != list(range(after + 1, after + 1 + len(epochs))):
            raise self._damage(f"epochs after {after} of slot {slot} are missing")
        if epochs and (at is not None or epochs[0].size > 2 * PART_BYTES):
            return [self._part(slot, partitions, epochs[0], at or (0, epochs[0].first))]
        return self._whole(slot, epochs) if epochs else []

    def _whole(self, slot: int, epochs: list[Completed]) -> list[Piece]:
        """Epochs that are small, read together."""
        batches: dict[Time, list[tuple[int, bytes]]] = {each.time: [] for each in epochs}
        last = max(each.last for each in epochs)
        at = min(each.first for each in epochs) - 1
        while at < last:
            part = self.steps(slot, at, last)
            if not part:
                raise self._damage(f"step {at + 1} of slot {slot} is missing")
            for step in part:
                match step.batch:
                    case (partition, time, items) if time in batches:
                        batches[time].append((partition, items))
            at = part[-1].position
        return [
            Piece(
                each.number,
                each.time,
                each.crashed,
                tuple(items for _, items in sorted(batches[each.time], key=lambda batch: batch[0])),
                None,
            )
            for each in epochs
        ]

    def _part(self, slot: int, partitions: int, epoch: Completed, at: tuple[int, int]) -> Piece:
        """Some of a large epoch, one partition after the other, so that no more than this is held."""
        (partition, position), items, size = at, list[bytes](), 0
        while size < PART_BYTES and partition < partitions:
            part = self.steps(slot, position - 1, epoch.last)
            for step in part:
                match step.batch:
                    case (here, time, batch) if here == partition and time == epoch.time:
                        items.append(batch)
                        size += len(batch)
            position += len(part)
            if position > epoch.last or not part:
                partition, position = partition + 1, epoch.first
        rest = (partition, position) if partition < partitions else None
        return Piece(epoch.number, epoch.time, epoch.crashed, tuple(items), rest)
