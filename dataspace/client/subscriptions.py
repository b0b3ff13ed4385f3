"""Subscribing to topics over a connection.

A ``Subscription`` gives whole epochs: all items of a time, from all its partitions, once nothing more of it
can come; or, without that delay, every event as it comes.

Always: each epoch is seen whole or not at all, once, however often the connection breaks; epochs are marked
if a vanished producer could have sent more of them; memory is bounded by the credit, and by ``open_bytes``
for epochs that are not complete.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from dataspace.errors import Broken, DataspaceError, Refused, UsageError
from dataspace.loops.blocks import AsyncOnly
from dataspace.loops.here import loop
from dataspace.topics import messages as forms
from dataspace.topics.epochs import (
    OVERHEAD,
    Gathering,
    TopicEpoch,
    TopicEvent,
    too_many_open,
    with_items,
)
from dataspace.topics.messages import Batch, Frontier
from dataspace.topics.subscriber import Subscriber, SubscriberStatistics
from dataspace.topics.times import Time, less_equal
from dataspace.wire import packets as p
from index.values.values import Map, Value

if TYPE_CHECKING:
    from dataspace.client.session.session import ClientSession
    from dataspace.client.topics import TopicSessions

ASKED: Final = 1024
ASKED_BYTES: Final = 1 << 20
"""Messages and bytes that a subscription requests ahead."""

OPEN_BYTES: Final = 256 << 20
"""What epochs that are still open may hold here, unless ``open_bytes`` says otherwise."""

LOOKUP: Final = 30.0
"""Seconds that one lookup request waits; it is repeated until the deadline."""


class Subscription(AsyncOnly):
    """The messages of a topic; iterate over whole epochs, or over ``events()`` as they come.

    After a reconnect it resumes without gap or repetition if the topic retains enough; else the subscription
    fails with ``Refused`` or ``Broken``, whose message states from where on something is missing.
    """

    _usage = "async with space.subscribe(…) as epochs: async for epoch in epochs"

    def __init__(
        self,
        topics: TopicSessions,
        topic: str,
        *,
        partitions: Iterable[int] | None,
        atomic: bool,
        as_of: Iterable[Time] | Time | None,
        up_to: Time | None,
        slow: str,
        timeout: float,
        open_bytes: int = OPEN_BYTES,
    ) -> None:
        self.topic = topic
        self._topics = topics
        self._session: ClientSession
        self._wanted = None if partitions is None else tuple(partitions)
        self._atomic = atomic
        self._as_of = _times(as_of)
        if up_to is not None and self._as_of and all(_ends_before(up_to, each) for each in self._as_of):
            begun = " or ".join(map(repr, self._as_of))
            raise UsageError(f"no time is at or after {begun} and before {up_to!r}")
        self._up_to = up_to
        self._slow = slow
        self._timeout = timeout
        self._most_open = open_bytes
        self._found: Map | None = None
        self._subscriber: Subscriber
        self._stream: int | None = None
        self._inbox: deque[tuple[TopicEvent, int, int]] = deque()
        self._skipped = self._skipped_bytes = 0
        self._taken = self._taken_bytes = 0
        self._asked, self._asked_bytes = ASKED, ASKED_BYTES
        self._delivered: Counter[tuple[int, Time]] = Counter()
        self._skip: Counter[tuple[int, Time]] = Counter()
        self._reached: tuple[Time, ...] | None = None
        self._gathering = Gathering(open_bytes)
        self._complete: deque[TopicEpoch] = deque()
        self._arrival = loop().event()
        self._ended = False
        self._error: DataspaceError | None = None

    # -- the application's side -----------------------------------------------------------------------

    async def __aenter__(self) -> Subscription:
        await self.open()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Ends the subscription; received epochs that were not taken are dropped."""
        self._abort()
        await loop().checkpoint()

    async def open(self) -> None:
        """Finds the topic, waiting for it up to the timeout, and subscribes.

        Returns once the beginning of the subscription is known: items sent from then on are not missed.
        """
        reads = await self._topics.reading()
        self._found = await _look_up(reads, self.topic, self._timeout)
        self._session = reads if self._found.get("durable") is True else await self._topics.session()
        count = self._found["partitions"]
        assert isinstance(count, int)  # by WIRE.md
        self.partitions = tuple(range(count)) if self._wanted is None else self._wanted
        self._begin(self._as_of)
        if self._as_of is None:
            try:
                while self._reached is None and not self._ended:
                    await self._next_arrival()
            except BaseException:  # also when cancelled: nothing else would close it
                self._abort()
                raise

    def __aiter__(self) -> Subscription:
        self._check_entered()
        return self

    def _check_entered(self) -> None:
        """Raises ``UsageError`` before the block has begun: nothing would ever come."""
        if self._found is None and not self._ended:
            raise UsageError(
                f"this subscription is not open: write `{self._usage}`, or `await ….open()` first"
            )

    async def __anext__(self) -> TopicEpoch:
        epoch = await self.next_epoch()
        if epoch is None:
            raise StopAsyncIteration
        return epoch

    async def next_epoch(self) -> TopicEpoch | None:
        """Returns the next epoch that is complete, or None at the end.

        Epochs that complete at once come in the order of their times.
        """
        while not self._complete:
            event = await self.next_event()
            self._complete += self.rest() if event is None else self.collect(event)
            if event is None and not self._complete:
                return None
        return self._complete.popleft()

    def events(self) -> Events:
        """Returns batches as they come (``items`` is a tuple), frontiers as they move, and crashes."""
        self._check_entered()
        return Events(self)

    @property
    def frontier(self) -> tuple[Time, ...]:
        """The frontier: later items lie at or after one of these times."""
        self._check_entered()
        return tuple(self._subscriber.frontier)

    def collect(self, event: TopicEvent) -> list[TopicEpoch]:
        """Returns the epochs that an event completes, by their times; for readers of ``events()``.

        Raises ``Refused("limit")`` if the open epochs hold more than ``open_bytes``: the subscription has
        ended.
        """
        try:
            return [each.whole() for each in self._gathering.collect(event)]
        except Refused as refusal:
            raise self._overfull(refusal.text) from None

    def rest(self, frontier: tuple[Time, ...] = ()) -> list[TopicEpoch]:
        """Returns the epochs that a frontier has passed, or all of them at the end."""
        return [each.whole() for each in self._gathering.rest(frontier)]

    def _overfull(self, what: str) -> Refused:
        """Ends the subscription, since too much waits for a time that a producer holds back."""
        self._abort()
        self._inbox.clear()
        self._gathering.clear()
        self._error = Refused("limit", f"{what}: a producer holds {self.frontier} back")
        return self._error

    async def next_event(self) -> TopicEvent | None:
        """Returns the next of ``events()``, or None at the end."""
        self._check_entered()
        while not self._inbox:
            if self._error is not None:
                raise type(self._error)(*self._error.args)
            if self._ended:
                return None
            await self._next_arrival()
        event, items, size = self._inbox.popleft()
        self._took(items, size)
        return event

    async def _next_arrival(self) -> None:
        if self._arrival.is_set():  # several tasks may read
            self._arrival = loop().event()
        await self._arrival.wait()

    def statistics(self) -> SubscriberStatistics:
        """Returns counts since it was opened, or opened again."""
        self._check_entered()
        return self._subscriber.statistics()

    # -- the wire's side ------------------------------------------------------------------------------

    def _begin(self, as_of: tuple[Time, ...] | None, number: int | None = None) -> None:
        assert self._found is not None  # it is open
        self._subscriber = Subscriber(self.partitions, atomic=self._atomic, up_to=self._up_to)
        spec: dict[str, Value] = {
            "kind": "topic",
            "topic": self.topic,
            "id": self._found["id"],
            "partitions": self.partitions,
            "policy": self._slow,
        }
        if as_of is not None:
            spec["as_of"] = as_of
        self._skipped = self._skipped_bytes = 0
        self._taken = -sum(
            items for _, items, _ in self._inbox
        )  # what is buffered counts against the new window
        self._taken_bytes = -sum(size for _, _, size in self._inbox)
        self._asked = max(1, self._taken + ASKED)
        self._asked_bytes = max(1, self._taken_bytes + ASKED_BYTES)
        self._stream = self._session.open_stream(self, Map(spec), self._asked, self._asked_bytes, number)

    def reopen(self, number: int, *, resumed: bool, moved: bool) -> None:
        """Resumes on a new connection where it was; the daemon refuses if that is not retained."""
        del resumed, moved  # a stream of a topic does not outlive its connection, whatever the session does
        if self._ended:
            return
        assert self._found is not None  # it is open
        if self._reached is None:  # nothing has been delivered
            self._begin(self._as_of, number)
            return
        if self._reached == ():  # only the end of the stream has not come
            self.finish()
            return
        if not self._found["retain"]:
            missing = f"what topic {self.topic!r} sent since {self._reached} is missing: it retains nothing"
            self.fail(Broken(f"the connection was lost, and {missing}"))
            return
        self._skip = self._delivered.copy()
        self._begin(self._reached, number)

    def know(self, total: int) -> None:
        """Ignores how many values are ready."""

    @property
    def seen(self) -> int:
        """No epoch of the space."""
        return 0

    def reach(self, epoch: int) -> None:
        """Ignores epochs: a topic has frontiers instead."""

    def arrive(self, values: tuple[Value, ...], _first: int, size: int, _available: int) -> None:
        """Takes a frame of messages, which cost ``size`` bytes of credit."""
        for at, value in enumerate(values, 1):
            self._skipped += 1
            self._skipped_bytes += size if at == len(values) else 0
            events = self._subscriber.events_of(forms.message_of(value))
            kept = [with_items(event) for event in events if self._is_new(event)]
            if kept:
                self._inbox += [(event, 0, 0) for event in kept[:-1]]
                self._inbox.append((kept[-1], self._skipped, self._skipped_bytes))
                self._skipped = self._skipped_bytes = 0
        if self._skipped and not self._inbox:  # a reader does not take out what was filtered
            self._took(self._skipped, self._skipped_bytes)
            self._skipped = self._skipped_bytes = 0
        if self._subscriber.ended and not self._ended:
            self._abort()
        if len(self._delivered) * OVERHEAD > self._most_open and not self._ended:
            self._overfull(too_many_open(f"{len(self._delivered)} epochs", self._most_open))
        self._arrival.set()

    def _is_new(self, event: TopicEvent) -> bool:
        """True if a batch was not delivered before the connection was lost; counts new batches."""
        match event:
            case Batch(partition, time, _):
                at = (partition, time)
                if self._skip[at] > 0:
                    self._skip[at] -= 1
                    return False
                self._delivered[at] += 1
            case Frontier(times):
                self._reached = times
                over = [at for at in self._delivered if not any(less_equal(t, at[1]) for t in times)]
                for at in over:
                    del self._delivered[at]
        return True

    def _took(self, items: int, size: int) -> None:
        """Notes that so many messages were taken; requests more when half of the window is used up."""
        self._taken += items
        self._taken_bytes += size
        if self._asked - self._taken < ASKED // 2 or self._asked_bytes - self._taken_bytes < ASKED_BYTES // 2:
            self._asked = self._taken + ASKED
            self._asked_bytes = self._taken_bytes + ASKED_BYTES
            if self._stream is not None and not self._ended:
                self._session.send_on_stream(p.Ask(self._stream, self._asked, self._asked_bytes))

    def finish(self) -> None:
        """Ends: the topic has ended, or nothing more can come of its partitions."""
        self._ended = True
        self._arrival.set()

    def fail(self, error: DataspaceError) -> None:
        """Fails: the stream has failed, or the space was closed."""
        self._ended = True
        self._error = error
        self._arrival.set()

    def _abort(self) -> None:
        if self._stream is not None and not self._ended:
            self._session.drop_stream(self._stream)
        self._ended = True
        self._arrival.set()


class Events(AsyncOnly):
    """The events of a subscription, one after another."""

    _usage = "async for event in subscription.events()"

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    def __aiter__(self) -> Events:
        return self

    async def __anext__(self) -> TopicEvent:
        event = await self._subscription.next_event()
        if event is None:
            raise StopAsyncIteration
        return event


async def _look_up(session: ClientSession, topic: str, timeout: float) -> Map:
    """Returns the daemon's description of a topic, once there is one; raises ``Refused`` after so many
    seconds."""
    deadline = loop().current_time() + timeout
    while True:
        left = max(0.0, deadline - loop().current_time())
        wait = round(min(left, LOOKUP) * 1000) if left < math.inf else round(LOOKUP * 1000)
        try:
            answer = await session.request("lookup", Map({"topic": topic, "wait": wait}))
            assert isinstance(answer, Map)  # by WIRE.md
            return answer
        except Refused as refusal:
            if refusal.code != "no-topic" or loop().current_time() >= deadline:
                raise


def _times(as_of: Iterable[Time] | Time | None) -> tuple[Time, ...] | None:
    """Returns one time, or an antichain given as a list, as a tuple."""
    if as_of is None:
        return None
    return tuple(as_of) if isinstance(as_of, list) else (as_of,)  # type: ignore[return-value]  # a time is no list


def _ends_before(end: Time, begin: Time) -> bool:
    """True if no time is at or after ``begin`` and before ``end``; the daemon refuses what is no time of the
    topic."""
    if isinstance(end, tuple) and isinstance(begin, tuple):
        return len(end) == len(begin) and less_equal(end, begin)
    return isinstance(end, int) and isinstance(begin, int) and end <= begin
