"""Recovering: a durable topic as the journal has it, made again from its state and the steps after that.

It is apart from the journal, which knows rows, and from the daemon, which puts the topics into its catalogue,
so that a journal can be verified by doing what a start does.

Always: exactly the acknowledged steps come back, or ``LogDamaged`` names the reason; a journal without damage
has every acknowledged step that is retained, unaltered.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from dataspace.errors import Refused, UsageError
from dataspace.topics.times import Order
from relay.journal.reader import JournalReader
from relay.store.errors import LogDamaged
from relay.topics.steps import StepLog
from relay.topics.topic import Topic


def recovered(journal: JournalReader, slot: int) -> StepLog:
    """Returns the step log of the topic in a slot; O(steps after its state)."""
    kept = journal.topic(slot)
    topic = Topic(kept.name, Order(kept.dimensions), kept.partitions, lasting=True)
    ledger = StepLog(topic, kept.number, slot, kept.retain, age=kept.age)
    try:
        ledger.load(kept.state)
        for step in journal.steps(slot, kept.position):
            ledger.again(step)
    except (UsageError, Refused, TypeError, ValueError, LookupError) as error:
        raise LogDamaged(f"topic {kept.name!r} cannot be put back: {error}") from error
    ledger.written(ledger.position)
    return ledger


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
        found: list[str] = []
        try:
            found += journal.damages_of(slot)
            recovered(journal, slot)
        except LogDamaged as damage:
            found.append(str(damage))
        yield from dict.fromkeys(found)
