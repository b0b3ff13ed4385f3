"""Gathering: whole epochs of a topic, from its events as they come.

Always: an epoch is given once the frontier has passed its time, with all its items, once; memory for open
epochs is bounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from dataspace.codec import unpack
from dataspace.errors import ProtocolError, Refused
from dataspace.topics.epochs import OpenTimes
from dataspace.topics.messages import Batch, Crash, Frontier
from dataspace.topics.times import Time
from index.values.values import Value

OVERHEAD: Final = 128
"""Bytes that a batch, or an epoch that is open, costs beside its items."""

TopicEvent: TypeAlias = Batch | Frontier | Crash


@dataclass(frozen=True, slots=True)
class TopicEpoch:
    """All items of one time, in the order of partitions and of sending.

    ``crashed`` is the reason why the first producer ended that could have sent more of it.
    """

    time: Time
    items: tuple[Value, ...]
    crashed: str = ""


@dataclass(frozen=True, slots=True)
class Gathered:
    """All batches of one time, in the order of partitions and of sending, with their items as they came."""

    time: Time
    batches: tuple[Batch, ...]
    crashed: str = ""

    def whole(self) -> TopicEpoch:
        """Returns the epoch, of batches that have items."""
        items = tuple(item for batch in self.batches for item in batch.items)  # type: ignore[attr-defined]  # a tuple, see with_items
        return TopicEpoch(self.time, items, self.crashed)


class Gathering:
    """Collects the batches of epochs that are open, at most so many bytes as they were sent."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._bytes = 0
        self._open: dict[Time, list[Batch]] = {}
        self._times = OpenTimes()
        self._crashed: dict[Time, str] = {}

    def collect(self, event: TopicEvent) -> list[Gathered]:
        """Returns the epochs that an event completes, by their times.

        Raises ``Refused("limit")`` if the open epochs hold more than the limit.
        """
        match event:
            case Batch():
                self._times.add(event.time)
                self._open.setdefault(event.time, []).append(event)
                self._bytes += event.size + OVERHEAD
                if self._bytes > self._most:
                    what = f"{len(self._open)} epochs with {self._bytes} bytes"
                    raise Refused("limit", too_many_open(what, self._most))
            case Crash():
                for time in event.epochs:  # the first reason stays, as in the journal
                    self._crashed.setdefault(time, event.reason)
            case Frontier(times):
                return self.rest(times)
        return []

    def rest(self, frontier: tuple[Time, ...] = ()) -> list[Gathered]:
        """Returns the epochs that a frontier has passed, or all of them at the end."""
        epochs = []
        for time in self._times.passed(frontier):
            batches = sorted(self._open.pop(time), key=lambda batch: batch.partition)
            self._bytes -= sum(batch.size + OVERHEAD for batch in batches)
            epochs.append(Gathered(time, tuple(batches), self._crashed.pop(time, "")))
        return epochs

    def clear(self) -> None:
        """Drops what is open."""
        self._open.clear()
        self._times = OpenTimes()
        self._crashed.clear()
        self._bytes = 0


def too_many_open(what: str, most: int) -> str:
    """Returns the refusal of open epochs beyond a limit."""
    return f"{what} are open, the limit is open_bytes={most}"


def with_items(event: TopicEvent) -> TopicEvent:
    """Returns an event with the items that its bytes hold; raises ``ProtocolError`` for bytes without."""
    if not isinstance(event, Batch):
        return event
    items = unpack(event.items)  # type: ignore[arg-type]  # bytes on the wire
    if items.__class__ is not tuple:
        raise ProtocolError("malformed", f"no items of a batch: {items!r:.80}")
    return Batch(event.partition, event.time, items, len(event.items))  # type: ignore[arg-type]  # as above
