"""Verifying: is there of every durable topic what was acknowledged, and is it what was written?

Reads everything that is retained, as a start and every reader would, and goes on after a damage with the next
topic.  It changes nothing, so that it can be run beside a daemon or on a copy.

Always: a journal with no damage found has every step that was acknowledged and is retained, unaltered, and a
state of each topic to recover.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from relay.journal.reader import JournalReader
from relay.journal.recovery import recovered
from relay.store.errors import LogDamaged


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
    found: list[str] = []
    counts, size = (0, 0, 0), 0
    try:
        with closing(JournalReader.open(directory)) as journal:
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
        try:
            _read_all(journal, slot)
        except LogDamaged as damage:
            yield str(damage)


def _read_all(journal: JournalReader, slot: int) -> None:
    """Reads a topic as a start and every reader would."""
    ledger = recovered(journal, *journal.topic(slot))
    begun = [epoch.first for epoch, _ in journal.epochs(slot)]
    for _ in journal.steps_after(slot, min([*begun, ledger.first_open()]) - 1):
        pass
    for _ in journal.frontiers(slot):
        pass
