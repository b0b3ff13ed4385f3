"""Completed epochs of a durable topic, by number: what was, the same each time it is asked for.

For readers in bulk, such as a Spark source, that keep their place by themselves and may ask for a range
again after a crash.  The functions are plain and blocking, over a ``Link``; no event loop is loaded.

Always: a number stands for the same time and the same items for as long as the topic has this identity;
epochs come in ascending order without gaps, or the iteration ends with ``Refused``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from dataspace.client.bulk.client import Link
from dataspace.codec import unpack
from dataspace.errors import ProtocolError
from dataspace.topics.times import Time
from index.values.values import Map, Value


@dataclass(frozen=True, slots=True)
class TopicFrontier:
    """What is completed and retained of a topic.

    ``id`` is its identity: with another one, numbers mean something else.  ``completed`` is the number of the
    newest completed epoch, 0 before the first; ``oldest`` the oldest that is retained.
    """

    id: int
    completed: int
    oldest: int
    partitions: int
    dimensions: int


@dataclass(frozen=True, slots=True)
class CompletedEpoch:
    """All items of one time, in the order of partitions and of sending.

    ``crashed`` says that a producer vanished that could have sent more of it, and why.
    """

    number: int
    time: Time
    items: tuple[Value, ...]
    crashed: str = ""


def topic_frontier(link: Link, topic: str, *, after: int = -1, timeout: float = 0.0) -> TopicFrontier:
    """What is completed, waiting up to ``timeout`` seconds until that is more than ``after``.

    ``Refused``: ``no-topic``, or ``not-durable``.
    """
    wait = round(timeout * 1000)
    told = link.request("topic-frontier", {"topic": topic, "after": after, "wait": wait}, extra=timeout)
    if not isinstance(told, Map):
        raise ProtocolError("malformed", f"no frontier of a topic: {told!r:.80}")
    return _frontier(told)


def topic_epochs(link: Link, topic: str, *, id: int, after: int, upto: int) -> Iterator[CompletedEpoch]:
    """The epochs numbered (after, upto], fetched about a mebibyte at a time as they are taken.

    ``Refused``: ``no-topic`` if ``id`` is not its identity (any more), ``epoch-gone`` for what is not
    retained, ``epoch-ahead`` for what is not completed.
    """
    reading = Reading(topic, id, after, upto)
    while reading.wants_more:
        yield from reading.take(link.request("topic-epochs", reading.asked()))


class Reading:
    """How far a range of epochs has been read: what to ask for next, and what an answer completes.

    It has no connection, so that the blocking reader and the asynchronous one are the same.
    """

    __slots__ = ("_after", "_at", "_id", "_items", "_topic", "_upto")

    def __init__(self, topic: str, id: int, after: int, upto: int) -> None:
        self._topic, self._id, self._after, self._upto = topic, id, after, upto
        self._at: Value = None
        self._items: list[Value] = []

    @property
    def wants_more(self) -> bool:
        """Whether there is more of the range."""
        return self._after < self._upto

    def asked(self) -> dict[str, Value]:
        """The arguments of the next request."""
        asked: dict[str, Value] = {"topic": self._topic, "id": self._id}
        return asked | {"after": self._after, "upto": self._upto, "at": self._at}

    def take(self, told: Value) -> Iterator[CompletedEpoch]:
        """The epochs that an answer completes."""
        for number, time, crashed, batches, self._at in _pieces(told):
            for batch in batches:
                self._items.extend(unpack(batch))  # type: ignore[arg-type]  # an array, as the daemon has checked
            if self._at is None:
                yield CompletedEpoch(number, time, tuple(self._items), crashed)
                self._after, self._items = number, []


class Completed:
    """The completed epochs of a topic, one after another; made by ``RemoteSpace.completed``."""

    def __init__(self, space: Asking, topic: str, after: int | None, upto: int | None) -> None:
        self._space = space
        self._topic = topic
        self._after = after
        self._upto = upto
        self._reading: Reading | None = None
        self._epochs: Iterator[CompletedEpoch] = iter(())

    def __aiter__(self) -> Completed:
        return self

    async def __anext__(self) -> CompletedEpoch:
        reading = self._reading or await self._begin()
        for epoch in self._epochs:
            return epoch
        while reading.wants_more:
            self._epochs = reading.take(await self._space.request("topic-epochs", Map(reading.asked())))
            for epoch in self._epochs:
                return epoch
        raise StopAsyncIteration

    async def _begin(self) -> Reading:
        told = await self._space.request("topic-frontier", Map({"topic": self._topic}))
        assert isinstance(told, Map)  # by WIRE.md
        known = _frontier(told)
        after = known.oldest - 1 if self._after is None else self._after
        upto = max(after, known.completed) if self._upto is None else self._upto
        self._reading = reading = Reading(self._topic, known.id, after, upto)
        if after > known.completed:  # which the daemon will refuse
            await self._space.request("topic-epochs", Map(reading.asked()))
        return reading


class Asking(Protocol):
    """Whoever can ask the requests of WIRE.md."""

    async def request(self, verb: str, arguments: Map) -> Value:
        """The answer; raises ``Refused`` where it is denied."""


def _frontier(told: Map) -> TopicFrontier:
    return TopicFrontier(*[told[name] for name in TopicFrontier.__slots__])  # type: ignore[arg-type]  # integers, by WIRE.md


def _pieces(told: Value) -> list[tuple[int, Time, str, tuple[bytes, ...], Value]]:
    if not isinstance(told, tuple) or not told:
        raise ProtocolError("malformed", f"no epochs of a topic: {told!r:.80}")
    return list(told)  # type: ignore[arg-type]  # by WIRE.md


def topic_number(link: Link, topic: str, *, id: int, time: Time) -> int:
    """The number after which the retained epochs at or after a time begin, or will."""
    number = link.request("topic-number", {"topic": topic, "id": id, "time": time})
    assert isinstance(number, int)  # by WIRE.md
    return number


def topic_acknowledge(link: Link, reader: str, topic: str, *, id: int, number: int) -> None:
    """A named reader is done with all to a number: age lets nothing go that one of them is not done with.

    Beyond the bytes that the topic retains, what is oldest goes nevertheless.
    """
    told: dict[str, Value] = {"reader": reader, "topic": topic, "id": id, "number": number}
    link.request("topic-acknowledge", told)
