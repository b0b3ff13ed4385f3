"""Reading a journal: the topics in it, their steps, and their completed epochs by number.

The half of the journal that changes nothing.  It is apart from the writing half so that it can be verified
while a daemon writes it, from a copy, or from a medium that cannot be written.

Always: a step or an epoch that was altered or is missing is ``LogDamaged``, never served.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Final, Self

from dataspace.errors import Refused, UsageError
from dataspace.topics.times import Antichain, Order
from relay.journal.past import PART_BYTES, Piece, number_before, pieces_of
from relay.journal.rows import FORMAT, Kept, entries_of, first_anchor, joined, topic_of
from relay.log.chain import READ_SEGMENTS, Chain
from relay.log.segments import CHECKSUM_BYTES
from relay.store.errors import LogDamaged, closed_on_failure
from relay.store.header import Header, check_format, refuse, unsealed
from relay.store.ports import KEY_BITS, TopicTables
from relay.store.reader import StoreReader
from relay.store.sqlite.topics import SqliteTopics
from relay.topics.steps import LAST, Completed, Step, StepLog, TopicPast
from relay.topics.topic import Topic


class JournalReader(StoreReader[TopicTables]):
    """Reads the file ``topics.sqlite`` of a data directory, from any number of threads."""

    FILE = "topics.sqlite"
    MARK = "topics-acknowledged"

    def __init__(self, tables: TopicTables, found: Callable[[str], None] = refuse) -> None:
        """Calls ``found`` with damages of the header; raises ``LogDamaged`` for a file of another format."""
        super().__init__(tables)
        names, ends = tables.moment()
        self._header: Final = Header(names)
        check_format(tables.place, names, FORMAT)
        meta = unsealed(names, (), tables.place, found)
        self.count: int = meta.get("steps", 0)
        if self.count.__class__ is not int:
            raise self._damage("the count of steps was altered")
        self._sealed_ends: Final = meta.get("ends", bytes(CHECKSUM_BYTES))
        self._ends: dict[int, bytes] = {}
        """The checksum of the newest segment of each topic."""
        self._chains: dict[int, Chain] = {}
        for slot, checksum in ends:
            if slot.__class__ is not int or not 0 < slot < 1 << 63 - KEY_BITS:
                raise self._damage("there is a topic in no slot")
            if not (checksum is None or (checksum.__class__ is bytes and len(checksum) == CHECKSUM_BYTES)):
                checksum = bytes(CHECKSUM_BYTES)  # of no segment
            self._ends[slot] = first_anchor(slot) if checksum is None else checksum
        self._newest_ends = joined(self._ends.values())

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Opens the journal in a directory to read it, changing nothing; ``LogFailed`` if there is none."""
        tables = SqliteTopics.read(directory / cls.FILE, directory / cls.MARK)
        with closed_on_failure(tables):
            return cls(tables)

    def shortfall(self) -> str:
        if self.count < self._acknowledged.epoch:
            return f"{self._acknowledged.epoch} steps of topics were acknowledged, it holds {self.count}"
        if self._newest_ends != self._sealed_ends:
            return f"{self._tables.place}: a topic, or the last steps of one, is gone or was altered"
        return ""

    def counts(self) -> tuple[int, int, int]:
        """Returns how many topics, steps and completed epochs there are; O(segments)."""
        return len(self._ends), *self._tables.totals()

    # -- recovery -------------------------------------------------------------------------------------

    def slots(self) -> list[int]:
        """Returns the slots with topics, whole or not."""
        return sorted(self._ends)

    def topic(self, slot: int) -> Kept:
        """Returns the topic in a slot, as it was at some position."""
        row = self._tables.topic(slot)
        if row is None:
            raise self._damage(f"the topic in slot {slot} is missing")
        try:
            return topic_of(*row)
        except LogDamaged as damage:
            raise self._damage(str(damage)) from None

    def has_all(self, step_log: StepLog) -> bool:
        """True if the topic in the slot of a step log is the same one, and as far."""
        return (
            self.topic(step_log.slot).number == step_log.number
            and self._chain(step_log.slot).epoch == step_log.position
        )

    def damages_of(self, slot: int) -> list[str]:
        """Returns the damages of the steps of a topic; O(those).  ``LogDamaged`` for a damaged row."""
        found, chain = list[str](), self._chain(slot)
        for _ in chain.walk(chain.first, found=found.append):
            pass
        return found

    def epochs(self, slot: int, first: int = 1, last: int = LAST) -> Iterator[tuple[Completed, int]]:
        """Yields the completed epochs of a range of numbers, and when each was completed."""
        chain = self._chain(slot)
        ordinal, begun = chain.since(first), False
        for segment in chain.walk(ordinal, limit=1 if first == last else READ_SEGMENTS):
            for _, done, at in entries_of(segment) if segment.changes else ():
                for epoch in done:
                    if first <= epoch.number <= last:
                        if epoch.number > first and not begun:
                            chain.check_found(ordinal, attrgetter("until"), first)
                        begun = True
                        yield epoch, at
            if segment.until >= last:
                break
        if not begun:
            chain.check_found(ordinal, attrgetter("until"), first)

    def _chain(self, slot: int) -> Chain:
        chain = self._chains.get(slot)
        if chain is None and slot not in self._ends:  # it is not on disk yet, or has ended
            return Chain(self._tables, first_anchor(slot), slot)
        if chain is None:  # another thread may have made it meanwhile
            chain = self._chains.setdefault(slot, Chain(self._tables, self.topic(slot).anchor, slot))
        return chain

    def shown(self, slot: int) -> str:
        """Returns where a topic is, for messages."""
        return f"{self._tables.place}, slot {slot}"

    def _damage(self, what: str) -> LogDamaged:
        return LogDamaged(f"{self._tables.place}: {what}")

    # -- reading --------------------------------------------------------------------------------------

    def steps(self, slot: int, after: int, upto: int = LAST) -> Iterator[Step]:
        """Yields the steps of a topic after a position."""
        position = after
        for segment in self._chain(slot).after(after, upto):
            for step, _, _ in entries_of(segment):
                if after < step.position <= upto:
                    position += 1
                    if step.position != position:
                        raise self._damage(f"step {position} of slot {slot} is missing")
                    yield step
        if position < upto < LAST:
            raise self._damage(f"step {position + 1} of slot {slot} is missing")

    def past(self, step_log: StepLog, after: int) -> list[Step]:
        """Returns about a mebibyte of the steps after a position that are on disk, one at least.

        Raises ``LogDamaged`` if they are missing.
        """
        found, size = list[Step](), 0
        for step in self.steps(step_log.slot, after, max(step_log.durable, after + 1)):
            found.append(step)
            size += step.size
            if size >= PART_BYTES:
                break
        return found

    def beginning(self, slot: int, begun: int, wanted: int) -> int:
        """Returns the position after which all steps at or after some times are.

        ``wanted`` is the first completed epoch at or after them, and ``begun`` their first step that is of an
        epoch in memory alone.
        """
        return min([each.begun for each, _ in self.epochs(slot, wanted, wanted)] + [begun]) - 1

    def number_at(self, slot: int, since: Antichain, oldest: int) -> int:
        """Returns the number before the first completed epoch at or after some times, or the newest."""
        newest = next((each.until for each in self._chain(slot).backwards()), 0)
        return number_before(self.past_of(slot), since, oldest, newest)

    def pieces(
        self, slot: int, partitions: int, after: int, upto: int, at: tuple[int, int] | None, budget: int
    ) -> list[Piece]:
        """Returns completed epochs (after, upto], as ``pieces_of``."""
        return pieces_of(self.past_of(slot), partitions, after, upto, at, budget)

    def past_of(self, slot: int) -> TopicPast:
        """Returns the steps and epochs of a topic that are here."""
        return _Held(self, slot)

    def first_step(self, slot: int) -> int:
        """Returns the position of the oldest step that is here, or of the next one; O(1)."""
        chain = self._chain(slot)
        while True:
            first = chain.first
            try:
                return next((each.first for each in chain.walk(first, limit=1)), chain.epoch + 1)
            except Refused:
                if chain.first == first:  # else it was deleted while this thread read it
                    raise


@dataclass(frozen=True, slots=True)
class _Held:
    """The topic in a slot of a journal."""

    journal: JournalReader
    slot: int

    @property
    def shown(self) -> str:
        return self.journal.shown(self.slot)

    def epochs(self, first: int = 1, last: int = LAST) -> Iterator[tuple[Completed, int]]:
        return self.journal.epochs(self.slot, first, last)

    def steps(self, after: int, upto: int = LAST) -> Iterator[Step]:
        return self.journal.steps(self.slot, after, upto)


# -- Recovering ------------------------------------------------------------------------------------
# Always: exactly the acknowledged steps come back, or ``LogDamaged`` names the reason; a journal
# without damage has every acknowledged step that is retained, unaltered.


def recovered(journal: JournalReader, slot: int) -> StepLog:
    """Returns the step log of the topic in a slot; O(steps after its state)."""
    kept = journal.topic(slot)
    step_log = restored(kept)
    for step in journal.steps(slot, kept.position):
        do_again(step_log, step)
    step_log.written(step_log.position)
    return step_log


def restored(kept: Kept) -> StepLog:
    """Returns the step log of a topic as it was when this row was written."""
    topic = Topic(kept.name, Order(kept.dimensions), kept.partitions, lasting=True)
    step_log = StepLog(topic, kept.number, kept.slot, kept.retain, age=kept.age)
    step_log.archived = kept.archived
    try:
        step_log.load(kept.state)
    except _UNFIT as error:
        raise _unfit(kept.name, error) from error
    return step_log


def do_again(step_log: StepLog, step: Step) -> None:
    """Applies a stored step; ``LogDamaged`` for a step that the topic cannot have taken."""
    try:
        step_log.again(step)
    except _UNFIT as error:
        raise _unfit(step_log.topic.name, error) from error


_UNFIT: Final = (UsageError, Refused, TypeError, ValueError, LookupError)


def _unfit(name: str, error: Exception) -> LogDamaged:
    return LogDamaged(f"topic {name!r} cannot be put back: {error}")


@dataclass(frozen=True, slots=True)
class TopicsVerdict:
    """Counts of retained steps, bytes on disk, and damages: the journal is sound if ``damages`` is empty."""

    topics: int
    steps: int
    epochs: int
    bytes: int
    damages: tuple[str, ...]


def verify_topics(directory: Path) -> TopicsVerdict | None:
    """Checks the journal in a directory, if there is one; O(journal).  ``LogFailed`` if it cannot be read."""
    if not (directory / JournalReader.FILE).exists():
        return None
    return topics_verdict(lambda: JournalReader.open(directory))


def topics_verdict(opened: Callable[[], JournalReader]) -> TopicsVerdict:
    """Opens a journal and checks it; O(journal).  ``LogFailed`` if it cannot be read."""
    found: list[str] = []
    counts, size = (0, 0, 0), 0
    try:
        with closing(opened()) as journal:
            size = journal.size()
            for damage in _damages(journal):
                found.append(damage)  # what was found before it raises counts
            counts = journal.counts()
    except LogDamaged as damaged:
        found.append(str(damaged))
    return TopicsVerdict(*counts, size, tuple(found))


def _damages(journal: JournalReader) -> Iterator[str]:
    """Everything that is wrong, in words."""
    shortfall = journal.shortfall()
    if shortfall:
        yield shortfall
    for slot in journal.slots():
        found: list[str] = []
        try:
            found += journal.damages_of(slot)
            recovered(journal, slot)
        except LogDamaged as damage:
            found.append(str(damage))
        yield from dict.fromkeys(found)
