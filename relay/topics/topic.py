"""A topic: its partitions, who publishes to which, and the groups that subscribe.

Each partition is a ``Publisher`` of its own; what they have in common is who may begin where.  A partition
that all producers have left is *ended*, and no longer holds anybody back; a producer may join it again, but
only at a time that no group has seen the end of.

A *lasting* topic has no end but ``end``: its partitions hold their places while nobody publishes to them,
and follow the others.

Always: a subscription of which every partition has ended is over, and is told so once; producers are known
to one partition only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

from dataspace.errors import UsageError
from dataspace.topics.antichains import Antichain
from dataspace.topics.frontiers import Change
from dataspace.topics.messages import Message
from dataspace.topics.times import Order, Time, join
from index.values.values import Value
from relay.topics.history import History
from relay.topics.publisher import Publisher, PublisherStatistics

MAX_PARTITIONS: Final = 1024


@dataclass(frozen=True, slots=True)
class _Group:
    """A subscription: its partitions, and how it is told that nothing more comes."""

    partitions: frozenset[int]
    over: Callable[[], None]


class Topic:
    """Partitions under one name.

    ``retain`` is how many bytes of batches are kept for those who ask for what was; see ``History``.
    A ``lasting`` topic does not end with its producers: who subscribes waits for the next one.

    >>> topic = Topic("readings", Order(0), partitions=2)
    >>> topic.join(1, partition=0), topic.join(2, partition=1)
    (0, 0)
    >>> heard: list[Message] = []
    >>> topic.subscribe(7, [0, 1], heard.append, lambda: None)
    >>> topic.send(1, 0, "a"); topic.leave(1); topic.ended, len(heard)
    (False, 4)
    """

    __slots__ = ("_groups", "_producers", "history", "lasting", "name", "order", "partitions")

    def __init__(
        self, name: str, order: Order, partitions: int = 1, *, retain: int = 0, lasting: bool = False
    ) -> None:
        if partitions.__class__ is not int or not 1 <= partitions <= MAX_PARTITIONS:
            raise UsageError(f"partitions must be from 1 to {MAX_PARTITIONS}, got {partitions!r:.60}")
        self.name = name
        self.order = order
        self.lasting = lasting
        self.partitions = [Publisher(order, each, lasting=lasting) for each in range(partitions)]
        self.history = History(retain)
        self._producers: dict[int, Publisher] = {}
        self._groups: dict[int, _Group] = {}

    @property
    def ended(self) -> bool:
        """Whether nothing can come: no producer is left, or none of them holds anything.

        A lasting topic waits for the next one.
        """
        if self.lasting:
            return False
        return not self._producers or all(each.ended for each in self.partitions)

    # -- producers ------------------------------------------------------------------------------------

    def join(self, producer: int, partition: int = 0, time: Time | None = None) -> Time:
        """Lets a producer into a partition, with a capability for ``time`` or the first that is free.

        Answers with that time; ``UsageError`` where it is over or the partition does not exist.
        """
        publisher = self.partition(partition)
        if producer in self._producers:
            raise UsageError(f"producer {producer} has joined already")
        start = self._first(publisher) if time is None else self.order.check(time)
        if publisher.ended:
            self._check_again(start)
        publisher.join(producer, start)
        self._producers[producer] = publisher
        return start

    def _first(self, publisher: Publisher) -> Time:
        """The frontier of a live partition; beyond all that anybody has seen, for one that had ended."""
        if not publisher.ended:
            return reduce(join, publisher.lower)
        after = self.order.after(
            time for each in self.partitions for time in (each.upper if each.ended else each.lower)
        )
        return self.order.check(after)  # there is none after the last

    def _check_again(self, time: Time) -> None:
        """An ended partition begins again only where no group can have seen an end.

        A group with a live partition has not seen the end of what is at or after that one's frontier; a
        group of ended ones has seen the end of all that was ever sent on any of them.
        """
        for each in self.partitions:
            if each.ended and each.upper.covers(time):
                raise UsageError(f"time {time} is over: times to {list(each.upper)} have been sent")
            if not each.ended and not each.lower.less_equal(time):
                raise UsageError(f"time {time} is over: partition {each.partition} is at {list(each.lower)}")

    def send(self, producer: int, time: Time, items: object, size: int = 0) -> None:
        """Broadcasts a batch of so many bytes."""
        publisher = self._of(producer)
        publisher.send(producer, self.order.check(time), items)
        self.history.add(publisher.partition, time, items, size)

    def finish(
        self, producer: int, time: Time, items: object, changes: Sequence[Change], size: int = 0
    ) -> None:
        """Broadcasts a batch and changes what its producer holds; where one is refused, nothing happens."""
        self.check_changes(producer, changes)
        self.send(producer, time, items, size)
        self.progress(producer, changes)

    def check_changes(self, producer: int, changes: Sequence[Change]) -> None:
        """Raises ``UsageError`` for changes that a producer may not make."""
        for time, _ in changes:
            self.order.check(time)
        self._of(producer).changed(producer, changes)

    def check_room(self, producer: int, time: Time | None, changes: Sequence[Change]) -> None:
        """Raises ``Refused("limit")`` for a step by which a producer would use more than it may."""
        for each, _ in changes:
            self.order.check(each)
        self._of(producer).check_room(producer, None if time is None else self.order.check(time), changes)

    def progress(self, producer: int, changes: Sequence[Change]) -> None:
        """Changes what a producer holds; one that has released all can only leave."""
        publisher = self._of(producer)
        for time, _ in changes:
            self.order.check(time)
        publisher.progress(producer, changes)
        self._moved(publisher)

    def leave(self, producer: int) -> None:
        """A producer leaves in order."""
        publisher = self._of(producer)
        del self._producers[producer]
        publisher.leave(producer)
        self._moved(publisher)

    def crash(self, producer: int, reason: str) -> None:
        """A producer has vanished."""
        publisher = self._of(producer)
        del self._producers[producer]
        publisher.crash(producer, reason)
        self._moved(publisher)

    def _moved(self, publisher: Publisher) -> None:
        if self.lasting:
            self._settle()
        else:
            self._end_groups(publisher)

    def _settle(self) -> None:
        """Partitions of a lasting topic that nobody publishes to follow the others, and hold back nobody.

        Where there are no others, what was sent is complete.  O(partitions).
        """
        dormant = [each for each in self.partitions if each.dormant]
        if not dormant:
            return
        if len(dormant) < len(self.partitions):
            others = Antichain(time for each in self.partitions if not each.dormant for time in each.lower)
        else:
            others = Antichain([self.order.after(time for each in dormant for time in each.upper)])
        for each in dormant:
            each.follow(others)

    def _end_groups(self, publisher: Publisher) -> None:
        """Ends the subscriptions to which nothing can come, now that one partition may have ended."""
        if not publisher.ended:
            return
        for number, group in list(self._groups.items()):
            if all(self.partitions[each].ended for each in group.partitions):
                self.unsubscribe(number)
                group.over()

    @property
    def producers(self) -> list[int]:
        """Who publishes here, in the order of joining."""
        return list(self._producers)

    def _of(self, producer: int) -> Publisher:
        publisher = self._producers.get(producer)
        if publisher is None:
            raise UsageError(f"producer {producer} is not one of topic {self.name!r}")
        return publisher

    def partition_of(self, producer: int) -> int:
        """The partition that a producer publishes to."""
        return self._of(producer).partition

    def holds(self, producer: int) -> list[Change]:
        """What a producer holds: times and counts."""
        return self._of(producer).holds(producer)

    def partition(self, number: int) -> Publisher:
        """The publisher of a partition; ``UsageError`` if there is none."""
        if number.__class__ is not int or not 0 <= number < len(self.partitions):
            raise UsageError(f"partition {number!r:.60}, there are 0 to {len(self.partitions) - 1}")
        return self.partitions[number]

    # -- subscribers ----------------------------------------------------------------------------------

    def subscribe(
        self,
        subscriber: int,
        partitions: Iterable[int],
        tell: Callable[[Message], None],
        over: Callable[[], None],
        *,
        as_of: Sequence[Time] | None = None,
    ) -> None:
        """Tells snapshots of these partitions at once and everything from then on; then ``over``.

        With ``as_of``, what is retained at or after one of those times comes first, and nothing of it is
        filtered; ``Refused`` if some of it is gone or still to come.
        """
        publishers = [self.partition(each) for each in sorted(set(partitions))]
        if not publishers:
            raise UsageError("a subscription needs a partition at least")
        if subscriber in self._groups:
            raise UsageError(f"subscriber {subscriber} is there already")
        if as_of is None:
            for each in publishers:
                each.subscribe(subscriber, tell)
        else:
            times = [self.order.check(each) for each in as_of]
            self.history.check(times, publishers)
            for each in publishers:
                for message in self.history.replay(each, times):
                    tell(message)
                each.subscribe(subscriber, tell, snapshot=False)
        self._groups[subscriber] = _Group(frozenset(each.partition for each in publishers), over)
        if all(each.ended for each in publishers):
            self.unsubscribe(subscriber)
            over()

    def attach(
        self,
        subscriber: int,
        partitions: Iterable[int],
        tell: Callable[[Message], None],
        over: Callable[[], None],
    ) -> None:
        """Tells everything from now on to who was told by others how it came to be what it is now."""
        chosen = frozenset(partitions)
        for each in sorted(chosen):
            self.partitions[each].subscribe(subscriber, tell, snapshot=False)
        self._groups[subscriber] = _Group(chosen, over)

    def unsubscribe(self, subscriber: int) -> None:
        """Tells this subscriber no more; nothing happens if it is not there."""
        group = self._groups.pop(subscriber, None)
        if group is not None:
            for each in group.partitions:
                self.partitions[each].unsubscribe(subscriber)

    def end(self) -> None:
        """Nothing more comes: every subscription is over."""
        for number, group in list(self._groups.items()):
            self.unsubscribe(number)
            group.over()

    def dump(self) -> Value:
        """All that a lasting topic is, but for who is told; ``load`` makes it be that again."""
        producers = [(number, each.partition) for number, each in self._producers.items()]
        return (tuple(each.dump() for each in self.partitions), tuple(producers))

    def load(self, dumped: Any) -> None:
        """Becomes what was dumped; only for one that is new."""
        partitions, producers = dumped
        for publisher, each in zip(self.partitions, partitions, strict=True):
            publisher.load(each)
        self._producers = {number: self.partitions[at] for number, at in producers}

    def statistics(self) -> list[PublisherStatistics]:
        """Counts for each partition."""
        return [each.statistics() for each in self.partitions]
