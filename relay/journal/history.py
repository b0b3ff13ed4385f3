"""The whole past of a topic: from the journal, and before its oldest epoch from the archive.

Completed epochs before ``StepLog.oldest`` are read from the archive whole, later ones from the journal whole:
the journal lets go an epoch only once the archive has all its steps.  A subscriber reads on by positions, and
changes over where the journal begins.

Always: an answer does not depend on which side has the steps now, also while the journal lets them go.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from dataspace.errors import Refused
from dataspace.topics.times import Antichain
from relay.journal.past import PART_BYTES, Piece, number_before, number_completed_before, pieces_of
from relay.journal.reader import JournalReader
from relay.store.errors import LogDamaged
from relay.topics.steps import ArchivedTopic, Step, StepLog

T = TypeVar("T")


def pieces(
    journal: JournalReader, step_log: StepLog, after: int, upto: int, at: tuple[int, int] | None, budget: int
) -> list[Piece]:
    """Returns completed epochs (after, upto], as ``pieces_of``."""
    partitions = len(step_log.topic.partitions)

    def read() -> list[Piece]:
        archive = step_log.archive_before(after + 1)
        if archive is None:
            return journal.pieces(step_log.slot, partitions, after, upto, at, budget)
        return pieces_of(archive, partitions, after, min(upto, archive.completed), at, budget)

    return _settled(lambda: step_log.oldest, read)


@dataclass(frozen=True, slots=True)
class SoughtTimes:
    """Times to be found in a topic, and where its epochs are at one moment.

    ``oldest`` is the oldest epoch in the journal.  ``is_before`` if earlier ones may be at or after the
    times; then ``archive`` has these, if it is not None.  ``begun`` is the position of the first step at or
    after the times that is of an epoch in memory alone: open, or not on disk as completed.
    """

    since: Antichain
    oldest: int
    begun: int
    is_before: bool
    archive: ArchivedTopic | None


def sought(step_log: StepLog, since: Antichain) -> SoughtTimes:
    """Returns times with where a topic's epochs are now; not in a thread, since that changes.

    Asked before the disk: what is completed in between is then found twice, and never missed.
    """
    is_before = any(step_log.forgotten.covers(each) for each in since)
    archive = step_log.archive_before(step_log.oldest - 1) if is_before else None
    begun = min(step_log.begun_at_or_after(since), step_log.durable + 1)
    return SoughtTimes(since, step_log.oldest, begun, is_before, archive)


def number_at(journal: JournalReader, step_log: StepLog, of: SoughtTimes) -> int:
    """Returns the number before the first completed epoch at or after some times, or the newest.

    Raises ``LogDamaged`` if the journal has let epochs go since the moment that is meant.
    """
    archive, oldest = of.archive, of.oldest
    if archive is not None:
        found = number_before(archive, of.since, archive.oldest, oldest - 1)
        if found < oldest - 1:
            return found
    return journal.number_at(step_log.slot, of.since, oldest)


def number_completed_at(journal: JournalReader, step_log: StepLog, micros: int) -> int:
    """Returns the number before the first epoch that was completed at or after a time, or the newest."""

    def read() -> int:
        oldest, newest = step_log.oldest, step_log.completed_durable
        archive = step_log.archive_before(oldest - 1)
        if archive is not None:
            found = number_completed_before(archive, micros, archive.oldest, oldest - 1)
            if found < oldest - 1:
                return found
        return number_completed_before(journal.past_of(step_log.slot), micros, oldest, newest)

    return _settled(lambda: step_log.oldest, read)


def beginning(journal: JournalReader, step_log: StepLog, of: SoughtTimes) -> int:
    """Returns the position after which all steps at or after some times are, as ``number_at``.

    Raises ``Refused`` if epochs at or after the times cannot be read.
    """
    if of.is_before and of.archive is None:
        raise Refused("epoch-gone", f"times before epoch {of.oldest} went while they were being read")
    wanted = number_at(journal, step_log, of) + 1
    if of.archive is not None and wanted < of.oldest:
        return min(each.begun for each, _ in of.archive.epochs(wanted, wanted)) - 1
    return journal.beginning(step_log.slot, of.begun, wanted)


def steps_after(journal: JournalReader, step_log: StepLog, after: int) -> list[Step]:
    """Returns about a mebibyte of the steps after a position that are on disk or archived, one at least.

    Raises ``LogDamaged`` if they are missing.
    """

    def read() -> list[Step]:
        archive = step_log.archive
        if archive is None or after + 1 >= journal.first_step(step_log.slot):
            return journal.past(step_log, after)
        if archive.position <= after:
            archive.renew()
        if archive.position <= after:
            return journal.past(step_log, after)
        found, size = list[Step](), 0
        for step in archive.steps(after, min(archive.position, max(step_log.durable, after + 1))):
            found.append(step)
            size += step.size
            if size >= PART_BYTES:
                break
        return found

    return _settled(lambda: journal.first_step(step_log.slot), read)


def _settled(place: Callable[[], int], read: Callable[[], T]) -> T:
    """Returns the answer of ``read``, asked again where the journal let steps go meanwhile."""
    while True:
        before = place()
        try:
            return read()
        except (LogDamaged, Refused):
            if place() == before:
                raise
