"""A publisher: the producers of one partition, its two frontiers, and its subscribers.

Each producer holds *capabilities*, a multiset of times at or after which it may still send; together they
make the *lower* frontier.  The times of the batches make the *upper*: the maximal times ever seen.  The
source calls it the maximal elements of ``active``, but an epoch that is over here may be latent on another
partition of the same topic, so a completed time must go on filtering for late subscribers.

Always: nothing is sent at a time for which its producer holds no capability, and no capability comes to be
but after one of the same producer, so the lower frontier never goes back (a *lasting* partition takes over
what its last producer releases, so that its frontier is never empty); a subscriber hears a snapshot,
then everything that follows it, without gap or overlap; nothing happens where an error is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dataspace.errors import Refused, UsageError
from dataspace.topics.epochs import Epochs
from dataspace.topics.frontiers import Change, ChangeBatch, MutableAntichain
from dataspace.topics.messages import Batch, Crashed, EpochState, Message, Progress, Snapshot
from dataspace.topics.times import Antichain, Maxima, Order, Time, join, less_equal
from index.values.values import Value

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
            said = f"{len(self._epochs)} epochs are open in partition {self.partition}, limit {MAX_OPEN}"
            raise Refused("limit", f"{said} open epochs: complete some before you begin others")
        if time is not None and len(self._upper) >= MAX_UPPER and self._upper.grows(time):
            said = f"{len(self._upper)} latest times of partition {self.partition}, none before another"
            raise Refused("limit", f"{said}, limit {MAX_UPPER}: send at a time after one of them")
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
