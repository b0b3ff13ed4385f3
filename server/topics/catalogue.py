"""The topics of a daemon by name, stated as facts in the space ``system``, where clients can observe them.

What each connection publishes and subscribes is in ``following``; durable topics are in ``durable``.

Always: a topic and its fact appear in one turn; a topic without producers has ended and its name is free,
unless it is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Final

import trio

from dataspace.errors import Refused
from dataspace.topics.times import Order
from index.values.values import Record, Value
from relay.topics.feed import Feed
from relay.topics.steps import StepLog
from relay.topics.topic import Topic
from server.owners.accounts import Account
from server.system import SystemSpace

MAX_TOPICS: Final = 4096

MAX_RETAIN: Final = 256 << 20
"""Bytes that one topic may retain in memory."""


@dataclass(eq=False)
class TopicEntry:
    """A topic in the catalogue: its steps, and the session that may end it."""

    step_log: StepLog
    owner: int
    account: Account | None = None
    """The account that the topic counts for until it ends."""
    feeds: dict[int, Feed] = field(default_factory=dict)
    fall_back: dict[int, Callable[[], None]] = field(default_factory=dict)
    """By the subscription: moves a subscriber of a followed topic back to the disk."""
    has_room: trio.Event = field(default_factory=trio.Event)
    completed: trio.Event = field(default_factory=trio.Event)
    skipped: Refused = field(default_factory=lambda: Refused("", ""))
    """What subscribers are told that read on from before what a follower could not read any more."""

    @property
    def topic(self) -> Topic:
        """The topic itself, for its subscribers."""
        return self.step_log.topic

    @property
    def number(self) -> int:
        """The identity of the topic."""
        return self.step_log.number

    @property
    def durable(self) -> bool:
        """True if the topic is on disk."""
        return not self.step_log.in_memory

    @property
    def budget(self) -> int:
        """Bytes that the topic may retain in memory."""
        return 0 if self.durable else self.step_log.retain

    @property
    def held(self) -> int:
        """Bytes that the topic retains in memory."""
        return 0 if self.durable else self.step_log.size

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
        self.has_room.set()
        self.has_room = trio.Event()

    def send_back(self) -> None:
        """Moves slow subscribers of a followed topic to the disk, which they read at their own pace."""
        for number, feed in list(self.feeds.items()):
            if feed.full:
                self.fall_back[number]()

    def fail(self, refusal: Refused) -> None:
        """Ends all subscriptions with an error."""
        for feed in list(self.feeds.values()):
            feed.fail(refusal)

    def wake_readers(self) -> None:
        """Wakes the subscribers, and the requests that wait for completed epochs, since more is on disk."""
        for feed in self.feeds.values():
            feed.send_held()
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
        elsewhere: Callable[[], Refused | None] = lambda: None,
    ) -> None:
        """All in memory may retain ``retained`` bytes; ``grow`` raises ``Refused`` if memory is full.

        ``elsewhere`` returns who is to be asked for topics that are not here, if this daemon follows another.
        """
        self._now = now
        self._elsewhere = elsewhere
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

    def number_from_now(self) -> None:
        """Goes on with numbers that no other daemon can have given until now."""
        self._numbers = count(max(self._now(), self.number()))

    def find(self, name: str) -> TopicEntry:
        """Returns the topic of that name; raises ``Refused`` if there is none."""
        entry = self._entries.get(name)
        if entry is None:
            none = Refused("no-topic", f"no topic named {name!r:.300}, there are {len(self._entries)}")
            raise self._elsewhere() or none
        return entry

    def get(self, name: str) -> TopicEntry | None:
        """Returns the topic of that name, or None."""
        return self._entries.get(name)

    def check_led(self) -> None:
        """Raises ``Refused`` unless this daemon leads the topics."""
        if (refusal := self._elsewhere()) is not None:
            raise refusal

    def behind(self, entry: TopicEntry) -> Refused:
        """Returns the refusal of a reader that has seen more of a followed topic elsewhere."""
        if not self.is_listed(entry):
            return has_ended(entry)
        url = (self._elsewhere() or Refused("", "")).url
        return Refused("behind", f"later times of topic {entry.topic.name!r} were seen elsewhere", url)

    def skip(self, entry: TopicEntry, step_log: StepLog) -> None:
        """Goes on with a topic as it is later than what a follower had read, and ends its subscriptions.

        Where retention has deleted epochs, subscribers are told so.  Else only steps are gone that are of
        none, as those of producers that have left: subscribers come back, and begin where they were.
        """
        name, are_gone = entry.topic.name, step_log.oldest > entry.step_log.completed + 1
        code, what = ("epoch-gone", "times") if are_gone else ("behind", "steps")
        entry.skipped = Refused(code, f"{what} of topic {name!r} went before this follower had read them")
        entry.step_log = step_log
        entry.fail(entry.skipped)
        entry.wake_readers()

    def check_same(self, entry: TopicEntry, number: Value) -> None:
        """Raises ``Refused`` if a topic is not the one with this number."""
        if number != entry.number:
            name = entry.topic.name
            again = Refused("no-topic", f"topic {name!r} was made again since, as another topic")
            raise self._elsewhere() or again

    async def wait_for(self, name: str, milliseconds: int) -> TopicEntry:
        """Returns the topic of that name once there is one; raises ``Refused`` after so many milliseconds."""
        with trio.move_on_after(milliseconds / 1000):
            while name not in self._entries and self._elsewhere() is None:
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
        step_log = StepLog(Topic(name, order, partitions), self.number(), retain=retain)
        return TopicEntry(step_log, owner)

    def check_another(self) -> None:
        """Raises ``Refused`` if there are as many topics as allowed."""
        if len(self._entries) >= MAX_TOPICS:
            raise Refused("limit", f"{len(self._entries)} topics of one daemon, limit {MAX_TOPICS}: end some")

    def enlist(self, entry: TopicEntry) -> None:
        """Puts a topic into the catalogue; raises ``Refused`` beyond the quota of its account."""
        if entry.account is not None:
            entry.account.reserve("topics")
            try:
                entry.account.reserve("retained_bytes", entry.budget)
            except Refused:
                entry.account.release("topics")
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
            entry.account.release("topics")
            entry.account.release("retained_bytes", entry.budget)
        self._retained -= entry.budget
        entry.topic.end()
        entry.make_room()
        entry.wake_readers()
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


def has_ended(entry: TopicEntry) -> Refused:
    """Returns the refusal to a subscriber that was not told everything when its topic ended."""
    return Refused("no-topic", f"topic {entry.topic.name!r} has ended")
