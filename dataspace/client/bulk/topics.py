"""Completed epochs of a durable topic for bulk readers, such as a Spark source.

Such readers keep their place by themselves and may request a range again after a crash.  The functions are
plain and blocking, over a ``BulkClient``; no event loop is loaded.

Always: a number stands for the same time and the same items for as long as the topic has this identity;
epochs come in ascending order without gaps, or the iteration ends with ``Refused``.
"""

from __future__ import annotations

from collections.abc import Iterator

from dataspace.client.bulk.client import BulkClient
from dataspace.client.completed import CompletedEpoch, EpochRange, TopicFrontier
from dataspace.topics.times import Time
from index.values.values import Value


def topic_frontier(link: BulkClient, topic: str, *, after: int = -1, timeout: float = 0.0) -> TopicFrontier:
    """Returns what is completed, after up to ``timeout`` seconds for more than ``after``.

    Raises ``Refused``: ``no-topic``, or ``not-durable``.
    """
    wait = round(timeout * 1000)
    answer = link.request("topic-frontier", {"topic": topic, "after": after, "wait": wait}, extra=timeout)
    return TopicFrontier.read(answer)


def topic_epochs(link: BulkClient, topic: str, *, id: int, after: int, upto: int) -> Iterator[CompletedEpoch]:
    """Yields the epochs numbered (after, upto], fetched about a mebibyte at a time as they are taken.

    Raises ``Refused``: ``no-topic`` if ``id`` is not its identity (any more), ``epoch-gone`` for epochs that
    are not retained, ``epoch-ahead`` for epochs that are not completed.
    """
    reading = EpochRange(topic, id, after, upto)
    while reading.wants_more:
        yield from reading.take(link.request("topic-epochs", reading.asked()))


def topic_number(link: BulkClient, topic: str, *, id: int, time: Time) -> int:
    """Returns the number after which the retained epochs at or after a time begin, or will begin."""
    number = link.request("topic-number", {"topic": topic, "id": id, "time": time})
    assert isinstance(number, int)  # by WIRE.md
    return number


def topic_acknowledge(link: BulkClient, reader: str, topic: str, *, id: int, number: int) -> None:
    """Acknowledges all epochs up to a number for a named reader: retention by age keeps what one has not
    acknowledged.

    Beyond the bytes that the topic retains, the oldest epochs are deleted nevertheless.
    """
    arguments: dict[str, Value] = {"reader": reader, "topic": topic, "id": id, "number": number}
    link.request("topic-acknowledge", arguments)
