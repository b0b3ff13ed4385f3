"""Completed epochs of a durable topic, by number: the same each time they are asked for.

``EpochRange`` says what to request next and what an answer completes; it has no connection, so that the
asynchronous reader here and the blocking one in ``client/bulk`` are the same.

Always: a number stands for the same time and the same items for as long as the topic has this identity;
epochs come in ascending order without gaps, or the iteration ends with ``Refused``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, Self

from dataspace.codec import unpack
from dataspace.errors import ProtocolError
from dataspace.loops.blocks import AsyncOnly
from dataspace.topics.times import Time
from index.values.values import Map, Value


@dataclass(frozen=True, slots=True)
class TopicFrontier:
    """The completed and the retained epochs of a topic.

    ``id`` is its identity: with another one, numbers mean something else.  ``completed`` is the number of the
    newest completed epoch, 0 before the first; ``oldest`` the oldest that is retained.
    """

    id: int
    completed: int
    oldest: int
    partitions: int
    dimensions: int

    @classmethod
    def read(cls, answer: Value) -> Self:
        """Returns the frontier in the answer to ``topic-frontier``."""
        if not isinstance(answer, Map):
            raise ProtocolError("malformed", f"no frontier of a topic: {answer!r:.80}")
        return cls(*[answer[name] for name in cls.__slots__])  # type: ignore[arg-type]  # integers, by WIRE.md


@dataclass(frozen=True, slots=True)
class CompletedEpoch:
    """All items of one time, in the order of partitions and of sending.

    ``crashed`` is the reason why the first producer ended that could have sent more of it, else empty.
    """

    number: int
    time: Time
    items: tuple[Value, ...]
    crashed: str = ""


class EpochRange:
    """How far a range of epochs has been read: what to request next, and what an answer completes."""

    __slots__ = ("_after", "_at", "_id", "_items", "_topic", "_upto")

    def __init__(self, topic: str, id: int, after: int, upto: int) -> None:
        self._topic, self._id, self._after, self._upto = topic, id, after, upto
        self._at: Value = None
        self._items: list[Value] = []

    @property
    def id(self) -> int:
        """The identity of the topic whose numbers these are."""
        return self._id

    @property
    def wants_more(self) -> bool:
        """True if the range is not yet read to its end."""
        return self._after < self._upto

    def asked(self) -> dict[str, Value]:
        """Returns the arguments of the next request."""
        asked: dict[str, Value] = {"topic": self._topic, "id": self._id}
        return asked | {"after": self._after, "upto": self._upto, "at": self._at}

    def take(self, answer: Value) -> Iterator[CompletedEpoch]:
        """Yields the epochs that an answer completes."""
        for number, time, crashed, batches, self._at in _pieces(answer):
            for batch in batches:
                self._items.extend(unpack(batch))  # type: ignore[arg-type]  # an array, as the daemon has checked
            if self._at is None:
                yield CompletedEpoch(number, time, tuple(self._items), crashed)
                self._after, self._items = number, []


class CompletedEpochs(AsyncOnly):
    """Yields the completed epochs of a topic, one after another; made by ``RemoteSpace.completed``."""

    _usage = "async for epoch in space.completed(…)"

    def __init__(
        self, space: Asking, topic: str, after: int | None, upto: int | None, id: int | None = None
    ) -> None:
        self._space = space
        self._id = id
        self._topic = topic
        self._after = after
        self._upto = upto
        self._reading: EpochRange | None = None
        self._epochs: Iterator[CompletedEpoch] = iter(())

    @property
    def id(self) -> int | None:
        """The identity of the topic, once something was read."""
        return self._id if self._reading is None else self._reading.id

    def __aiter__(self) -> CompletedEpochs:
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

    async def _begin(self) -> EpochRange:
        known = TopicFrontier.read(await self._space.request("topic-frontier", Map({"topic": self._topic})))
        after = known.oldest - 1 if self._after is None else self._after
        upto = max(after, known.completed) if self._upto is None else self._upto
        self._reading = reading = EpochRange(
            self._topic, known.id if self._id is None else self._id, after, upto
        )
        if after > known.completed or reading.id != known.id:  # the daemon will refuse it
            await self._space.request("topic-epochs", Map(reading.asked()))
        return reading


class Asking(Protocol):
    """Sends the requests of WIRE.md: the asynchronous or the blocking client."""

    async def request(self, verb: str, arguments: Map) -> Value:
        """Returns the answer; raises ``Refused`` where it is denied."""


def _pieces(answer: Value) -> list[tuple[int, Time, str, tuple[bytes, ...], Value]]:
    if not isinstance(answer, tuple) or not answer:
        raise ProtocolError("malformed", f"no epochs of a topic: {answer!r:.80}")
    return list(answer)  # type: ignore[arg-type]  # by WIRE.md
