"""Publishing to topics over a connection.

A ``Publication`` is one producer in one partition: it holds capabilities, sends items at times at or after
them, and moves on.

Always: what is sent keeps its order; a publication that is left by an error, or with its connection, has
crashed, and subscribers are told so; one that is left in order has completed all that it began.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

import trio

from dataspace.client.questions import Question
from dataspace.errors import DataspaceError, UsageError
from dataspace.topics import forms
from dataspace.topics.times import Order, Time, less_equal
from dataspace.wire.codec import pack
from index.values import Map, Value, freeze

if TYPE_CHECKING:
    from dataspace.client.space import RemoteSpace

WINDOW: Final = 256 << 10
"""Bytes that a publication sends before it waits for answers."""

BUNDLE: Final = 16
"""Steps between two checkpoints: as with streams, an exception to trio's rule that each call has one."""


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
        self._steps = 0
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
        self._say(step)
        self._steps += 1
        if self._steps % BUNDLE == 0:  # what was said until somebody else runs leaves in one piece
            await trio.lowlevel.checkpoint()

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
