"""A topic: its partitions, their producers, and the groups that subscribe.

Each partition is a ``Publisher`` of its own; the topic decides where a producer may begin.  A partition
that all producers have left is *ended*, and no longer holds anybody back; a producer may join it again, but
only at a time that no group has seen the end of.

A *lasting* topic has no end but ``end``: its partitions hold their places while they have no producers,
and follow the others.

Always: a subscription is over, and is notified once, when all its partitions have ended; a producer is known
to one partition only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

from dataspace.errors import Refused, UsageError
from dataspace.topics.epochs import Epochs
from dataspace.topics.messages import Batch, Crashed, EpochState, Message, Progress, Snapshot
from dataspace.topics.times import (
    Antichain,
    Change,
    ChangeBatch,
    Maxima,
    MutableAntichain,
    Order,
    Time,
    join,
    less_equal,
)
from index.values.values import Value

MAX_PARTITIONS: Final = 1024

MAX_TOPIC_TIMES: Final = 512
"""Times of a topic with several dimensions for which capabilities are held, beside one for each partition: a
step may compare all of them with each other, in a tenth of a second."""


@dataclass(frozen=True, slots=True)
class _Group:
    """A subscription: its partitions, and what to call when nothing more comes."""

    partitions: frozenset[int]
    over: Callable[[], None]


class Topic:
    """Partitions under one name.

    A ``lasting`` topic does not end with its producers: subscribers wait for the next one.

    >>> topic = Topic("readings", Order(0), partitions=2)
    >>> topic.join(1, partition=0), topic.join(2, partition=1)
    (0, 0)
    >>> heard: list[Message] = []
    >>> topic.subscribe(7, [0, 1], heard.append, lambda: None)
    >>> topic.send(1, 0, "a"); topic.leave(1); topic.ended, len(heard)
    (False, 4)
    """

    __slots__ = ("_groups", "_producers", "lasting", "name", "order", "partitions")

    def __init__(self, name: str, order: Order, partitions: int = 1, *, lasting: bool = False) -> None:
        if partitions.__class__ is not int or not 1 <= partitions <= MAX_PARTITIONS:
            raise UsageError(f"partitions must be from 1 to {MAX_PARTITIONS}, got {partitions!r:.60}")
        self.name = name
        self.order = order
        self.lasting = lasting
        self.partitions = [Publisher(order, each, lasting=lasting) for each in range(partitions)]
        self._producers: dict[int, Publisher] = {}
        self._groups: dict[int, _Group] = {}

    @property
    def ended(self) -> bool:
        """True if nothing can come: no producer is left, or none holds a capability.

        A lasting topic waits for the next one.
        """
        if self.lasting:
            return False
        return not self._producers or all(each.ended for each in self.partitions)

    # -- producers ------------------------------------------------------------------------------------

    def join(self, producer: int, partition: int = 0, time: Time | None = None) -> Time:
        """Adds a producer to a partition, with a capability for ``time`` or the first that is free.

        Returns that time; ``UsageError`` if it is over or the partition does not exist.
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
        """Returns the frontier of a live partition, or for an ended partition a time after all others."""
        if not publisher.ended:
            return reduce(join, publisher.lower)
        after = self.order.after(
            time for each in self.partitions for time in (each.upper if each.ended else each.lower)
        )
        return self.order.check(after)  # there is none after the last

    def _check_again(self, time: Time) -> None:
        """Raises ``UsageError`` if an ended partition would start again where a group has seen the end.

        A group with a live partition has not seen the end of times at or after that partition's frontier;
        a group of ended partitions has seen the end of every time that was sent on its partitions.
        """
        for part in self.partitions:
            if part.ended and part.upper.covers(time):
                raise UsageError(f"time {time} is over: times to {list(part.upper)} have been sent")
            if not part.ended and not part.lower.less_equal(time):
                raise UsageError(f"time {time} is over: partition {part.partition} is at {list(part.lower)}")

    def send(self, producer: int, time: Time, items: object) -> None:
        """Sends a batch to all subscribers."""
        self._of(producer).send(producer, self.order.check(time), items)

    def finish(self, producer: int, time: Time, items: object, changes: Sequence[Change]) -> None:
        """Sends a batch and changes the capabilities of its producer; if one is refused, nothing happens."""
        self.check_changes(producer, changes)
        self.send(producer, time, items)
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
        publisher = self._of(producer)
        publisher.check_room(producer, None if time is None else self.order.check(time), changes)
        self._check_times(publisher, changes)

    def check_join(self, partition: int, time: Time | None) -> None:
        """The same for a producer that joins, as ``join``."""
        if time is not None:
            self._check_times(self.partition(partition), [(self.order.check(time), +1)])

    def _check_times(self, publisher: Publisher, changes: Sequence[Change]) -> None:
        """Raises ``Refused("limit")`` where capabilities would be for too many times."""
        if not (self.order.dimensions and changes):
            return  # of integers one is the least, and the others are not looked at
        grown = publisher.grown_by(changes)
        if grown <= 0:
            return
        held = sum([each.times - 1 for each in self.partitions if each.times])
        held += grown - (not publisher.times)
        if held > MAX_TOPIC_TIMES:
            said = f"capabilities for {held} times in topic {self.name!r:.80}, limit {MAX_TOPIC_TIMES}"
            raise Refused("limit", f"{said} with several dimensions: release some")

    def progress(self, producer: int, changes: Sequence[Change]) -> None:
        """Changes the capabilities of a producer; a producer without any can only leave."""
        publisher = self._of(producer)
        for time, _ in changes:
            self.order.check(time)
        publisher.progress(producer, changes)
        self._moved(publisher)

    def leave(self, producer: int) -> None:
        """Removes a producer in order."""
        publisher = self._of(producer)
        del self._producers[producer]
        publisher.leave(producer)
        self._moved(publisher)

    def crash(self, producer: int, reason: str) -> None:
        """Removes a producer that has disappeared."""
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
        """Moves the dormant partitions of a lasting topic on with the others, so that they hold back none.

        If there are no others, everything that was sent is complete.  O(partitions).
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
        """Returns the producers, in the order in which they joined."""
        return list(self._producers)

    def _of(self, producer: int) -> Publisher:
        publisher = self._producers.get(producer)
        if publisher is None:
            raise UsageError(f"producer {producer} is not one of topic {self.name!r}")
        return publisher

    def partition_of(self, producer: int) -> int:
        """Returns the partition of a producer."""
        return self._of(producer).partition

    def holds(self, producer: int) -> list[Change]:
        """Returns the capabilities of a producer: times and counts."""
        return self._of(producer).holds(producer)

    def partition(self, number: int) -> Publisher:
        """Returns the publisher of a partition; ``UsageError`` if there is none."""
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
        snapshot: bool = True,
    ) -> None:
        """Sends all later messages of these partitions, then calls ``over``.

        Sends snapshots first, unless the subscriber got the past from elsewhere.
        """
        publishers = [self.partition(each) for each in sorted(set(partitions))]
        if not publishers:
            raise UsageError("a subscription needs a partition at least")
        if subscriber in self._groups:
            raise UsageError(f"subscriber {subscriber} is there already")
        for each in publishers:
            each.subscribe(subscriber, tell, snapshot=snapshot)
        self._groups[subscriber] = _Group(frozenset(each.partition for each in publishers), over)
        if all(each.ended for each in publishers):
            self.unsubscribe(subscriber)
            over()

    def unsubscribe(self, subscriber: int) -> None:
        """Removes a subscriber, if it is there."""
        group = self._groups.pop(subscriber, None)
        if group is not None:
            for each in group.partitions:
                self.partitions[each].unsubscribe(subscriber)

    def end(self) -> None:
        """Ends every subscription."""
        for number, group in list(self._groups.items()):
            self.unsubscribe(number)
            group.over()

    def dump(self) -> Value:
        """Returns the state of a lasting topic, without its subscribers, for ``load``."""
        producers = [(number, each.partition) for number, each in self._producers.items()]
        return (tuple(each.dump() for each in self.partitions), tuple(producers))

    def load(self, dumped: Any) -> None:
        """Restores what ``dump`` returned; only for a new one."""
        partitions, producers = dumped
        for publisher, each in zip(self.partitions, partitions, strict=True):
            publisher.load(each)
        self._producers = {number: self.partitions[at] for number, at in producers}

    def statistics(self) -> list[PublisherStatistics]:
        """Returns counts for each partition."""
        return [each.statistics() for each in self.partitions]


MAX_OPEN: Final = 16_384
"""Epochs of one partition that may be open."""

MAX_HELD: Final = 4096
"""Times for which one producer may hold capabilities."""

MAX_UPPER: Final = 1024
"""Latest times of one partition, none before another: each step looks at all of them."""

MAX_COUNT: Final = (1 << 31) - 1
"""Capabilities of one producer for one time."""


@dataclass(frozen=True, slots=True)
class PublisherStatistics:
    """Counts of one partition; batches and crashes in total."""

    producers: int
    subscribers: int
    active: int
    upper: int
    batches: int
    crashes: int


class Publisher:
    """One partition of a topic.

    >>> heard: list[Message] = []
    >>> publisher = Publisher(Order(0))
    >>> publisher.join(1, 0)
    >>> publisher.subscribe(9, heard.append)
    >>> publisher.send(1, 3, "three"); publisher.progress(1, [(0, -1), (4, +1)])
    >>> publisher.state(3), heard[-1]
    (<EpochState.COMPLETED: 'completed'>, Progress(partition=0, changes=((0, -1), (4, 1))))

    Each producer holds *capabilities*, a multiset of times at or after which it may still send; together they
    make the *lower* frontier. The times of the batches make the *upper*: the maximal times ever seen. The
    source calls it the maximal elements of ``active``, but an epoch that is over here may be latent on
    another partition of the same topic, so a completed time must go on filtering for late subscribers.

    Always: nothing is sent at a time for which its producer holds no capability, and no capability comes to
    be but after one of the same producer, so the lower frontier never goes back (a *lasting* partition takes
    over what its last producer releases, so that its frontier is never empty); a subscriber hears a snapshot,
    then everything that follows it, without gap or overlap; nothing happens where an error is raised.
    """

    __slots__ = (
        "_batches",
        "_crashes",
        "_epochs",
        "_held",
        "_lasting",
        "_lower",
        "_opened",
        "_parked",
        "_subscribers",
        "_upper",
        "order",
        "partition",
    )

    def __init__(self, order: Order, partition: int = 0, *, lasting: bool = False) -> None:
        self.order = order
        self.partition = partition
        self._lasting = lasting
        # until its first producer comes, the partition itself holds the bottom
        self._parked: tuple[Time, ...] = (order.bottom,)
        self._lower = MutableAntichain(self._parked)
        self._upper = Maxima()
        self._opened = False
        self._held: dict[int, ChangeBatch] = {}
        self._epochs = Epochs()
        self._subscribers: dict[int, Callable[[Message], None]] = {}
        self._batches = 0
        self._crashes = 0

    @property
    def lower(self) -> Antichain:
        """Returns the minimal times at or after which something may come; empty when nothing can."""
        return self._lower.frontier

    @property
    def times(self) -> int:
        """Returns the number of times for which there are capabilities."""
        return len(self._lower)

    def grown_by(self, changes: Sequence[Change]) -> int:
        """Returns by how many times ``times`` would grow."""
        return self._lower.grown_by(changes)

    @property
    def upper(self) -> Maxima:
        """Returns the maximal times ever sent."""
        return self._upper

    @property
    def ended(self) -> bool:
        """True if no capability is left, so that nothing can come unless a producer joins again."""
        return self._opened and not len(self.lower)

    @property
    def opened(self) -> bool:
        """True if there ever was a producer."""
        return self._opened

    @property
    def dormant(self) -> bool:
        """True while a durable partition holds capabilities by itself, since it has no producer."""
        return self._opened and bool(self._parked)

    # -- producers ------------------------------------------------------------------------------------

    def join(self, producer: int, time: Time) -> None:
        """Adds a producer with a capability for ``time``, which the frontier must not have passed.

        Its topic checks whether a partition that had ended may start again at that time.
        """
        if producer in self._held:
            raise UsageError(f"producer {producer} has joined already")
        if not self.ended and not self.lower.less_equal(time):
            raise UsageError(f"time {time} is over: the frontier is {list(self.lower)}")
        changes = [(time, +1), *[(each, -1) for each in self._parked]]
        self._opened, self._parked = True, ()
        self._held[producer] = ChangeBatch([(time, +1)])
        self._move(changes)

    def send(self, producer: int, time: Time, items: object) -> None:
        """Sends a batch to all subscribers; its producer must hold a capability at or before its time."""
        held = self._capabilities(producer)
        if not any(less_equal(each, time) for each, _ in held):
            raise UsageError(f"no capability for time {time}, held are {[each for each, _ in held]}")
        self._epochs.see(time)
        self._upper.insert(time)
        self._batches += 1
        self._broadcast(Batch(self.partition, time, items))

    def check_room(self, producer: int, time: Time | None, changes: Sequence[Change]) -> None:
        """Raises ``Refused("limit")`` where a step would open too many epochs, or hold too much.

        Apart from the steps themselves, so that a step that was done once can always be done again.
        """
        if time is not None and len(self._epochs) >= MAX_OPEN and time not in self._epochs:
            excess = f"{len(self._epochs)} epochs are open in partition {self.partition}, limit {MAX_OPEN}"
            raise Refused("limit", f"{excess} open epochs: complete some before you begin others")
        if time is not None and len(self._upper) >= MAX_UPPER and self._upper.grows(time):
            excess = f"{len(self._upper)} latest times of partition {self.partition}, none before another"
            raise Refused("limit", f"{excess}, limit {MAX_UPPER}: send at a time after one of them")
        if not changes:
            return
        after = self.changed(producer, changes)
        if len(after) > MAX_HELD:
            raise Refused("limit", f"capabilities for {len(after)} times, limit {MAX_HELD}: release some")
        if any(count > MAX_COUNT for _, count in after):
            raise Refused("limit", f"a capability that is held more than {MAX_COUNT} times: release some")

    def progress(self, producer: int, changes: Sequence[Change]) -> None:
        """Changes the capabilities of a producer, all at once; sends progress if the frontier moves."""
        held = self._capabilities(producer)
        self._held[producer] = self.changed(producer, changes)
        self._move([*changes, *self._taken_over(held)])

    def changed(self, producer: int, changes: Sequence[Change]) -> ChangeBatch:
        """Returns the capabilities of a producer after changes; ``UsageError`` if it may not make them."""
        held = self._capabilities(producer)
        after = held.copy()
        for time, by in changes:
            if by > 0 and not any(less_equal(each, time) for each, _ in held):
                raise UsageError(f"no capability for time {time}, held are {[each for each, _ in held]}")
            after.update(time, by)
        short = [time for time, count in after if count < 0]
        if short:
            raise UsageError(f"capabilities for {short} were released but not held")
        return after

    def leave(self, producer: int) -> None:
        """Removes a producer in order, and releases its capabilities."""
        held = self._capabilities(producer)
        del self._held[producer]
        self._move([*[(time, -count) for time, count in held], *self._taken_over(held)])

    def crash(self, producer: int, reason: str) -> None:
        """Removes a producer that has disappeared; subscribers learn what may be incomplete."""
        held = self._capabilities(producer)
        del self._held[producer]
        if not len(held):
            return  # it had nothing open, which is as good as leaving
        since = Antichain(time for time, _ in held)
        epochs = self._epochs.crash(since)
        self._crashes += 1
        gone = [(time, -count) for time, count in held]
        changes = self._lower.change([*gone, *self._taken_over(held)])
        self._epochs.retire(self.lower)
        self._broadcast(Crashed(self.partition, tuple(since), epochs, reason, tuple(changes)))

    def _taken_over(self, held: ChangeBatch) -> list[Change]:
        """Returns the capabilities that a durable partition takes over, if no producer holds any."""
        if not self._lasting or self._parked or not len(held) or any(map(len, self._held.values())):
            return []
        self._parked = tuple(Antichain(time for time, _ in held))
        return [(each, +1) for each in self._parked]

    def follow(self, frontier: Antichain) -> None:
        """Moves a dormant partition on, so that it does not hold back others at this frontier.

        O(its own times × frontier).
        """
        before = self._parked
        self._parked = tuple(Antichain(join(mine, each) for mine in before for each in frontier))
        if set(self._parked) != set(before):
            self._move([*[(each, -1) for each in before], *[(each, +1) for each in self._parked]])

    def holds(self, producer: int) -> list[Change]:
        """Returns the capabilities of a producer: times and counts."""
        return list(self._capabilities(producer))

    def _capabilities(self, producer: int) -> ChangeBatch:
        held = self._held.get(producer)
        if held is None:
            raise UsageError(f"producer {producer} is not one of this partition's")
        return held

    def _move(self, changes: Sequence[Change]) -> None:
        visible = self._lower.change(changes)
        if visible:
            self._epochs.retire(self.lower)
            self._broadcast(Progress(self.partition, tuple(visible)))

    # -- subscribers ----------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Returns both frontiers."""
        return Snapshot(self.partition, tuple(self.lower), tuple(self._upper))

    def subscribe(self, subscriber: int, tell: Callable[[Message], None], *, snapshot: bool = True) -> None:
        """Sends a snapshot at once, unless the caller has, and every later message."""
        if subscriber in self._subscribers:
            raise UsageError(f"subscriber {subscriber} is there already")
        if snapshot:
            tell(self.snapshot())
        self._subscribers[subscriber] = tell

    def unsubscribe(self, subscriber: int) -> None:
        """Removes a subscriber, if it is there."""
        self._subscribers.pop(subscriber, None)

    def _broadcast(self, message: Message) -> None:
        for tell in list(self._subscribers.values()):  # a notified subscriber may leave
            tell(message)

    # -- looking --------------------------------------------------------------------------------------

    def state(self, time: Time) -> EpochState:
        """Returns the state of an epoch; the latest 1 024 crashed epochs are known as such."""
        return self._epochs.state(time, self.lower)

    def dump(self) -> Value:
        """Returns the state of a durable partition, without its subscribers, for ``load``."""
        held = [(producer, tuple(each)) for producer, each in self._held.items()]
        counts = (self._batches, self._crashes)
        return (self._opened, self._parked, tuple(self._upper), tuple(held), self._epochs.dump(), counts)

    def load(self, dumped: Any) -> None:
        """Restores what ``dump`` returned; only for a new one."""
        self._opened, self._parked, upper, held, epochs, (self._batches, self._crashes) = dumped
        self._upper = Maxima(upper)
        self._held = {producer: ChangeBatch(each) for producer, each in held}
        self._lower = MutableAntichain(self._parked)
        self._lower.change([each for batch in self._held.values() for each in batch])
        self._epochs.load(epochs)

    def statistics(self) -> PublisherStatistics:
        """Returns counts, in O(1)."""
        return PublisherStatistics(
            len(self._held),
            len(self._subscribers),
            len(self._epochs),
            len(self._upper),
            self._batches,
            self._crashes,
        )
