"""The topics of a daemon by name, stated as facts in the space ``system``, where clients can observe them.

What each connection publishes and subscribes is in ``following``; durable topics are ``DurableTopics``.

Always: a topic and its fact appear in one turn; a topic without producers has ended and its name is free,
unless it is durable.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

import trio

from dataspace.errors import Refused
from dataspace.topics.times import Order
from index.values.values import Record
from relay.journal.journal import Journal
from relay.journal.reader import recovered
from relay.journal.rows import Ended
from relay.journal.writer import TopicWriter
from relay.store.errors import LogDamaged
from relay.topics.feed import CatchUp, Feed
from relay.topics.steps import StepLog
from relay.topics.topic import Topic
from server.owners.accounts import Account
from server.owners.leases import Deadlines
from server.system import SystemSpace

MAX_TOPICS: Final = 4096

MAX_RETAIN: Final = 256 << 20
"""Bytes that one topic may retain in memory."""

MAX_WAIT: Final = 60_000
"""Milliseconds that a lookup may wait at once."""


@dataclass(eq=False)
class TopicEntry:
    """A topic in the catalogue: its steps, and the session that may end it."""

    ledger: StepLog
    owner: int
    account: Account | None = None
    """The account that the topic counts for until it ends."""
    feeds: dict[int, Feed] = field(default_factory=dict)
    room: trio.Event = field(default_factory=trio.Event)
    completed: trio.Event = field(default_factory=trio.Event)

    @property
    def topic(self) -> Topic:
        """The topic itself, for its subscribers."""
        return self.ledger.topic

    @property
    def number(self) -> int:
        """The identity of the topic."""
        return self.ledger.number

    @property
    def durable(self) -> bool:
        """True if the topic is on disk."""
        return not self.ledger.in_memory

    @property
    def budget(self) -> int:
        """Bytes that the topic may retain in memory."""
        return 0 if self.durable else self.ledger.retain

    @property
    def held(self) -> int:
        """Bytes that the topic retains in memory."""
        return 0 if self.durable else self.ledger.size

    @property
    def full(self) -> bool:
        """True while publishers wait for a subscriber."""
        return any(each.full for each in self.feeds.values())

    @property
    def fact(self) -> Record:
        """The fact that states the topic."""
        topic = self.topic
        return Record("topic", topic.name, self.number, len(topic.partitions), topic.order.dimensions)

    def judge(self, now: float) -> None:
        """Ends subscriptions for which publishers wait in vain."""
        for feed in list(self.feeds.values()):
            feed.judge(now)

    def make_room(self) -> None:
        """Wakes the publishers that wait for capacity."""
        self.room.set()
        self.room = trio.Event()

    def look(self) -> None:
        """Wakes the subscribers, and the requests that wait for completed epochs, since more is on disk."""
        for feed in self.feeds.values():
            feed.look()
        self.completed.set()
        self.completed = trio.Event()


@dataclass(frozen=True, slots=True)
class TopicsStatistics:
    """What there is now; bytes are what subscribers have yet to take, and what topics retain in memory."""

    topics: int
    producers: int
    subscriptions: int
    waiting_bytes: int
    retained_bytes: int


class Topics:
    """The topics of a daemon by name, each stated as a fact in the space ``system``."""

    def __init__(
        self,
        now: Callable[[], int],
        system: SystemSpace,
        grow: Callable[[int, int], None],
        *,
        retained: int,
    ) -> None:
        """All in memory may retain ``retained`` bytes; ``grow`` raises ``Refused`` if memory is full."""
        self._system = system
        self._grow = grow
        self._most_retained = retained
        self._retained = 0
        self._entries: dict[str, TopicEntry] = {}
        # durable topics and their producers keep their numbers, so none may come again after a restart
        self._numbers = count(now())
        self._appeared = trio.Event()

    def __iter__(self) -> Iterator[TopicEntry]:
        """Yields the topics that there are now."""
        return iter(list(self._entries.values()))

    def __len__(self) -> int:
        return len(self._entries)

    def relimit(self, *, retained: int) -> None:
        """Changes how many bytes topics in memory may retain together; retained items stay."""
        self._most_retained = retained

    def number(self) -> int:
        """Returns a number that was never used, for a topic, a producer or a subscription."""
        return next(self._numbers)

    def find(self, name: str) -> TopicEntry:
        """Returns the topic of that name; raises ``Refused`` if there is none."""
        entry = self._entries.get(name)
        if entry is None:
            raise Refused("no-topic", f"no topic named {name!r:.300}, there are {len(self._entries)}")
        return entry

    async def wait_for(self, name: str, milliseconds: int) -> TopicEntry:
        """Returns the topic of that name once there is one; raises ``Refused`` after so many milliseconds."""
        with trio.move_on_after(min(milliseconds, MAX_WAIT) / 1000):
            while name not in self._entries:
                await self._appeared.wait()
        return self.find(name)

    def make(self, name: str, order: Order, partitions: int, retain: int, owner: int) -> TopicEntry:
        """Returns a new topic in memory, without a producer."""
        self.check_another()
        if not 0 <= retain <= MAX_RETAIN:
            raise Refused("limit", f"retain={retain} bytes, limit {MAX_RETAIN} in memory: make it durable")
        if self._retained + retain > self._most_retained:
            limit = f"the limit is limits.retained_bytes={self._most_retained}"
            raise Refused("limit", f"topics in memory to retain {self._retained + retain} bytes, {limit}")
        ledger = StepLog(Topic(name, order, partitions), self.number(), retain=retain)
        return TopicEntry(ledger, owner)

    def check_another(self) -> None:
        """Raises ``Refused`` if there are as many topics as allowed."""
        if len(self._entries) >= MAX_TOPICS:
            raise Refused("limit", f"{len(self._entries)} topics of one daemon, limit {MAX_TOPICS}: end some")

    def enlist(self, entry: TopicEntry) -> None:
        """Puts a topic into the catalogue; raises ``Refused`` beyond the quota of its account."""
        if entry.account is not None:
            entry.account.take("topics")
            try:
                entry.account.take("retained_bytes", entry.budget)
            except Refused:
                entry.account.give("topics")
                raise
        self._retained += entry.budget
        self._entries[entry.topic.name] = entry
        self._system.state([entry.fact], [])
        self._appeared.set()
        self._appeared = trio.Event()

    def check_batch(self, entry: TopicEntry, size: int) -> None:
        """Raises ``Refused`` for a batch that a topic would retain, without memory for it."""
        if entry.held + size <= entry.budget:
            self._grow(0, size)

    @property
    def bytes(self) -> int:
        """Bytes that topics retain in memory, and that wait for subscribers; O(topics and subscriptions)."""
        entries = self._entries.values()
        waiting = sum([feed.statistics().bytes for entry in entries for feed in entry.feeds.values()])
        return waiting + sum([entry.held for entry in entries])

    def retire(self, entry: TopicEntry) -> None:
        """Ends a topic without producers; its name is free then."""
        if self.is_listed(entry) and entry.topic.ended:
            self.end(entry)

    def end(self, entry: TopicEntry) -> None:
        """Ends a topic with its subscriptions; its producers can send no more."""
        del self._entries[entry.topic.name]
        if entry.account is not None:
            entry.account.give("topics")
            entry.account.give("retained_bytes", entry.budget)
        self._retained -= entry.budget
        entry.topic.end()
        entry.make_room()
        entry.look()
        self._system.state([], [entry.fact])

    def is_listed(self, entry: TopicEntry) -> bool:
        """True if this topic has not ended."""
        return self._entries.get(entry.topic.name) is entry

    def statistics(self) -> TopicsStatistics:
        """Counts, in O(topics, partitions and subscriptions)."""
        entries = self._entries.values()
        return TopicsStatistics(
            len(entries),
            sum(each.producers for entry in entries for each in entry.topic.statistics()),
            sum(len(entry.feeds) for entry in entries),
            sum(feed.statistics().bytes for entry in entries for feed in entry.feeds.values()),
            sum(entry.held for entry in entries),
        )


logger = logging.getLogger("dataspace")

RETAIN: Final = 64 << 20
"""Bytes that a durable topic retains by default."""

MAX_DURABLE_RETAIN: Final = 1 << 40
MAX_AWAY: Final = 300_000
"""Milliseconds that a producer may be disconnected at most."""


class DurableTopics:
    """The durable topics of a daemon, and the connections of their producers.

    From ``open`` on it has each step written, and lets a producer that asked for it resume within its time,
    with the capabilities that it held.

    Always: durable topics are restored before the first client is served; a disconnected producer keeps its
    capabilities for the time that it asked for; then it has crashed, and its subscribers are notified.
    """

    def __init__(self, topics: Topics, flush: Callable[[], None]) -> None:
        self.writer: TopicWriter
        """What writes the steps, once they are opened."""
        self.is_open = False
        self._topics = topics
        self._flush = flush
        self._entries: dict[int, TopicEntry] = {}
        self._next_slot = 1
        self._attached: dict[int, Callable[[int], None]] = {}
        self._away: Final = Deadlines(self._lapsed)
        self._places: dict[str, tuple[TopicEntry, int]] = {}

    # -- topics ---------------------------------------------------------------------------------------

    def open(self, journal: Journal, *, accept_damage: bool) -> None:
        """Restores all topics; producers that may not be away have crashed with the previous daemon.

        Raises ``LogDamaged`` for a damaged one; with ``accept_damage``, continues without it.
        """
        self.writer, self.is_open = TopicWriter(journal, self._written), True
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
        if not 0 < retain <= MAX_DURABLE_RETAIN:
            raise Refused("limit", f"retain={retain} bytes, limit {MAX_DURABLE_RETAIN}")
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
