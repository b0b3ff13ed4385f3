"""Recovering: a durable topic as the journal has it, made again from its state and the steps after that.

It is apart from the journal, which knows rows, and from the daemon, which puts the topics into its catalogue,
so that a journal can be verified by doing what a start does.

Always: exactly the acknowledged steps come back, or ``LogDamaged`` names the reason.
"""

from __future__ import annotations

from dataspace.errors import Refused, UsageError
from dataspace.topics.times import Order
from relay.journal.reader import JournalReader
from relay.journal.rows import Begun
from relay.store.errors import LogDamaged
from relay.topics.steps import StepLog
from relay.topics.topic import Topic


def recovered(journal: JournalReader, begun: Begun, position: int) -> StepLog:
    """Returns the step log of a topic; O(steps after the position), and a count of its epochs."""
    topic = Topic(begun.name, Order(begun.dimensions), begun.partitions, lasting=True)
    ledger = StepLog(topic, begun.number, begun.slot, begun.retain, age=begun.age)
    try:
        ledger.load(begun.state)
        for step in journal.steps_after(begun.slot, position):
            ledger.again(step)
    except (UsageError, Refused, TypeError, ValueError, LookupError) as error:
        raise LogDamaged(f"topic {begun.name!r} cannot be put back: {error}") from error
    ledger.written(ledger.position)
    _check_epochs(journal, ledger)
    return ledger


def _check_epochs(journal: JournalReader, ledger: StepLog) -> None:
    """Compares the journal's epochs with the epochs that its steps completed."""
    held = ledger.completed - ledger.oldest + 1
    wanted = (held, ledger.oldest, ledger.completed) if held else (0, 0, 0)
    if journal.epoch_numbers(ledger.slot) != wanted:
        raise LogDamaged(f"epochs of topic {ledger.topic.name!r} are missing")
