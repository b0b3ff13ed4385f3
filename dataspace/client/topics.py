"""Publishing to topics and subscribing to them, over a connection.

A ``Publication`` is one producer in one partition: it holds capabilities, sends items at times at or after
them, and moves on.  A ``Subscription`` gives whole epochs: all items of a time, from all its partitions, once
nothing more of it can come.

Always: a subscriber sees each epoch whole or not at all, and is told which ones it cannot know to be whole
because a producer vanished; a publication that is left by an error, or with its connection, has crashed, and
one that is left in order has not.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import trio

from dataspace.client.questions import Question
from dataspace.errors import Broken, DataspaceError, ProtocolError, Refused, UsageError
from dataspace.topics import forms
from dataspace.topics.messages import Batch, Crash, Frontier
from dataspace.topics.subscriber import Subscriber
from dataspace.topics.times import Order, Time, less_equal
from dataspace.wire import packets as p
from dataspace.wire.codec import pack, unpack
from index.values import Map, Value, freeze

if TYPE_CHECKING:
    from dataspace.client.space import RemoteSpace

WINDOW: Final = 256 << 10
"""Bytes that a publication sends before it waits for answers."""

ASKED: Final = 1024
ASKED_BYTES: Final = 1 << 20
"""What a subscription asks for ahead, in messages and bytes."""

LOOKUP: Final = 30.0
"""Seconds that one request of a lookup waits; it is asked again until the deadline."""


class Capability:
    """The right to send at ``time`` and later; while it is held, nobody takes those times for complete."""

    __slots__ = ("_publication", "time")

    def __init__(self, publication: Publication, time: Time) -> None:
        self._publication = publication
        self.time: Time | None = time

    async def downgrade(self, time: Time) -> None:
        """Gives up what lies before a later time."""
        if self.time is None or not less_equal(self.time, time):
            raise UsageError(f"a capability for {self.time} cannot be downgraded to {time}")
        before, self.time = self.time, time
        if before != time:
            await self._publication._change([(before, -1), (time, +1)])  # two classes, one machine

    async def release(self) -> None:
        """Gives it up; nothing happens if it was released."""
        before, self.time = self.time, None
        if before is not None:
            await self._publication._change([(before, -1)])  # as above


class Publication:
    """One producer in one partition of a topic; made by ``RemoteSpace.publish``.

    It begins with one capability, at ``time``, which ``advance`` downgrades; ``hold`` makes more.  A call
    returns when the step is on its way, and waits only while too much is unanswered.
    """

    def __init__(self, space: RemoteSpace, topic: str, partition: int, order: Order) -> None:
        self.topic = topic
        self.partition = partition
        self.order = order
        self._space = space
        self._producer = 0
        self._main: Capability
        self._held: Counter[Time] = Counter()
        self._unanswered: deque[tuple[Question, int]] = deque()
        self._size = 0
        self._left = False

    @property
    def time(self) -> Time | None:
        """Where the first capability stands; None once it is released."""
        return self._main.time

    async def send(self, *items: object, at: Time | None = None) -> None:
        """Sends items at a time, by default that of the first capability.

        ``UsageError`` without a capability at or before it.  Items of one call stay together and in order.
        """
        time = self.time if at is None else self.order.check(at)
        if time is None or not any(less_equal(each, time) for each in self._held):
            raise UsageError(f"no capability for time {time}, held are {sorted(self._held)}")
        await self._step((forms.SEND, time, pack(tuple(map(freeze, items)))))

    async def advance(self, time: Time) -> None:
        """Nothing before this time comes from the first capability any more."""
        await self._main.downgrade(self.order.check(time))

    async def hold(self, time: Time) -> Capability:
        """One more capability, at or after one that is held."""
        if not any(less_equal(each, time) for each in self._held):
            raise UsageError(f"no capability for time {time}, held are {sorted(self._held)}")
        await self._change([(self.order.check(time), +1)])
        return Capability(self, time)

    async def release(self) -> None:
        """Releases the first capability."""
        await self._main.release()

    async def flush(self) -> None:
        """Waits until the daemon has taken all that was said; raises what it refused."""
        while self._unanswered:
            await self._answered()

    async def _change(self, changes: list[tuple[Time, int]]) -> None:
        for time, by in changes:
            self._held[time] += by
        self._held += Counter()  # without those that have come to nothing
        await self._step((forms.CHANGE, tuple(changes)))

    async def _step(self, step: Value) -> None:
        if self._left:
            raise UsageError(f"this publication to {self.topic!r} has ended")
        while self._unanswered and self._size > WINDOW:
            await self._answered()
        await trio.lowlevel.checkpoint()
        self._say(step)

    def _say(self, step: Value) -> None:
        question, size = self._space.produce(self._producer, (step,))
        self._unanswered.append((question, size))
        self._size += size

    async def _answered(self) -> None:
        question, size = self._unanswered[0]
        try:
            await question.wait()
        except DataspaceError:
            self._left = True
            raise
        if self._unanswered and self._unanswered[0][0] is question:  # several tasks may wait
            self._unanswered.popleft()
            self._size -= size

    async def join(self, *, partitions: int, time: Time | None, retain: int) -> None:
        """Joins the topic, which is made if there is none."""
        asked: dict[str, Value] = {
            "topic": self.topic,
            "partition": self.partition,
            "partitions": partitions,
            "dimensions": self.order.dimensions,
            "retain": retain,
        }
        if time is not None:
            asked["time"] = time
        told = await self._space.request("join", Map(asked))
        assert isinstance(told, Map)  # by WIRE.md
        start = self.order.check(told["time"])
        self._producer = told["producer"]  # type: ignore[assignment]  # a number, by WIRE.md
        self._held[start] = 1
        self._main = Capability(self, start)

    async def leave(self) -> None:
        """Releases everything and leaves, once the daemon has taken all that was said."""
        if not self._left:
            self._say((forms.LEAVE,))
            self._left = True
        await self.flush()

    def crash(self, reason: str) -> None:
        """Leaves with times open: subscribers are told that these may be incomplete."""
        if not self._left:
            self._left = True
            with suppress(DataspaceError):  # it is gone with its connection, then
                self._space.produce(self._producer, ((forms.CRASH, reason[:1000]),))


@asynccontextmanager
async def publishing(
    space: RemoteSpace,
    topic: str,
    *,
    partition: int = 0,
    partitions: int = 1,
    dimensions: int = 0,
    time: Time | None = None,
    retain: int = 0,
) -> AsyncIterator[Publication]:
    """See ``RemoteSpace.publish``."""
    publication = Publication(space, topic, partition, Order(dimensions))
    await publication.join(partitions=partitions, time=time, retain=retain)
    try:
        yield publication
    except BaseException as error:
        publication.crash(f"{type(error).__name__}: {error}")
        raise
    await publication.leave()


@dataclass(frozen=True, slots=True)
class TopicEpoch:
    """All items of one time, in the order of partitions and of sending.

    ``crashed`` says that a producer vanished that could have sent more of it, and why.
    """

    time: Time
    items: tuple[Value, ...]
    crashed: str = ""


TopicEvent: TypeAlias = Batch | Frontier | Crash


class Subscription:
    """The messages of a topic; iterate over whole epochs, or over ``events()`` as they come.

    A connection that is lost and comes back goes on without gap or repetition if the topic retains enough;
    else the subscription fails with ``Refused`` or ``Broken``, which says from where on something is missing.
    """

    def __init__(
        self,
        space: RemoteSpace,
        topic: str,
        *,
        partitions: Iterable[int] | None,
        atomic: bool,
        as_of: Iterable[Time] | Time | None,
        up_to: Time | None,
        slow: str,
        timeout: float,
    ) -> None:
        self.topic = topic
        self._space = space
        self._wanted = None if partitions is None else tuple(partitions)
        self._atomic = atomic
        self._as_of = _times(as_of)
        self._up_to = up_to
        self._slow = slow
        self._timeout = timeout
        self._found: Map | None = None
        self._subscriber: Subscriber
        self._stream: int | None = None
        self._inbox: deque[tuple[TopicEvent, int, int]] = deque()
        self._skipped = self._skipped_bytes = 0
        self._taken = self._taken_bytes = 0
        self._asked, self._asked_bytes = ASKED, ASKED_BYTES
        self._delivered: Counter[tuple[int, Time]] = Counter()
        self._skip: Counter[tuple[int, Time]] = Counter()
        self._open: dict[Time, list[Batch]] = {}
        self._crashed: dict[Time, str] = {}
        self._complete: deque[TopicEpoch] = deque()
        self._arrival = trio.Event()
        self._ended = False
        self._error: DataspaceError | None = None

    # -- the application's side -----------------------------------------------------------------------

    async def __aenter__(self) -> Subscription:
        await self.open()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self._abort()
        await trio.lowlevel.checkpoint()

    async def open(self) -> None:
        """Finds the topic, waiting for it up to the timeout, and subscribes."""
        self._found = await _look_up(self._space, self.topic, self._timeout)
        count = self._found["partitions"]
        assert isinstance(count, int)  # by WIRE.md
        self.partitions = tuple(range(count)) if self._wanted is None else self._wanted
        self._begin(self._as_of)

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> TopicEpoch:
        """The next epoch that is complete; those that complete at once come in the order of their times."""
        while not self._complete:
            event = await self.next_event()
            self._complete += self.rest() if event is None else self.collect(event)
            if event is None and not self._complete:
                raise StopAsyncIteration
        return self._complete.popleft()

    def events(self) -> Events:
        """Batches as they come (``items`` is a tuple), frontiers as they move, and crashes."""
        return Events(self)

    @property
    def frontier(self) -> tuple[Time, ...]:
        """What may still come lies at or after one of these."""
        return tuple(self._subscriber.frontier)

    def collect(self, event: TopicEvent) -> list[TopicEpoch]:
        """The epochs that an event completes, in the order of their times; for who reads ``events()``."""
        match event:
            case Batch():
                self._open.setdefault(event.time, []).append(event)
            case Crash():
                self._crashed.update(dict.fromkeys(event.epochs, event.reason))
            case Frontier(times):
                return self.rest(times)
        return []

    def rest(self, frontier: tuple[Time, ...] = ()) -> list[TopicEpoch]:
        """The epochs that a frontier has passed, or all of them at the end."""
        epochs = []
        passed = [time for time in self._open if not any(less_equal(each, time) for each in frontier)]
        for time in sorted(passed):
            batches = sorted(self._open.pop(time), key=lambda batch: batch.partition)
            items = tuple(item for batch in batches for item in batch.items)  # type: ignore[attr-defined]  # a tuple, see _decoded
            epochs.append(TopicEpoch(time, items, self._crashed.pop(time, "")))
        return epochs

    async def next_event(self) -> TopicEvent | None:
        """The next of ``events()``, or None at the end."""
        while not self._inbox:
            if self._error is not None:
                raise type(self._error)(*self._error.args)
            if self._ended:
                return None
            if self._arrival.is_set():  # several tasks may read
                self._arrival = trio.Event()
            await self._arrival.wait()
        event, items, size = self._inbox.popleft()
        self._took(items, size)
        return event

    # -- the wire's side ------------------------------------------------------------------------------

    def _begin(self, as_of: tuple[Time, ...] | None, number: int | None = None) -> None:
        assert self._found is not None  # open has been
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
        self._taken = -sum(items for _, items, _ in self._inbox)  # what waits counts against the new window
        self._taken_bytes = -sum(size for _, _, size in self._inbox)
        self._asked = max(1, self._taken + ASKED)
        self._asked_bytes = max(1, self._taken_bytes + ASKED_BYTES)
        self._stream = self._space.open_stream(self, Map(spec), self._asked, self._asked_bytes, number)

    def reopen(self, number: int, *, resumed: bool, moved: bool) -> None:
        """The connection is new: goes on where this was, if that is retained; the daemon says if not."""
        del resumed, moved  # a stream of a topic does not outlive its connection, whatever the session does
        if self._ended:
            return
        assert self._found is not None  # it was open
        if not self._subscriber.ready:
            self._begin(self._as_of, number)
            return
        if not self._found["retain"]:
            missing = f"what topic {self.topic!r} sent since {self.frontier} is missing: it retains nothing"
            self.fail(Broken(f"the connection was lost, and {missing}"))
            return
        self._skip = self._delivered.copy()
        self._begin(self.frontier, number)

    def arrive(self, values: tuple[Value, ...], size: int) -> None:
        """A frame of messages has come, which cost ``size`` bytes of credit."""
        for at, value in enumerate(values, 1):
            self._skipped += 1
            self._skipped_bytes += size if at == len(values) else 0
            events = self._subscriber.take(forms.message_of(value))
            kept = [self._decoded(event) for event in events if self._is_new(event)]
            if kept:
                self._inbox += [(event, 0, 0) for event in kept[:-1]]
                self._inbox.append((kept[-1], self._skipped, self._skipped_bytes))
                self._skipped = self._skipped_bytes = 0
        if self._skipped and not self._inbox:  # nobody takes out what was filtered
            self._took(self._skipped, self._skipped_bytes)
            self._skipped = self._skipped_bytes = 0
        if self._subscriber.ended and not self._ended:
            self._abort()
        self._arrival.set()

    def _is_new(self, event: TopicEvent) -> bool:
        """Whether a batch was not delivered before the connection was lost; counts those that are."""
        match event:
            case Batch(partition, time, _):
                at = (partition, time)
                if self._skip[at] > 0:
                    self._skip[at] -= 1
                    return False
                self._delivered[at] += 1
            case Frontier(times):
                over = [at for at in self._delivered if not any(less_equal(t, at[1]) for t in times)]
                for at in over:
                    del self._delivered[at]
        return True

    @staticmethod
    def _decoded(event: TopicEvent) -> TopicEvent:
        if not isinstance(event, Batch):
            return event
        items = unpack(event.items)  # type: ignore[arg-type]  # bytes on the wire
        if items.__class__ is not tuple:
            raise ProtocolError("malformed", f"no items of a batch: {items!r:.80}")
        return Batch(event.partition, event.time, items)

    def _took(self, items: int, size: int) -> None:
        """So many messages were taken; asks for more when half of what was asked for is used up."""
        self._taken += items
        self._taken_bytes += size
        if self._asked - self._taken < ASKED // 2 or self._asked_bytes - self._taken_bytes < ASKED_BYTES // 2:
            self._asked = self._taken + ASKED
            self._asked_bytes = self._taken_bytes + ASKED_BYTES
            if self._stream is not None and not self._ended:
                self._space.say_on_stream(p.Ask(self._stream, self._asked, self._asked_bytes))

    def finish(self) -> None:
        """The topic has ended, or nothing more can come of its partitions."""
        self._ended = True
        self._arrival.set()

    def fail(self, error: DataspaceError) -> None:
        """The stream has failed, or the space was closed."""
        self._ended = True
        self._error = error
        self._arrival.set()

    def _abort(self) -> None:
        if self._stream is not None and not self._ended:
            self._space.drop_stream(self._stream)
        self._ended = True
        self._arrival.set()


class Events:
    """The events of a subscription, one after another; no asynchronous generator, as with ``Epochs``."""

    __slots__ = ("_subscription",)

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    def __aiter__(self) -> Events:
        return self

    async def __anext__(self) -> TopicEvent:
        event = await self._subscription.next_event()
        if event is None:
            raise StopAsyncIteration
        return event


async def _look_up(space: RemoteSpace, topic: str, timeout: float) -> Map:
    """What the daemon knows of a topic, once there is one; ``Refused`` after so many seconds."""
    deadline = trio.current_time() + timeout
    while True:
        left = max(0.0, deadline - trio.current_time())
        wait = round(min(left, LOOKUP) * 1000) if left < math.inf else round(LOOKUP * 1000)
        try:
            told = await space.request("lookup", Map({"topic": topic, "wait": wait}))
            assert isinstance(told, Map)  # by WIRE.md
            return told
        except Refused as refusal:
            if refusal.code != "no-topic" or trio.current_time() >= deadline:
                raise
        except Broken:
            if trio.current_time() >= deadline:
                raise


def _times(as_of: Iterable[Time] | Time | None) -> tuple[Time, ...] | None:
    """One time, or an antichain of them in a list."""
    if as_of is None:
        return None
    return tuple(as_of) if isinstance(as_of, list) else (as_of,)  # type: ignore[return-value]  # a time is no list
