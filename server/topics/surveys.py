"""What an operator may see of one topic: its frontiers, and where producers and subscribers are.

Always: an answer has a limited number of partitions, producers and subscribers, of each the first; the counts
are of all.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

from dataspace.topics.times import Time
from index.values.values import Map, Value
from server.topics.catalogue import TopicEntry

MOST: Final = 64
"""Partitions, producers and subscribers that are listed."""

TIMES: Final = 16
"""Times of one frontier, or of one producer, that are listed."""


def survey(entry: TopicEntry) -> dict[str, Value]:
    """Returns frontiers, producers and subscribers of a topic; O(partitions)."""
    topic, ledger = entry.topic, entry.ledger
    statistics = topic.statistics()
    known: dict[str, Value] = {
        "batches": sum([each.batches for each in statistics]),
        "crashes": sum([each.crashes for each in statistics]),
        "producers": len(topic.producers),
        "subscriptions": len(entry.feeds),
        "retained_bytes": ledger.size,
        "full": entry.full,
        "frontiers": tuple([_partition(entry, at) for at in range(min(MOST, len(topic.partitions)))]),
        "producing": tuple([_producer(entry, each) for each in topic.producers[:MOST]]),
        "subscribing": tuple([_subscriber(entry, each) for each in islice(entry.feeds, MOST)]),
    }
    if entry.durable:
        known |= {"completed": ledger.completed, "oldest": ledger.oldest}
    return known


def _partition(entry: TopicEntry, at: int) -> Map:
    """Returns the frontiers of a partition: times that may still come, and the last that were sent."""
    publisher = entry.topic.partitions[at]
    counts = publisher.statistics()
    return Map(
        {
            "partition": at,
            "lower": _times(publisher.lower),
            "upper": _times(publisher.upper),
            "producers": counts.producers,
            "subscribers": counts.subscribers,
            "open_epochs": counts.active,
            "batches": counts.batches,
            "crashes": counts.crashes,
        }
    )


def _producer(entry: TopicEntry, number: int) -> Map:
    topic = entry.topic
    held = _times(time for time, _ in topic.holds(number))
    member = entry.ledger.members[number]
    kept: dict[str, Value] = {"name": member.name, "steps": member.steps} if entry.durable else {}
    return Map({"producer": number, "partition": topic.partition_of(number), "holds": held} | kept)


def _subscriber(entry: TopicEntry, number: int) -> Map:
    feed = entry.feeds[number].statistics()
    return Map(
        {
            "subscription": number,
            "waiting": feed.waiting,
            "waiting_bytes": feed.bytes,
            "taken": feed.taken,
        }
    )


def _times(times: Iterable[Time]) -> tuple[Value, ...]:
    return tuple(islice(times, TIMES))
