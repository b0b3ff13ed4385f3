"""Durable topics: they survive restarts, and their producers may survive a lost connection.

Restores topics from the journal at the start, has each step written, and lets a producer that asked for it
resume within its time, with the capabilities that it held.

Always: durable topics are restored before the first client is served; a disconnected producer keeps its
capabilities for the time that it asked for; then it has crashed, and its subscribers are notified.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import trio

from dataspace.errors import Refused
from dataspace.topics.times import Order
from relay.journal.journal import Journal
from relay.journal.recovery import recovered
from relay.journal.rows import Ended
from relay.journal.writer import TopicWriter
from relay.store.errors import LogDamaged
from relay.topics.catch_up import CatchUp
from relay.topics.feed import Feed
from relay.topics.steps import StepLog
from relay.topics.topic import Topic
from server.owners.leases import Deadlines
from server.topics.catalogue import TopicEntry, Topics

logger = logging.getLogger("dataspace")

RETAIN: Final = 64 << 20
"""Bytes that a durable topic retains by default."""

MAX_RETAIN: Final = 1 << 40
MAX_AWAY: Final = 300_000
"""Milliseconds that a producer may be disconnected at most."""


class DurableTopics:
    """The durable topics of a daemon, and the connections of their producers."""

    def __init__(self, topics: Topics, journal: Journal, flush: Callable[[], None]) -> None:
        self.writer: Final = TopicWriter(journal, self._written)
        self._topics = topics
        self._flush = flush
        self._entries: dict[int, TopicEntry] = {}
        self._next_slot = 1
        self._attached: dict[int, Callable[[int], None]] = {}
        self._away: Final = Deadlines(self._lapsed)
        self._places: dict[str, tuple[TopicEntry, int]] = {}

    # -- topics ---------------------------------------------------------------------------------------

    def recover(self, *, accept_damage: bool) -> None:
        """Restores all topics; producers that may not be away have crashed with the previous daemon.

        Raises ``LogDamaged`` for a damaged one; with ``accept_damage``, continues without it.
        """
        journal = self.writer.journal
        for slot in journal.slots():
            try:
                entry = self._restored(recovered(journal, slot))
            except LogDamaged as damage:
                if not accept_damage:
                    raise
                logger.warning("%s; the topic in slot %d is dropped, as accept_damage allows", damage, slot)
                journal.write([Ended(slot)])
                continue
            self._topics.enlist(entry)
            for producer in list(entry.ledger.members):
                self.detach(entry, producer, "the daemon was started again")
        if self._entries:
            logger.info("recovered %d durable topics", len(self._entries))

    def _restored(self, ledger: StepLog) -> TopicEntry:
        ledger.write = self.writer.note
        return self._kept(TopicEntry(ledger, 0))

    def _kept(self, entry: TopicEntry) -> TopicEntry:
        self._entries[entry.ledger.slot] = entry
        self._next_slot = max(self._next_slot, entry.ledger.slot + 1)
        return entry

    def make(
        self, name: str, order: Order, partitions: int, retain: int, age: float | None, owner: int
    ) -> TopicEntry:
        """Returns a new durable topic, without a producer."""
        self._topics.check_another()
        retain = retain or RETAIN
        if not 0 < retain <= MAX_RETAIN:
            raise Refused("limit", f"retain={retain} bytes, limit {MAX_RETAIN}")
        topic = Topic(name, order, partitions, lasting=True)
        ledger = StepLog(topic, self._topics.number(), self._next_slot, retain, self.writer.note, age=age)
        return self._kept(TopicEntry(ledger, owner))

    def begin(self, entry: TopicEntry) -> None:
        """Writes the beginning of a topic, before any step of it."""
        self.check_room()
        self.writer.keep(entry.ledger)

    def end(self, entry: TopicEntry) -> None:
        """Ends a durable topic; does nothing for one in memory."""
        if entry.durable:
            for producer in entry.ledger.members:
                self._come_back(producer)
            del self._entries[entry.ledger.slot]
            self.writer.end(entry.ledger)

    def check_room(self) -> None:
        """Raises ``Refused`` while the disk is full."""
        if self.writer.full is not None:
            raise Refused("disk-full", f"durable topics take nothing: {self.writer.full}")

    def _written(self, ledgers: Sequence[StepLog]) -> None:
        for ledger in ledgers:
            entry = self._entries.get(ledger.slot)
            if entry is not None:
                entry.look()
        self._flush()

    def ledgers(self) -> list[StepLog]:
        """Returns the step logs of all durable topics."""
        return [each.ledger for each in self._entries.values()]

    async def read_past(
        self, entry: TopicEntry, feed: Feed, catching: CatchUp, wait_taken: Callable[[], Awaitable[None]]
    ) -> None:
        """Brings a subscriber from the disk to the present, as fast as it reads.

        Raises ``Refused`` if retention, or the end of the topic, overtakes it.
        """
        journal, ledger = self.writer.journal, entry.ledger
        catching.begin(await trio.to_thread.run_sync(journal.beginning, ledger, catching.since))
        while self._topics.is_listed(entry):
            # A thread is waited for to its end: the stream may be closed since.
            await trio.lowlevel.checkpoint_if_cancelled()
            if not feed.has_room:
                await wait_taken()
                continue
            if catching.finish():
                return
            try:
                steps = await trio.to_thread.run_sync(journal.past, ledger, catching.at)
            except (LogDamaged, Refused):
                catching.check_retained()
                if self._topics.is_listed(entry):
                    raise
                break
            catching.take(steps)
        raise Refused("no-topic", f"topic {entry.topic.name!r} has ended")

    # -- producers ------------------------------------------------------------------------------------

    def attach(self, producer: int, detach: Callable[[int], None]) -> None:
        """Gives a producer to a connection, and calls ``detach`` of its earlier connection."""
        before = self._attached.get(producer)
        if before is not None and before != detach:
            before(producer)
        self._come_back(producer)
        self._attached[producer] = detach

    def detach(self, entry: TopicEntry, producer: int, reason: str) -> None:
        """Notes that a producer has lost its connection: it may resume within its time, or has crashed."""
        ledger = entry.ledger
        self._attached.pop(producer, None)
        away = ledger.members[producer].away
        if away:
            self._places[str(producer)] = (entry, producer)
            self._away.renew(str(producer), trio.current_time() + away / 1000)
        else:
            ledger.crash(producer, reason)

    def gone(self, producer: int) -> None:
        """Notes that a producer has left or crashed."""
        self._attached.pop(producer, None)

    def _come_back(self, producer: int) -> None:
        self._away.forget(str(producer))
        self._places.pop(str(producer), None)

    def _lapsed(self, names: Sequence[str]) -> None:
        for name in names:
            entry, producer = self._places.pop(name)
            away = entry.ledger.members[producer].away
            entry.ledger.crash(producer, f"it did not come back within {away / 1000:g} s")
        self._flush()

    # -- life -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Ends producers that do not resume in time, and deletes what is past retention; until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._away.run)
            nursery.start_soon(self.writer.trim_aged, self.ledgers)
