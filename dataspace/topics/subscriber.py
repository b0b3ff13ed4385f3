"""A subscriber: one or many partitions become one stream of whole epochs.

It waits for the snapshot of every partition, then merges them: the uppers into one filter of maximal times,
the lowers into one frontier.  A batch at or before an element of the filter belongs to an epoch that began
before this subscription, and is dropped without a look at its items.  An element of the filter retires when
no element of the merged frontier is at or before it, for then it can match nothing.

Always: of each epoch all batches are delivered or none; nothing is delivered at a time that is not at or
after an element of ``frontier``; the frontier does not go back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dataspace.errors import UsageError
from dataspace.topics.epochs import Epochs
from dataspace.topics.messages import (
    Batch,
    Crash,
    Crashed,
    EpochState,
    Event,
    Frontier,
    Message,
    Progress,
    Snapshot,
)
from dataspace.topics.times import Antichain, Maxima, MutableAntichain, Time, less_equal


@dataclass(frozen=True, slots=True)
class SubscriberStatistics:
    """Batches delivered and dropped in total; elements of the filter and of the frontier now."""

    delivered: int
    dropped: int
    filter: int
    frontier: int


class Subscriber:
    """One subscription.  ``atomic=False`` lets the rest of epochs that had begun through as well.

    ``up_to`` ends it before that time: nothing at or after it is delivered.

    >>> subscriber = Subscriber([0])
    >>> subscriber.events_of(Snapshot(0, lower=(3,), upper=(5,)))
    [Frontier(times=(3,))]
    >>> subscriber.events_of(Batch(0, 4, "begun?")), subscriber.events_of(Batch(0, 6, "latent"))
    ([], [Batch(partition=0, time=6, items='latent')])
    """

    __slots__ = (
        "_delivered",
        "_dropped",
        "_early",
        "_epochs",
        "_filter",
        "_lower",
        "_told",
        "_waiting",
        "atomic",
        "partitions",
        "up_to",
    )

    def __init__(self, partitions: Iterable[int], *, atomic: bool = True, up_to: Time | None = None) -> None:
        self.partitions = frozenset(partitions)
        if not self.partitions:
            raise UsageError("a subscription needs a partition at least")
        self.atomic = atomic
        self.up_to = up_to
        self._waiting = set(self.partitions)
        self._early: list[Message] = []
        self._lower = MutableAntichain()
        self._filter = Maxima()
        self._epochs = Epochs()
        self._told: tuple[Time, ...] | None = None
        self._delivered = 0
        self._dropped = 0

    @property
    def ready(self) -> bool:
        """True once every partition has sent its snapshot."""
        return not self._waiting

    @property
    def frontier(self) -> Antichain:
        """Returns the times at or after which something may still come; meaningless until ``ready``."""
        return self._lower.frontier

    @property
    def filter(self) -> Maxima:
        """Returns the times at or before which nothing is delivered."""
        return self._filter

    @property
    def ended(self) -> bool:
        """True if nothing more can come."""
        return self.ready and all(self._beyond(each) for each in self.frontier)

    def events_of(self, message: Message) -> list[Event]:
        """Returns the events that a message means to the program, in order; O(frontier + filter).

        ``UsageError`` for a message of another partition, or a second snapshot.
        """
        if message.partition not in self.partitions:
            raise UsageError(f"partition {message.partition}, subscribed are {sorted(self.partitions)}")
        if isinstance(message, Snapshot):
            return self._join(message)
        if message.partition in self._waiting:
            raise UsageError(f"partition {message.partition} has not sent its snapshot")
        if self._waiting:
            self._early.append(message)
            return []
        return self._act(message)

    def _join(self, snapshot: Snapshot) -> list[Event]:
        if snapshot.partition not in self._waiting:
            raise UsageError(f"partition {snapshot.partition} sent a second snapshot")
        self._waiting.discard(snapshot.partition)
        self._lower.change([(each, +1) for each in snapshot.lower])
        for each in snapshot.upper:
            self._filter.insert(each)
        if self._waiting:
            return []
        early, self._early = self._early, []
        events = self._moved()
        for message in early:
            events += self._act(message)
        return events

    def _act(self, message: Message) -> list[Event]:
        match message:
            case Batch():
                return self._deliver(message)
            case Progress():
                self._lower.change(message.changes)
                return self._moved()
            case Crashed():
                return self._crash(message)
            case Snapshot():
                raise UsageError("take has dealt with snapshots")

    def _deliver(self, batch: Batch) -> list[Event]:
        if (self.atomic and self._filter.covers(batch.time)) or self._beyond(batch.time):
            self._dropped += 1
            return []
        self._delivered += 1
        self._epochs.see(batch.time)
        return [batch]

    def _crash(self, message: Crashed) -> list[Event]:
        """Names the epochs that were delivered in part; other partitions may have sent items of them."""
        epochs = self._epochs.crash(Antichain(message.since))
        self._lower.change(message.changes)
        return [Crash(message.partition, message.since, epochs, message.reason), *self._moved()]

    def _beyond(self, time: Time) -> bool:
        return self.up_to is not None and less_equal(self.up_to, time)

    def _moved(self) -> list[Event]:
        """Retires what the filter no longer needs, and tells the frontier if it is another."""
        frontier = self.frontier
        self._filter.retain([f for f in self._filter if any(less_equal(x, f) for x in frontier)])
        self._epochs.retire(frontier)
        times = tuple(frontier)
        if times == self._told:
            return []
        self._told = times
        return [Frontier(times)]

    def state(self, time: Time) -> EpochState:
        """Returns the state of an epoch for this subscriber; the latest 1 024 crashed ones are known."""
        return self._epochs.state(time, self.frontier)

    def statistics(self) -> SubscriberStatistics:
        """Returns counts, in O(1)."""
        return SubscriberStatistics(self._delivered, self._dropped, len(self._filter), len(self.frontier))
