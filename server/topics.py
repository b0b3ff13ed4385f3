"""Topics of a daemon: their catalogue, which is facts, and what each connection publishes and follows.

``Topics`` belongs to the daemon: topics by name, and the space ``system`` in which anybody can observe what
topics, publications and subscriptions there are.  ``Following`` belongs to a connection: its producers, which
crash with it, and its subscriptions.

Always: only the connection that joined as a producer can send as it; the catalogue says what is, in the
turn in which it came to be; a topic without producers has ended, and its name is free; producers of which
more than a window is unanswered break the protocol, so what waits for a slow subscriber is bounded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Final

import trio

from dataspace.errors import ProtocolError, Refused, UsageError
from dataspace.space import Space
from dataspace.topics import forms
from dataspace.topics.forms import changes_of
from dataspace.topics.messages import Message
from dataspace.topics.times import Order
from dataspace.wire import packets as p
from dataspace.wire.codec import unpack
from index.values import Map, Record, Value
from relay.outbox import OutStream
from relay.topics.feed import Feed, Packed
from relay.topics.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from dataspace.topics.times import Time
    from server.connection import Connection

SYSTEM: Final = "system"
"""The name of the space that says what there is."""

MAX_TOPICS: Final = 4096
MAX_PRODUCERS: Final = 1024
"""Producers of one connection."""

MAX_RETAIN: Final = 256 << 20
"""Bytes that one topic may retain."""

WINDOW: Final = 1 << 20
"""Bytes that a producer may have unanswered, before its last packet."""

MAX_WAIT: Final = 60_000
"""Milliseconds that a lookup may wait at once."""

_OWNER: Final = "catalogue"
_OPTIONS: Final = frozenset(["kind", "space", "topic", "id", "partitions", "as_of", "policy"])


@dataclass(eq=False)
class Entry:
    """A topic in the catalogue; ``owner`` is the session that may end it."""

    number: int
    topic: Topic
    owner: int
    feeds: dict[int, Feed] = field(default_factory=dict)
    room: trio.Event = field(default_factory=trio.Event)

    @property
    def full(self) -> bool:
        """Whether a subscriber for whom publishers wait has more than enough."""
        return any(each.full for each in self.feeds.values())

    def make_room(self) -> None:
        """Lets the publishers that wait look again."""
        self.room.set()
        self.room = trio.Event()


@dataclass(eq=False)
class Producer:
    """A producer of one connection: its topic, and what of it is unanswered."""

    entry: Entry
    unanswered: int = 0


@dataclass(frozen=True, slots=True)
class TopicsStatistics:
    """What there is now; bytes are what subscribers have yet to take, and what topics retain."""

    topics: int
    producers: int
    subscriptions: int
    waiting_bytes: int
    retained_bytes: int


class Topics:
    """The topics of a daemon, by name; ``now`` gives microseconds since 1970 UTC."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._entries: dict[str, Entry] = {}
        self._numbers = count(1)
        self._handles = count(1)
        self._facts: dict[object, int] = {}
        self._appeared = trio.Event()
        self.space: Final = Space(SYSTEM)
        # nothing of this space is on disk, and its epochs must not repeat those of an earlier daemon
        self.space.epoch = now()

    def __len__(self) -> int:
        return len(self._entries)

    def number(self) -> int:
        """A number that was never used, for a topic, a producer or a subscription."""
        return next(self._numbers)

    def find(self, name: str) -> Entry:
        """The topic of that name."""
        entry = self._entries.get(name)
        if entry is None:
            raise Refused("no-topic", f"no topic named {name!r}, there are {len(self._entries)}")
        return entry

    async def wait_for(self, name: str, milliseconds: int) -> Entry:
        """The topic of that name, once there is one; ``Refused`` after so many milliseconds."""
        with trio.move_on_after(min(milliseconds, MAX_WAIT) / 1000):
            while name not in self._entries:
                await self._appeared.wait()
        return self.find(name)

    def make(self, name: str, order: Order, partitions: int, retain: int, owner: int) -> Entry:
        """A new topic; its first producer has yet to join it."""
        if len(self._entries) >= MAX_TOPICS:
            raise Refused("limit", f"{len(self._entries)} topics, limit {MAX_TOPICS}")
        if not 0 <= retain <= MAX_RETAIN:
            raise Refused("limit", f"retain {retain} bytes, limit {MAX_RETAIN}")
        return Entry(self.number(), Topic(name, order, partitions, retain=retain), owner)

    def enlist(self, entry: Entry) -> None:
        """Puts a topic into the catalogue."""
        topic = entry.topic
        self._entries[topic.name] = entry
        self.state(
            [Record("topic", topic.name, entry.number, len(topic.partitions), topic.order.dimensions)], []
        )
        self._appeared.set()
        self._appeared = trio.Event()

    def retire(self, entry: Entry) -> None:
        """Ends a topic to which nothing can come; its name is free."""
        topic = entry.topic
        if self._entries.get(topic.name) is entry and topic.ended:
            self.end(entry)

    def end(self, entry: Entry) -> None:
        """Ends a topic: its subscriptions are over, and its producers can send no more."""
        topic = entry.topic
        del self._entries[topic.name]
        topic.end()
        entry.make_room()
        self.state(
            [], [Record("topic", topic.name, entry.number, len(topic.partitions), topic.order.dimensions)]
        )

    def is_listed(self, entry: Entry) -> bool:
        """Whether this topic has not ended."""
        return self._entries.get(entry.topic.name) is entry

    def statistics(self) -> TopicsStatistics:
        """Counts, in O(topics, partitions and subscriptions)."""
        entries = self._entries.values()
        return TopicsStatistics(
            len(entries),
            sum(each.producers for entry in entries for each in entry.topic.statistics()),
            sum(len(entry.feeds) for entry in entries),
            sum(feed.statistics().bytes for entry in entries for feed in entry.feeds.values()),
            sum(entry.topic.history.size for entry in entries),
        )

    def state(self, appeared: list[Record], vanished: list[Record]) -> None:
        """Says in the catalogue what there is now, and what no longer, in one turn."""
        actions: list[p.Action] = []
        for fact in appeared:
            self._facts[fact] = handle = next(self._handles)
            actions.append((p.ASSERT, handle, fact))
        actions += [(p.RETRACT, self._facts.pop(fact)) for fact in vanished if fact in self._facts]
        if actions:
            self.space.commit(_OWNER, actions, self._now())


class Following:
    """What one connection publishes and follows."""

    def __init__(self, connection: Connection, topics: Topics) -> None:
        self._connection = connection
        self._topics = topics
        self._producers: dict[int, Producer] = {}
        self._streams: dict[OutStream, tuple[Entry, int, list[Record]]] = {}

    # -- producers ------------------------------------------------------------------------------------

    def join(self, name: str, arguments: Map) -> Value:
        """Lets this connection publish to a topic, which is made if there is none of that name."""
        if len(self._producers) >= MAX_PRODUCERS:
            raise Refused("limit", f"{len(self._producers)} producers, limit {MAX_PRODUCERS}")
        if not name:
            raise Refused("bad-request", "a topic has a name")
        order = Order(_integer(arguments, "dimensions", 0))
        partitions = _integer(arguments, "partitions", 1)
        try:
            entry = self._topics.find(name)
        except Refused:
            entry = self._topics.make(
                name, order, partitions, _integer(arguments, "retain", 0), self._connection.number
            )
        topic = entry.topic
        if (topic.order, len(topic.partitions)) != (order, partitions):
            raise Refused(
                "topic-differs",
                f"{name!r} has {len(topic.partitions)} partitions and {topic.order.dimensions} dimensions,"
                f" asked for were {partitions} and {order.dimensions}",
            )
        number = self._topics.number()
        partition = _integer(arguments, "partition", 0)
        time = topic.join(number, partition, arguments.get("time"))  # type: ignore[arg-type]  # join checks it
        if not self._topics.is_listed(entry):
            self._topics.enlist(entry)
        self._producers[number] = Producer(entry)
        self._topics.state([self._publication(number, entry, partition)], [])
        return Map({"producer": number, "time": time, "id": entry.number})

    def _publication(self, number: int, entry: Entry, partition: int) -> Record:
        return Record("publication", entry.topic.name, partition, number, self._connection.number)

    def produce(self, packet: p.Produce, size: int) -> None:
        """Carries out the steps of a producer in order; the answer comes when there is room for more.

        ``ProtocolError`` for one that does not wait for answers.
        """
        producer = self._producers.get(packet.producer)
        if producer is None:
            raise Refused("no-producer", f"producer {packet.producer} is not one of this connection's")
        if producer.unanswered > WINDOW:
            raise ProtocolError("overrun", f"{producer.unanswered} bytes unanswered, window {WINDOW}")
        entry = producer.entry
        try:
            for step in packet.steps:
                self._carry_out(packet.producer, producer, step)
        finally:
            if self._topics.is_listed(entry):
                self._topics.retire(entry)
        if entry.full:
            producer.unanswered += size
            self._connection.start(self._answer_later, producer, packet.number, size)
        else:
            self._connection.say(p.Answer(packet.number, None))

    async def _answer_later(self, producer: Producer, number: int, size: int) -> None:
        while producer.entry.full:
            await producer.entry.room.wait()
        producer.unanswered -= size
        self._connection.say(p.Answer(number, None))
        self._connection.daemon.flush()

    def _carry_out(self, number: int, producer: Producer, step: Value) -> None:
        entry = producer.entry
        if not self._topics.is_listed(entry):
            raise Refused("no-topic", f"topic {entry.topic.name!r} has ended")
        match step:
            case (forms.SEND, time, bytes(items)):
                unpack(items)  # a subscriber must not be broken by a producer
                entry.topic.send(number, time, items, len(items))  # type: ignore[arg-type]  # send checks it
            case (forms.CHANGE, changes):
                entry.topic.progress(number, changes_of(changes))
            case (forms.LEAVE,):
                self._gone(number)
                entry.topic.leave(number)
            case (forms.CRASH, str(reason)):
                self._gone(number)
                entry.topic.crash(number, reason[:4096])
            case _:
                raise Refused("bad-request", f"no step of a producer: {step!r:.80}")

    def _gone(self, number: int) -> None:
        producer = self._producers.pop(number)
        at = producer.entry.topic.partition_of(number)
        self._topics.state([], [self._publication(number, producer.entry, at)])

    def end_topic(self, name: str) -> None:
        """Ends a topic; only the session that made it may."""
        entry = self._topics.find(name)
        if entry.owner != self._connection.number:
            raise Refused("not-owner", f"topic {name!r} belongs to session {entry.owner}")
        self._topics.end(entry)

    # -- subscribers ----------------------------------------------------------------------------------

    def open(self, stream: OutStream, spec: Map) -> None:
        """Begins to feed a stream with the messages of a topic; ``Refused`` or ``UsageError``."""
        unknown = [str(name) for name in spec if name not in _OPTIONS]
        if unknown:
            raise Refused("bad-request", f"no option {unknown[0]!r}, known are {', '.join(sorted(_OPTIONS))}")
        name, policy = spec.get("topic"), spec.get("policy", "fail")
        if not isinstance(name, str) or policy not in ("fail", "wait"):
            raise Refused("bad-request", "a topic and a policy, 'fail' or 'wait', are needed")
        entry = self._topics.find(name)
        if spec.get("id", entry.number) != entry.number:
            raise Refused("no-topic", f"topic {name!r} is another one now")
        topic = entry.topic
        partitions = spec.get("partitions", tuple(range(len(topic.partitions))))
        as_of = spec.get("as_of")
        if not isinstance(partitions, tuple) or not (as_of is None or isinstance(as_of, tuple)):
            raise Refused("bad-request", "partitions and as_of must be arrays")
        number = self._topics.number()
        connection = self._connection
        feed = Feed(lambda: connection.wake(stream), entry.make_room, wait=policy == "wait")
        stream.observation = feed
        chosen: list[int] = list(partitions)  # type: ignore[arg-type]  # checked by the topic
        times: tuple[Time, ...] | None = as_of  # type: ignore[assignment]  # as above
        facts = [Record("subscription", name, each, number, connection.number) for each in chosen]
        self._streams[stream] = (entry, number, facts)
        try:
            topic.subscribe(number, chosen, _Teller(feed), lambda: self._over(stream), as_of=times)
        except UsageError:
            del self._streams[stream]
            raise
        if stream in self._streams:
            entry.feeds[number] = feed
            self._topics.state(facts, [])
        connection.wake(stream)

    def _over(self, stream: OutStream) -> None:
        """Nothing more comes of a topic: the stream is complete once it is taken."""
        stream.complete = True
        self.close(stream)
        self._connection.wake(stream)

    def close(self, stream: OutStream) -> None:
        """Stops feeding a stream, if it was fed from here."""
        found = self._streams.pop(stream, None)
        if found is not None:
            entry, number, facts = found
            entry.topic.unsubscribe(number)
            entry.feeds.pop(number, None)
            entry.make_room()
            self._topics.state([], facts)

    def end(self, reason: str) -> None:
        """The connection is over: its subscriptions end, its producers crash; may be called again."""
        for stream in list(self._streams):
            self.close(stream)
        for number, producer in list(self._producers.items()):
            self._gone(number)
            if self._topics.is_listed(producer.entry):
                producer.entry.topic.crash(number, reason)
                self._topics.retire(producer.entry)


class _Teller:
    """Tells one subscriber; a message is packed once for all of them."""

    __slots__ = ("_feed",)

    latest: Packed | None = None

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    def __call__(self, message: Message) -> None:
        packed = _Teller.latest
        if packed is None or packed.message is not message:
            packed = _Teller.latest = Packed(message)
        self._feed.offer(packed)


def _integer(arguments: Map, name: str, default: int) -> int:
    value = arguments.get(name, default)
    if value.__class__ is not int:
        raise Refused("bad-request", f"{name} must be an integer, got {value!r:.60}")
    return value
