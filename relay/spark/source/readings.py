"""Readings: the kinds of data read from a daemon, the changes of a space or the completed epochs of a topic.

Both are numbered epochs that are there as far as a frontier and stay the same, so that offsets, limits,
batches and losses are one for both.  What differs is asked here: how far it is, and the epochs themselves.

Always: a reading has an identity, and with another identity its numbers mean something else; one range gives
the same data each time.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from dataspace.client.bulk.blocks import Block
from dataspace.client.bulk.client import BulkClient
from dataspace.client.bulk.frontiers import LogFrontier
from dataspace.client.bulk.topics import topic_acknowledge, topic_epochs, topic_frontier, topic_number
from dataspace.client.completed import CompletedEpoch
from dataspace.codec import low_first
from dataspace.errors import InternalError, Refused
from index.patterns.patterns import matcher

if TYPE_CHECKING:
    from index.values.values import Value
    from relay.spark.common.schema import Columns
    from relay.spark.source.offsets import Span

BLOCK_ROWS: Final = 8192
"""Items after which a block of a topic's epochs is closed."""

Match = Callable[["Value"], tuple["Value", ...] | None]


class Reading(Protocol):
    """What the source asks of either kind; ``space`` is the identity that was found before."""

    def frontier(self, link: BulkClient, after: int | None = None, timeout: float = 0.0) -> LogFrontier:
        """How far it is, waiting up to ``timeout`` seconds until that is beyond ``after``."""

    def blocks(self, link: BulkClient, wanted: Columns, span: Span, space: str) -> Iterator[Block]:
        """Yields the epochs of a span, with the wanted captures.

        Raises ``Refused("epoch-gone")`` or ``("epoch-ahead")`` for missing epochs.
        """

    def check_rights(self, link: BulkClient, wanted: Columns) -> None:
        """Raises ``Refused`` if the token of a link may not read this; reads nothing."""

    def acknowledge(self, link: BulkClient, reader: str, epoch: int, space: str) -> None:
        """Acknowledges everything up to an epoch for a named reader."""

    def before(self, link: BulkClient, time: tuple[int, ...], space: str) -> int:
        """The epoch after which those at or after a time of the application begin."""

    def upto(self, link: BulkClient, time: tuple[int, ...], space: str) -> int:
        """The epoch of a time of the application, or else the one before those at or after it begin."""


class SpaceReading:
    """The changes of a space."""

    def frontier(self, link: BulkClient, after: int | None = None, timeout: float = 0.0) -> LogFrontier:
        return link.frontier(after, timeout)

    def blocks(self, link: BulkClient, wanted: Columns, span: Span, space: str) -> Iterator[Block]:
        found = link.welcome.space
        if found != space:
            raise Refused("epoch-gone", f"the dataspace is another one now: it is {found}, it was {space}")
        read = partial(
            link.columns,
            wanted.pattern,
            upto=span.upto,
            captures=wanted.captures,
            places=wanted.placed,
            asserted=wanted.asserted,
            owners=wanted.owned,
        )
        if span.as_of is None:
            return read(after=span.after)
        return read(as_of=span.as_of, share=span.share)

    def check_rights(self, link: BulkClient, wanted: Columns) -> None:
        now = link.frontier().epoch
        for _ in link.columns(wanted.pattern, after=now, upto=now, owners=wanted.owned):
            pass  # the daemon looks at the rights before it sends what is none

    def acknowledge(self, link: BulkClient, reader: str, epoch: int, space: str) -> None:
        link.acknowledge(reader, epoch)

    def before(self, link: BulkClient, time: tuple[int, ...], space: str) -> int:
        raise InternalError("only topics have times, as the options have made sure")

    def upto(self, link: BulkClient, time: tuple[int, ...], space: str) -> int:
        raise InternalError("only topics have times, as the options have made sure")


@dataclass(frozen=True, slots=True)
class TopicReading:
    """The completed epochs of a durable topic: an item is a message."""

    topic: str

    def frontier(self, link: BulkClient, after: int | None = None, timeout: float = 0.0) -> LogFrontier:
        told = topic_frontier(link, self.topic, after=-1 if after is None else after, timeout=timeout)
        return LogFrontier(told.completed, told.oldest, f"topic {told.id}")

    def blocks(self, link: BulkClient, wanted: Columns, span: Span, space: str) -> Iterator[Block]:
        epochs = topic_epochs(link, self.topic, id=_id(space), after=span.after, upto=span.upto)
        try:
            yield from _blocks(epochs, matcher(wanted.pattern))
        except Refused as refusal:
            code = "epoch-gone" if refusal.code == "no-topic" else refusal.code
            raise Refused(code, refusal.text) from None

    def check_rights(self, link: BulkClient, wanted: Columns) -> None:
        self.frontier(link)  # the pattern is matched here: the daemon judges the topic only

    def acknowledge(self, link: BulkClient, reader: str, epoch: int, space: str) -> None:
        topic_acknowledge(link, reader, self.topic, id=_id(space), number=epoch)

    def before(self, link: BulkClient, time: tuple[int, ...], space: str) -> int:
        return topic_number(link, self.topic, id=_id(space), time=time[0] if len(time) == 1 else time)

    def upto(self, link: BulkClient, time: tuple[int, ...], space: str) -> int:
        before = self.before(link, time, space)
        if before >= self.frontier(link).epoch:
            return before
        following = next(topic_epochs(link, self.topic, id=_id(space), after=before, upto=before + 1))
        return following.number if coordinates(following) == time else before


def reading_of(topic: str | None) -> Reading:
    """The reading that the options ask for."""
    return SpaceReading() if topic is None else TopicReading(topic)


@dataclass(frozen=True, slots=True)
class TopicBlock(Block):
    """Epochs of a topic: the coordinates of their times, and why one may be incomplete, if it may."""

    coordinates: tuple[tuple[int, ...], ...]
    crashes: tuple[str | None, ...]


def _id(space: str) -> int:
    """The topic's identity, of the text that stands in offsets."""
    return int(space.removeprefix("topic ")) if space.startswith("topic ") else -1


def coordinates(epoch: CompletedEpoch) -> tuple[int, ...]:
    """Returns the time of an epoch as a tuple, also where it is one integer."""
    return epoch.time if isinstance(epoch.time, tuple) else (epoch.time,)


def _blocks(epochs: Iterator[CompletedEpoch], match: Match) -> Iterator[Block]:
    """Yields epochs in blocks; epochs without a match are left out."""
    waiting: list[CompletedEpoch] = []
    rows: list[list[tuple[Value, ...]]] = []
    places = array("i")
    for epoch in epochs:
        matched = [(at, row) for at, row in enumerate(map(match, epoch.items)) if row is not None]
        if matched:
            waiting.append(epoch)
            rows.append([row for _, row in matched])
            places.extend([at for at, _ in matched])
        if len(places) >= BLOCK_ROWS:
            yield _block(waiting, rows, places)
            waiting, rows, places = [], [], array("i")
    if places:
        yield _block(waiting, rows, places)


def _block(
    epochs: Sequence[CompletedEpoch], rows: Sequence[Sequence[tuple[Value, ...]]], places: array[int]
) -> Block:
    none = (0,) * len(epochs)
    return TopicBlock(
        snapshot=False,
        more=False,
        skipped=0,
        numbers=tuple([epoch.number for epoch in epochs]),
        times=none,
        added=none,
        messages=tuple(map(len, rows)),
        removed=none,
        columns=tuple(zip(*[row for of_epoch in rows for row in of_epoch], strict=True)),
        coordinates=tuple(map(coordinates, epochs)),
        crashes=tuple([epoch.crashed or None for epoch in epochs]),
        places=low_first(places),
    )
