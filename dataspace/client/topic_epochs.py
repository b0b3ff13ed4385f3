"""Completed epochs of a durable topic, by number: what was, the same each time it is asked for.

For readers in bulk, such as a Spark source, that keep their place by themselves and may ask for a range
again after a crash.  Plain and blocking, over a ``Link``; no event loop is loaded.

Always: a number stands for the same time and the same items for as long as the topic has this identity;
epochs come in ascending order without gaps, or the iteration ends with ``Refused``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dataspace.client.blocking_link import Link
from dataspace.errors import ProtocolError
from dataspace.topics.times import Time
from dataspace.wire.codec import unpack
from index.values import Map, Value


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
    names = TopicFrontier.__slots__
    return TopicFrontier(*[told[name] for name in names])  # type: ignore[arg-type]  # integers, by WIRE.md


def topic_epochs(link: Link, topic: str, *, id: int, after: int, upto: int) -> Iterator[CompletedEpoch]:
    """The epochs numbered (after, upto], fetched about a mebibyte at a time as they are taken.

    ``Refused``: ``no-topic`` if ``id`` is not its identity (any more), ``epoch-gone`` for what is not
    retained, ``epoch-ahead`` for what is not completed.
    """
    items: list[Value] = []
    at: Value = None
    while after < upto:
        asked: dict[str, Value] = {"topic": topic, "id": id, "after": after, "upto": upto, "at": at}
        for number, time, crashed, batches, at in _pieces(link.request("topic-epochs", asked)):
            for batch in batches:
                items.extend(unpack(batch))  # type: ignore[arg-type]  # an array, as the daemon has checked
            if at is None:
                yield CompletedEpoch(number, time, tuple(items), crashed)
                after, items = number, []


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
