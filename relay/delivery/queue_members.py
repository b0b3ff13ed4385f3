"""A queue member: what waits for one observer, in the queue of its pattern or in one of its own.

The space offers the epochs of a pattern to one ``SharedQueue``, and every observer of the pattern is a member
of it.  A member that keeps up is no more than a position there.  It has a ``DeliveryQueue`` of its own
while something waits for it alone: the state that it begins with, epochs from the log, or what is left by its
policy where too much waited.

Always: a member's own queue goes before the shared one; a member takes the same values as if it had a
queue of its own all the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from dataspace.errors import Refused
from dataspace.kernel.changes import Changes
from dataspace.kernel.interests import Interest
from dataspace.kernel.space import Space
from dataspace.wire.observing import Policy
from index.values.values import Value
from relay.delivery.backlog import DeliveryQueue, SlowCounts
from relay.delivery.gate import DurableGate
from relay.delivery.memory import OVERHEAD, ROW_BYTES, MemoryBudget
from relay.delivery.pacing import Pacing
from relay.delivery.packed import PackedChanges
from relay.delivery.shared import QueueBounds, SharedQueue

_LEFT: Final = -1


class Delivery:
    """What all observers of a daemon share: memory, bounds, counts, turns, and a queue for each pattern."""

    def __init__(
        self,
        budget: MemoryBudget | None = None,
        counts: SlowCounts | None = None,
        bounds: QueueBounds | None = None,
        pacing: Pacing | None = None,
    ) -> None:
        self.budget: Final = budget or MemoryBudget()
        self.counts: Final = counts or SlowCounts()
        self.bounds: Final = bounds or QueueBounds()
        self.pacing: Final = Pacing() if pacing is None else pacing
        self.patterns = 0
        """Patterns that are followed."""

    def queue(self, space: Space, pattern: Value, gate: DurableGate | None = None) -> PatternQueue:
        """Returns the queue of a pattern, which the space feeds from now on, behind its gate if it has one.

        Raises ``UsageError`` for a pattern that is none, ``Refused`` beyond a limit.
        """
        queue = space.interests.share(pattern, partial(self._made, space, gate))
        assert isinstance(queue, PatternQueue)  # nothing else is made
        return queue

    def _made(self, space: Space, gate: DurableGate | None, interest: Interest) -> PatternQueue:
        self.patterns += 1
        self.budget.observers += 1
        return PatternQueue(self, space, gate, interest)

    def forget(self, queue: PatternQueue) -> None:
        """Drops the queue of a pattern that nothing observes any more."""
        queue.space.ignore(queue.interest, queue)
        self.patterns -= 1
        self.budget.observers -= 1


class PatternQueue(SharedQueue):
    """The queue of one pattern of a space; it ends when its last member leaves."""

    __slots__ = ("_delivery", "coming", "interest", "space")

    def __init__(
        self, delivery: Delivery, space: Space, gate: DurableGate | None, interest: Interest
    ) -> None:
        super().__init__(delivery.budget, delivery.bounds)
        self._delivery = delivery
        self.space = space
        self.gate = gate
        self.interest = interest
        self.coming = 0
        """Observers whose beginning waits behind the gate."""

    def leave(self, member: QueueMember) -> None:
        """Takes out a member."""
        self.remove(member)
        self.forget_if_idle()

    def forget_if_idle(self) -> None:
        """Ends the queue if it has no member, and none is coming."""
        if self.is_empty and not self.coming:
            self._delivery.forget(self)


class Beginning:
    """The beginning of an observation that waits behind a gate: its first values, and its queue."""

    __slots__ = ("gate", "queue", "size", "values")

    def __init__(self, gate: DurableGate, queue: PatternQueue) -> None:
        self.gate = gate
        self.queue = queue
        self.values: list[Changes | PackedChanges] = []
        self.size = 0
        queue.coming += 1

    def add(self, values: Sequence[Changes | PackedChanges]) -> None:
        """Takes in values that lead to the epoch where the observation begins."""
        self.values += values
        size = sum([_size_of(each) for each in values])
        self.size += size
        self.gate.count(size)

    def end(self) -> None:
        """Gives back what it has taken: it waits no longer."""
        self.queue.coming -= 1
        self.gate.count(-self.size)


def _size_of(value: Changes | PackedChanges) -> int:
    """Returns about how many bytes of memory a value takes that begins an observation."""
    return OVERHEAD + (len(value.packed) if isinstance(value, PackedChanges) else ROW_BYTES * value.size)


class QueueMember:
    """What waits for one observer.

    ``wake`` is called with ``woken`` when something new waits, at least once after each ``take_packed``.
    With the policy ``wait``, ``behind`` is called once when there is no room, and nothing is taken in until
    ``catch_up``.
    """

    __slots__ = (
        "_begun",
        "_behind",
        "_coming",
        "_delivery",
        "_newest",
        "_own",
        "_policy",
        "_wake",
        "_woken",
        "position",
        "queue",
    )

    def __init__(
        self,
        delivery: Delivery,
        wake: Callable[[Any], None],
        woken: object = None,
        *,
        policy: Policy = Policy.CONFLATE,
        behind: Callable[[], None] | None = None,
    ) -> None:
        self._delivery = delivery
        self._wake = wake
        self._woken = woken
        self._policy = policy
        self._behind = behind
        self._own: DeliveryQueue | None = None
        self._coming: Beginning | None = None
        self._begun = False
        self._newest = 0
        self.queue: PatternQueue | None = None
        """The queue of the pattern, while the space feeds it."""
        self.position = 0
        """How many values of that queue it has passed; ``_LEFT`` once the observer has left."""

    def __len__(self) -> int:
        """Returns the number of stream values that wait; net changes count as one."""
        if self._own is not None:
            return len(self._own)
        return 0 if self.queue is None else self.queue.end - self.position

    @property
    def failure(self) -> Refused | None:
        """Returns the error that ends the stream; None while it goes on."""
        return None if self._own is None else self._own.failure

    @property
    def newest(self) -> int:
        """Returns the newest epoch that was taken in."""
        if self._own is not None:
            return self._own.newest
        return self._newest if self.queue is None else max(self._newest, self.queue.newest)

    @property
    def used(self) -> int:
        """Returns how many bytes of memory the waiting changes take, at most, shared or not; O(1)."""
        if self._own is not None:
            return self._own.used
        return 0 if self.queue is None else self.queue.used(self)

    @property
    def oldest(self) -> tuple[int, int] | None:
        """Returns the epoch and the time, in microseconds, of the oldest value that waits, 0 for one without
        a time; None if nothing does."""
        if self._own is not None:
            return self._own.oldest
        return None if self.queue is None else self.queue.oldest(self)

    @property
    def full(self) -> bool:
        """True if so much waits, from a source that can pause, that it should."""
        return self._own is not None and self._own.full

    # -- the space's side -----------------------------------------------------------------------------

    def follow(self, space: Space, pattern: Value, gate: DurableGate | None = None) -> None:
        """Takes in the changes of a pattern from the next epoch on; does nothing once the observer has left.

        Where the ``gate`` of the space keeps the present epoch, the beginning waits behind it, together with
        the values of ``extend_all`` that lead to the present epoch.
        Raises ``UsageError`` for a pattern that is none, ``Refused`` beyond a limit.
        """
        if self.position == _LEFT:
            return
        queue = self._delivery.queue(space, pattern, gate)
        if gate is not None and gate.keeps(space.epoch):
            self._coming = Beginning(gate, queue)
            gate.after(space.epoch, self._begin, self._coming)
        else:
            self._enter(queue)

    def _begin(self, beginning: Beginning) -> None:
        """Called by the gate when what was to begin may be shown, which may be over by now."""
        if self._coming is beginning:
            self._coming = None
            beginning.end()
            self._enter(beginning.queue)
            if beginning.values:
                self._part().extend_all(beginning.values)
                self._wake(self._woken)

    def _enter(self, queue: PatternQueue) -> None:
        self.queue = queue
        if self._own is not None and not self._own.is_drained:
            queue.join_apart(self)
        else:
            self._join(queue)

    def _cancel(self) -> None:
        """Ends a beginning that waits behind the gate."""
        if self._coming is not None:
            coming, self._coming = self._coming, None
            coming.end()
            coming.values.clear()
            coming.queue.forget_if_idle()

    def unfollow(self) -> None:
        """Takes in nothing more; what waits can still be taken."""
        self._cancel()
        if self.queue is not None:
            self._part()
            self.queue.leave(self)
            self.queue = None

    def wake(self) -> None:
        """Called by the shared queue when something waits again."""
        self._wake(self._woken)

    def leave(self, waiting: Sequence[PackedChanges], changes: Changes) -> None:
        """Called by the shared queue where too much waits: the policy says what happens in one of its own."""
        self._take_over(waiting).offer(changes)

    def offer(self, changes: Changes) -> None:
        """Queues one epoch that nothing else has queued for this observer."""
        self._part().offer(changes)

    def extend(self, changes: Changes) -> None:
        """Takes in one epoch as it is, whatever waits already: for snapshots and for the log."""
        self.extend_all((changes,))

    def extend_all(self, epochs: Sequence[Changes | PackedChanges]) -> None:
        """The same for several epochs in order."""
        if self._coming is not None:
            self._coming.add(epochs)
        elif self.position != _LEFT:
            self._part().extend_all(epochs)

    def catch_up(self) -> None:
        """Takes epochs in again: every epoch that was not taken in has come by another way."""
        if self._own is not None and self.position != _LEFT:
            self._own.catch_up()

    def close(self) -> None:
        """Drops what waits when the observer has left; may be called again."""
        self._cancel()
        if self.queue is not None:
            self.queue.leave(self)
            self.queue = None
        self.position = _LEFT
        if self._own is not None:
            self._own.close()

    def _part(self) -> DeliveryQueue:
        """Returns the queue of its own, in which is now what waited in the shared one."""
        if self._own is not None:
            return self._own
        return self._take_over(() if self.queue is None else self.queue.part(self))

    @property
    def _bounds(self) -> QueueBounds:
        """Returns what may wait in a queue of its own."""
        return self._delivery.bounds

    def _take_over(self, waiting: Sequence[PackedChanges]) -> DeliveryQueue:
        bounds = self._bounds
        own = DeliveryQueue(
            self.wake,
            limit=bounds.changes,
            message_limit=bounds.messages,
            byte_limit=bounds.bytes,
            policy=self._policy,
            counts=self._delivery.counts,
            behind=self._behind,
            budget=self._delivery.budget,
        )
        own.take_over(waiting, self.newest, begun=self._begun)
        self._own = own
        return own

    def _join(self, queue: PatternQueue) -> None:
        if self._own is not None:
            self._newest = self._own.newest
            self._own.close()
            self._own = None
        self._begun = False
        queue.join(self)

    # -- the stream's side ----------------------------------------------------------------------------

    def take_packed(self, count: int, size: int) -> tuple[int, bytes]:
        """Removes up to ``count`` values of about ``size`` bytes; returns how many, and their wire form.

        The last value may exceed ``size``, so that a large value is sent in the end.
        """
        queue, own = self.queue, self._own
        if own is not None:
            taken = own.take_packed(count, size)
            if queue is not None and own.is_drained:
                self._join(queue)
            return taken
        if queue is None:
            return 0, b""
        number, packed, begun = queue.take(self, count, size)
        if number:
            self._begun = begun
        return number, packed
