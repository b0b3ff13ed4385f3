"""A delivery queue: the changes that wait for one observer, whatever its speed.

The space offers changes as they happen; the connection takes them when there is credit.
In between they wait here.  It is apart from sockets so that what happens to a slow observer can be stated
and tested without one:

- up to ``limit`` changes, and ``byte_limit`` bytes of them, wait as they are, epoch by epoch; a state that
  is sent at the beginning counts apart, and one epoch alone is within the limits whatever its size;
- beyond that the policy says what happens (``Policy``): *conflate* keeps the net difference of the facts,
  one value that cannot outgrow what the observer has received plus what holds now; *fail* ends it; *drop*
  deletes the oldest epochs, and leaves a mark; *wait* takes nothing more, until the rest was read from
  the log;
- where too much waits for all observers together, the bound is an equal share of the budget (``memory``);
- messages never conflate: up to ``message_limit`` of them, and about ``byte_limit`` bytes, wait beside a
  difference, and more end the stream with the error ``slow-observer``, which says how many were waiting;
- one epoch alone is taken in whatever its size, unless no memory is left for it: then the policy says what
  happens to it as well.

Waiting bytes are counted where they lie, the rows of a difference included; a state counts its rows alone,
since the facts have the values in them.

Always: the taken changes and the waiting changes are together the offered ones, up to a mark or a difference
that says otherwise; an epoch that has begun to leave in parts leaves whole before anything later does; memory
is bounded by the state plus the limits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from dataspace.errors import Refused
from dataspace.kernel.actions import MORE, SNAPSHOT
from dataspace.kernel.changes import Changes, Lost
from dataspace.wire.observing import Policy
from relay.delivery.memory import OVERHEAD, MemoryBudget
from relay.delivery.net_changes import NetChange
from relay.delivery.packed import PART_BYTES, PackedChanges, joined, pieces

LIMIT: Final = 16_384
"""Changes that wait unconflated for one observer."""

MESSAGE_LIMIT: Final = 4_096
"""Messages that wait for one observer."""

BYTE_LIMIT: Final = 16 << 20
"""Bytes that wait for one observer, as they would be sent."""

STATE_PART: Final = 512
"""Rows of a state that are packed in one step, in less than a millisecond."""

Value: TypeAlias = PackedChanges | Changes
"""A waiting value: changes as their wire form; a state, or a mark of dropped changes, with its rows."""


@dataclass(frozen=True, slots=True)
class DeliveryStatistics:
    """Counts over the life of one observation, in changes except where named otherwise."""

    waiting: int
    taken_values: int
    conflated_epochs: int
    dropped: int
    failed: bool


class DeliveryQueue:
    """The changes that wait for one observer.

    ``wake`` is called whenever something new waits; ``counts`` are shared with others.  With the policy
    ``wait``, ``behind`` is called once when there is no room, and nothing is taken in until ``catch_up``.
    """

    __slots__ = (
        "_behind",
        "_begun",
        "_byte_limit",
        "_bytes",
        "_conflated",
        "_counts",
        "_difference",
        "_dropped",
        "_fell",
        "_left",
        "_limit",
        "_message_bytes",
        "_message_limit",
        "_messages",
        "_policy",
        "_budget",
        "_size",
        "_state",
        "_taken",
        "_used",
        "_waiting",
        "_wake",
        "failure",
        "newest",
    )

    def __init__(
        self,
        wake: Callable[[], None],
        *,
        limit: int = LIMIT,
        message_limit: int = MESSAGE_LIMIT,
        byte_limit: int = BYTE_LIMIT,
        policy: Policy = Policy.CONFLATE,
        counts: SlowCounts | None = None,
        behind: Callable[[], None] | None = None,
        budget: MemoryBudget | None = None,
    ) -> None:
        self._budget = budget or MemoryBudget()
        self._budget.observers += 1
        self._used = 0
        self.newest = 0
        """The newest epoch that was taken in."""
        self._policy = policy
        self._counts = counts or SlowCounts()
        self._behind = behind
        self._fell = self._left = False
        self._dropped = 0
        self._state = 0
        self.failure: Refused | None = None
        self._wake = wake
        self._limit = limit
        self._message_limit = message_limit
        self._byte_limit = byte_limit
        self._waiting: deque[Value] = deque()
        self._difference: NetChange | None = None
        self._begun = False
        self._size = 0
        self._bytes = 0
        self._messages = 0
        self._message_bytes = 0
        self._taken = 0
        self._conflated = 0

    def __len__(self) -> int:
        """Returns the number of stream values that wait; net changes count as one."""
        return len(self._waiting) + (self._difference is not None)

    @property
    def size(self) -> int:
        """Returns the number of changes that wait unconflated."""
        return self._size

    @property
    def used(self) -> int:
        """Returns how many bytes of memory the waiting changes take, at most."""
        return self._used

    @property
    def oldest(self) -> tuple[int, int] | None:
        """Returns the epoch and the time of the oldest value that waits; None if nothing does.

        Of a net difference it is the first epoch, and the time of the last one.  A state, and a mark of
        dropped changes, have no time, 0.
        """
        if self._waiting:
            first = self._waiting[0]
            return first.first, 0 if first.flags & SNAPSHOT else first.time
        return None if self._difference is None else (self._difference.first, self._difference.time)

    @property
    def full(self) -> bool:
        """True if so much waits that a source which can pause should."""
        half = self._size > self._limit // 2 or self._bytes > self._byte_limit // 2
        return half or self._budget.pauses(self._used)

    @property
    def is_drained(self) -> bool:
        """True if nothing waits, and the next epoch would be taken in as it is."""
        return not (self._waiting or self._difference is not None or self._fell) and self.failure is None

    @property
    def _is_half_full(self) -> bool:
        return self.full or self._messages > self._message_limit // 2

    def offer(self, changes: Changes) -> None:
        """Queues one epoch; O(1) until a limit is reached, then O(changes) where it conflates."""
        if self.failure is not None or self._fell:
            return
        if self._difference is not None:
            self._fold(changes)
        elif self._is_beyond(changes):
            self._find_room(changes)
        else:
            self.extend(changes)
        self._wake()

    def _is_beyond(self, changes: Changes) -> bool:
        """True if one more epoch exceeds what may wait as it is."""
        size = len(changes.packed)
        if self._size == self._state:  # nothing waits but perhaps a state
            return self._budget.denies(self._used, size)
        return (
            self._size - self._state + changes.size > self._limit
            or self._bytes + size > self._byte_limit
            or self._budget.denies(self._used, size)
            or (bool(changes.messages) and self._messages + len(changes.messages) > self._message_limit)
        )

    def _find_room(self, changes: Changes) -> None:
        match self._policy:
            case Policy.CONFLATE:
                self._conflate(changes)
            case Policy.FAIL:
                size = self._size - self._state + len(changes)
                count = self._messages + len(changes.messages)
                excess = f"{size} changes wait, {count} of them messages, in {self._bytes} bytes"
                limits = f"limits {self._limit}, {self._message_limit}, {self._byte_limit}"
                self._fail(f"{excess}; {limits}{self._said_of_all(self._used, changes)}")
            case Policy.DROP:
                self._drop_for(changes)
            case Policy.WAIT:
                self._fell = True
                self._counts.fallen_behind += 1
                if self._behind is not None:
                    self._behind()

    def catch_up(self) -> None:
        """Takes epochs in again: every epoch that was not taken in has come by another way."""
        self._fell = False

    def extend(self, changes: Changes) -> None:
        """Takes in one epoch as it is, whatever waits already: for snapshots and for the log."""
        self.extend_all((changes,))

    def extend_all(self, epochs: Sequence[Value]) -> None:
        """The same for several epochs, or parts of them, in order."""
        values: list[Value] = []
        for epoch in epochs:
            if isinstance(epoch, PackedChanges):
                values.append(epoch)
            else:  # a state is not packed before it leaves
                values += epoch.parts(STATE_PART) if epoch.flags & SNAPSHOT else pieces(epoch)
        self._append(values)
        self.newest = epochs[-1].number

    def take_over(self, waiting: Sequence[PackedChanges], newest: int, *, begun: bool) -> None:
        """Begins with what waited elsewhere: all epochs up to ``newest``.

        Where one has ``begun`` to leave, the first of these values are the rest of it.
        """
        self._append(waiting)
        self.newest = newest
        self._begun = begun

    def _append(self, values: Sequence[Value]) -> None:
        self._count(values, +1)  # first, since what cannot be packed must not wait
        self._waiting.extend(values)

    def _count(self, values: Iterable[Value], sign: int) -> None:
        """Counts values that begin or cease to wait."""
        count = size = state = messages = message_bytes = used = 0
        for value in values:
            count += value.size
            if isinstance(value, PackedChanges):
                packed = len(value.packed)
                size += packed
                used += OVERHEAD + packed
                if value.messages:
                    messages += value.messages
                    message_bytes += packed
            else:
                state += value.size
                used += OVERHEAD * (1 + value.size)
        self._size += sign * count
        self._bytes += sign * size
        if state:
            self._state += sign * state
        if messages:
            self._messages += sign * messages
            self._message_bytes += sign * message_bytes
        self._use(sign * used)

    def _use(self, size: int) -> None:
        self._used += size
        self._budget.used += size

    def take(self, count: int, size: int) -> list[Changes]:
        """Removes and returns up to ``count`` values of about ``size`` bytes; at least one if there is one.

        The last may go beyond ``size``, so that a large value cannot get stuck.  For readers in this process:
        the rows are decoded.
        """
        taken = self._take(count, size)
        return [each.changes() if isinstance(each, PackedChanges) else each for each in taken]

    def take_packed(self, count: int, size: int) -> tuple[int, bytes]:
        """Takes as ``take`` does; returns how many values, and their wire form."""
        return joined(self._take(count, size))

    def _take(self, count: int, size: int) -> list[Value]:
        taken: list[Value] = []
        counted = 0
        waiting = self._waiting
        while len(taken) < count and size > 0:
            if not waiting:
                if self._difference is None:
                    break
                self._count(taken, -1)  # now, since the counts begin anew
                counted = len(taken)
                values, self._difference = self._difference.values(), None
                self._wait_anew(values)
            first = waiting[0]
            cost = len(first.packed)
            if cost > PART_BYTES and first.size > 1 and isinstance(first, Changes):
                self._split(first)
                continue
            taken.append(waiting.popleft())
            size -= cost
        if taken:
            self._count(taken[counted:] if counted else taken, -1)
            self._begun = bool(taken[-1].flags & MORE)
            self._taken += len(taken)
        return taken

    def close(self) -> None:
        """Drops what waits when the observer has left; may be called again."""
        if not self._left:
            self._left = self._fell = True  # nothing more is taken in
            self._difference = None
            self._wait_anew(())
            self._budget.observers -= 1

    def statistics(self) -> DeliveryStatistics:
        """Counts, in O(1)."""
        return DeliveryStatistics(
            self._size, self._taken, self._conflated, self._dropped, self.failure is not None
        )

    def _conflate(self, changes: Changes) -> None:
        """Folds all waiting changes, but for a snapshot and an epoch that has begun to leave."""
        begun = self._take_begun()
        later: list[Value] = [*self._waiting, changes]
        self._wait_anew(begun)
        self._difference = NetChange(later[0].first)
        self._use(self._difference.used)
        for each in later:
            if self.failure is None:
                self._fold(each)

    def _take_begun(self) -> list[Value]:
        """Takes out what must leave as it is: a snapshot, or the rest of an epoch that has begun to leave."""
        begun: list[Value] = []
        if self._begun or (self._waiting and self._waiting[0].flags & SNAPSHOT):
            while self._waiting and (not begun or begun[-1].flags & MORE):
                begun.append(self._waiting.popleft())
        return begun

    def _fold(self, changes: Value) -> None:
        """Adds an epoch to the difference that waits, unless its messages are too many."""
        difference = self._difference
        assert difference is not None  # the caller has seen to it
        count = changes.messages if isinstance(changes, PackedChanges) else len(changes.messages)
        if count and self._is_failed_by(count, changes):
            return
        before = difference.used
        difference.fold(changes)
        self._use(difference.used - before)
        self.newest = changes.number
        self._conflated += 1
        self._counts.conflated += 1
        if count:
            self._messages += count
            self._message_bytes += len(changes.packed)

    def _drop_for(self, changes: Changes) -> None:
        """Deletes the oldest epochs until these fit, and half of the limit is free; O(1) over many calls.

        Where not even these fit, they are lost as well.
        """
        begun = self._take_begun()
        self._count(begun, -1)
        lost = self._lost_first(changes)
        while self._waiting and (self._is_beyond(changes) or self._is_half_full):
            lost.add(*self._pop_epoch())
        if self._is_beyond(changes):
            lost.add(changes.number, changes.size)
            self._note_dropped(changes.size)
            self.newest = changes.number
        else:
            self.extend(changes)
        if lost.count:
            self._waiting.appendleft(lost)
            self._count([lost], +1)
        self._waiting.extendleft(reversed(begun))
        self._count(begun, +1)

    def _lost_first(self, changes: Changes) -> Lost:
        """Returns the mark at the head of what waits, or a new one."""
        first = self._waiting[0] if self._waiting else changes
        if not isinstance(first, Lost):
            return Lost(first.first)
        self._waiting.popleft()
        self._count([first], -1)
        return first

    def _pop_epoch(self) -> tuple[int, int]:
        """Takes out all values of the oldest epoch; returns its number and how many changes were in it."""
        gone: list[Value] = []
        while not gone or gone[-1].flags & MORE:
            gone.append(self._waiting.popleft())
        self._count(gone, -1)
        size = sum([each.size for each in gone])
        self._note_dropped(size)
        return gone[-1].number, size

    def _note_dropped(self, size: int) -> None:
        self._dropped += size
        self._counts.dropped += size

    def _wait_anew(self, values: Sequence[Value]) -> None:
        """Replaces the waiting values by these values."""
        self._use(-self._used)
        self._waiting.clear()
        self._size = self._bytes = self._messages = self._message_bytes = self._state = 0
        self._append(values)

    def _split(self, changes: Changes) -> None:
        """Cuts a state at the head of what waits, which would make too large a frame, in parts."""
        self._waiting.popleft()
        parts = changes.parts(max(1, changes.size * PART_BYTES // len(changes.packed)))
        self._waiting.extendleft(reversed(parts))
        self._count([changes], -1)
        self._count(parts, +1)

    def _is_failed_by(self, more: int, changes: Value) -> bool:
        """Fails if so many more messages are too many beside the waiting ones; True if it failed.

        The messages of one epoch alone are not, unless no memory is left for them.
        """
        count, size = self._messages + more, len(changes.packed)
        if self._messages and count > self._message_limit:
            self._fail(f"{count} messages wait, limit {self._message_limit}")
        elif self._messages and self._message_bytes + size > self._byte_limit:
            excess = f"{count} messages wait in {self._message_bytes + size} bytes"
            self._fail(f"{excess}, limit {self._byte_limit}")
        elif self._budget.denies(self._message_bytes, size):
            excess = f"{count} messages wait in {self._message_bytes + size} bytes"
            self._fail(excess + self._said_of_all(self._message_bytes, changes))
        return self.failure is not None

    def _said_of_all(self, used: int, changes: Value) -> str:
        """Returns what is said of the bound of all observers, where that is why a stream ends."""
        budget, size = self._budget, len(changes.packed)
        if not budget.denies(used, size):
            return ""
        return (
            f"; {budget.used + size} bytes wait for all observers, limit {budget.limit}, "
            f"and {budget.share} for each beyond that"
        )

    def _fail(self, what: str) -> None:
        self._counts.failed += 1
        self.failure = Refused("slow-observer", what)
        self._difference = None
        self._wait_anew(())


@dataclass(slots=True)
class SlowCounts:
    """Counts of what slow observers of a daemon have lost, since its start.

    ``conflated`` epochs that became part of a difference, ``dropped`` changes, ``failed`` observations, and
    how often one has ``fallen_behind`` and is fed from the log.
    """

    conflated: int = 0
    dropped: int = 0
    failed: int = 0
    fallen_behind: int = 0
