"""The past of a durable topic: for subscribers that catch up with the present, and by epoch number.

A subscriber *as of* some times is fed from the disk as fast as it reads, however long ago that is, and joins
the others where the disk ends.  A reader of *completed epochs* asks for a range of their numbers and gets the
same bytes every time.

Always: a subscriber that catches up holds no more in memory than its queue may; between the past and the
present there is neither gap nor overlap; a request past retention is refused with what is retained.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import trio

from dataspace.errors import Refused
from dataspace.topics.antichains import Antichain
from dataspace.topics.messages import Message
from dataspace.topics.times import Time
from index.values.values import Map, Value
from relay.journal.journal import Journal
from relay.journal.reader import LAST, PART_BYTES, Piece
from relay.store.errors import LogDamaged
from relay.topics.catch_up import CatchUpMessages
from relay.topics.feed import Feed
from relay.topics.steps import Step, StepLog
from relay.topics.topic import MAX_PARTITIONS
from server.topics.catalogue import TopicEntry, Topics

MAX_WAIT: Final = 60_000
"""Milliseconds that one request may wait."""


class CatchUp:
    """One subscriber that catches up; raises ``Refused`` if what it requests is not retained."""

    def __init__(
        self,
        entry: TopicEntry,
        number: int,
        partitions: Sequence[int],
        as_of: Sequence[Time],
        journal: Journal,
    ) -> None:
        assert entry.ledger is not None  # only durable topics are on disk
        if not partitions:
            raise Refused("bad-request", "a subscription needs a partition at least")
        self._topic = entry.topic
        self._ledger: Final = entry.ledger
        self._journal = journal
        self._number = number
        self._partitions = frozenset(partitions)
        self._since: Final = self._ledger.check_as_of(as_of, partitions)
        self._messages = CatchUpMessages(self._partitions, self._since)

    async def run(
        self,
        feed: Feed,
        tell: Callable[[Message], None],
        over: Callable[[], None],
        wait_taken: Callable[[], Awaitable[None]],
    ) -> None:
        """Sends everything from the disk, then attaches the subscriber to the topic."""
        at = await self._begin(tell)
        while (tail := self._ledger.tail(at)) is None or not feed.has_room:
            if not feed.has_room:
                await wait_taken()
                continue
            steps = await trio.to_thread.run_sync(self._read, at)
            at = steps[-1].position
            for step in steps:
                self._tell(step, tell)
        for step in tail:
            self._tell(step, tell)
        for message in self._messages.catch_up(self._ledger.lowers()):
            tell(message)
        self._topic.attach(self._number, self._partitions, tell, over)

    async def _begin(self, tell: Callable[[Message], None]) -> int:
        """Sends the state at the beginning of the replay, and returns where that is."""
        ledger = self._ledger
        opened = ledger.begun_at_or_after(self._since)
        # epochs that were completed but are not on disk yet are in the tail
        wanted = min(opened, ledger.durable + 1)
        at, lowers = await trio.to_thread.run_sync(
            self._journal.beginning, ledger.slot, self._since, ledger.oldest, wanted
        )
        for message in (*self._messages.snapshots(), *self._messages.catch_up(lowers)):
            tell(message)
        return at

    def _read(self, at: int) -> list[Step]:
        ledger = self._ledger
        try:
            steps = self._journal.steps(ledger.slot, at, ledger.durable)
        except LogDamaged:
            self._check_retained()
            raise
        if not steps:
            self._check_retained()
            raise LogDamaged(f"steps of topic {self._topic.name!r} after {at} are missing")
        return steps

    def _check_retained(self) -> None:
        """Raises ``Refused`` if retention has deleted steps during the replay."""
        if any(self._ledger.forgotten.covers(each) for each in self._since):
            raise Refused(
                "epoch-gone", f"times to {list(self._ledger.forgotten)} went while they were being read"
            )

    def _tell(self, step: Step, tell: Callable[[Message], None]) -> None:
        for message in self._messages.messages(step):
            tell(message)


# -- completed epochs, by number ----------------------------------------------------------------------


async def topic_frontier(topics: Topics, name: str, after: int, wait: int) -> Value:
    """Returns what is completed of a durable topic, after up to ``wait`` milliseconds for more than
    ``after``."""
    entry = topics.find(name)
    ledger = _ledger(entry, entry.number)
    with trio.move_on_after(min(wait, MAX_WAIT) / 1000):
        while ledger.completed_durable <= after and topics.is_listed(entry):
            await entry.completed.wait()
    return Map(
        {
            "id": entry.number,
            "completed": ledger.completed_durable,
            "oldest": ledger.oldest,
            "partitions": len(entry.topic.partitions),
            "dimensions": entry.topic.order.dimensions,
        }
    )


async def topic_epochs(topics: Topics, journal: Journal, name: str, number: int, arguments: Map) -> Value:
    """Returns some of the completed epochs (after, upto], and where to continue."""
    ledger = _ledger(topics.find(name), number)
    after, upto, at = arguments.get("after"), arguments.get("upto"), arguments.get("at")
    place = _place(at)
    if after.__class__ is not int or upto.__class__ is not int:
        raise Refused("bad-request", "after and upto must be numbers of epochs")
    _check_range(ledger, after, upto)
    asked = (ledger.slot, len(ledger.topic.partitions), after, upto, place, PART_BYTES)
    try:
        pieces: list[Piece] = await trio.to_thread.run_sync(journal.pieces, *asked)
    except LogDamaged:
        _check_range(ledger, after, upto)
        raise
    return tuple((each.number, each.time, each.crashed, each.items, each.next) for each in pieces)


async def topic_number(topics: Topics, journal: Journal, name: str, number: int, time: Value) -> Value:
    """Returns the number after which the epochs at or after a time begin."""
    ledger = _ledger(topics.find(name), number)
    since = Antichain([ledger.topic.order.check(time)])
    return await trio.to_thread.run_sync(journal.number_at, ledger.slot, since, ledger.oldest)


async def topic_acknowledge(
    topics: Topics, journal: Journal, name: str, number: int, reader: str, epoch: int, now: int
) -> Value:
    """Notes that a named reader has acknowledged epochs."""
    ledger = _ledger(topics.find(name), number)
    if epoch > ledger.completed_durable:
        raise Refused(
            "epoch-ahead", f"epoch {epoch} is still to come, the newest is {ledger.completed_durable}"
        )
    await trio.to_thread.run_sync(journal.acknowledge, ledger.slot, reader, epoch, now)
    return None


def _ledger(entry: TopicEntry, number: int) -> StepLog:
    if entry.ledger is None:
        raise Refused("not-durable", f"topic {entry.topic.name!r} is not durable: its past has no numbers")
    if number != entry.number:
        raise Refused("no-topic", f"topic {entry.topic.name!r} was made again since, as another topic")
    return entry.ledger


def _check_range(ledger: StepLog, after: int, upto: int) -> None:
    if after < ledger.oldest - 1:
        raise Refused("epoch-gone", f"epoch {after + 1} is not retained, the oldest is {ledger.oldest}")
    if upto > ledger.completed_durable:
        raise Refused(
            "epoch-ahead", f"epoch {upto} is still to come, the newest is {ledger.completed_durable}"
        )
    if after > upto:
        raise Refused("bad-request", f"after {after} must not be beyond upto {upto}")


def _place(value: Value) -> tuple[int, int] | None:
    match value:
        case None:
            return None
        case (int(partition), int(position)) if 0 <= partition < MAX_PARTITIONS and 0 < position < LAST:
            return (partition, position)
        case _:
            raise Refused("bad-request", f"no place in an epoch: {value!r:.60}")
