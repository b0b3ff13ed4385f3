"""Topics in memory, as a route reads them: whole epochs, once they are complete.

Always: the batches of open epochs are bounded, and stay bytes, since values of one byte each take thirty
times as much; so is the credit ahead of the reader.
"""

from __future__ import annotations

from typing import Final

from dataspace.topics import encoding as forms
from dataspace.topics.gathering import Gathered, Gathering
from dataspace.topics.subscriber import Subscriber
from dataspace.wire import packets as p
from index.values.values import Map, Value
from server.web.inner.batches import EventBatch
from server.web.inner.sessions import InnerSession

OPEN_BYTES: Final = 8 << 20
"""Bytes that the epochs which are open may have; more is refused with ``limit``."""


class LiveTopic:
    """A subscription to a topic, from now on; ``known`` is what the request ``lookup`` answered."""

    def __init__(self, session: InnerSession, topic: str, known: Map) -> None:
        count = known["partitions"]
        assert isinstance(count, int)  # by WIRE.md
        partitions = tuple(range(count))
        self._subscriber = Subscriber(partitions, atomic=True, up_to=None)
        self._gathering = Gathering(OPEN_BYTES)
        spec = {"kind": "topic", "topic": topic, "id": known["id"], "partitions": partitions}
        self._reading = session.open(spec)
        self.is_over = False
        """True once nothing more can come."""

    async def next(self) -> list[Gathered] | None:
        """Returns the epochs that the next message completes, or None after a while of silence.

        Raises ``Refused`` for an error of the stream, or where too much is open.
        """
        match await self._reading.next():
            case EventBatch() as batch:
                return [epoch for value in batch.values for epoch in self._take(value)]
            case p.Done():
                self.is_over = True
                return self._gathering.rest()
            case p.Ping():
                return None
        return []

    def _take(self, value: Value) -> list[Gathered]:
        events = self._subscriber.take(forms.message_of(value))
        return [epoch for event in events for epoch in self._gathering.collect(event)]
