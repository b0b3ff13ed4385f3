"""An observation: what one observer has yet to be told, whatever its speed.

The space offers changes as they happen; whoever writes to the observer takes them when there is credit.
In between they wait here.  It is apart from sockets so that what happens to a slow observer can be stated
and tested without one:

- up to ``limit`` changes, and ``byte_limit`` bytes of them, wait as they are, epoch by epoch;
- beyond that, facts *conflate*: only the net difference is kept, as one value that says which epochs it
  stands for.  It cannot outgrow what the observer has been told plus what holds now;
- messages never conflate: up to ``message_limit`` of them, and about ``byte_limit`` bytes, wait, and more
  end the observation with the error ``slow-observer``, which says how many were waiting;
- one epoch alone, while nothing else waits, is within the limits whatever its size.

Always: what was taken plus what waits is the state at the newest offered epoch; an epoch that has begun
to leave in parts leaves whole before anything later does; memory is bounded by the state plus the limits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Final

from dataspace.changes import Captures, Changes
from dataspace.errors import Refused
from dataspace.wire.packets import CONFLATED, MORE
from index.values import keys

LIMIT: Final = 16_384
"""Changes that wait unconflated for one observer."""

MESSAGE_LIMIT: Final = 4_096
"""Messages that wait for one observer."""

BYTE_LIMIT: Final = 16 << 20
"""Bytes that wait for one observer, as they would be sent."""

PART_BYTES: Final = 128 << 10
"""What one stream value holds at most, unless one change alone is larger: frames stay within bounds."""


@dataclass(frozen=True, slots=True)
class ObservationStatistics:
    """Counts over the life of one observation, in changes except where named otherwise."""

    waiting: int
    taken_values: int
    conflated_epochs: int
    failed: bool


class Difference:
    """The net of the epochs from ``first`` on: for each row whether it came or went, and all messages."""

    __slots__ = ("epochs", "first", "messages", "net", "number", "time")

    def __init__(self, first: int) -> None:
        self.first = first
        self.number = first
        self.time = 0
        self.epochs = 0
        self.net: dict[Hashable, tuple[bool, Captures]] = {}
        self.messages: list[Captures] = []

    def fold(self, changes: Changes) -> None:
        """Adds one more epoch; O(its changes)."""
        self.number, self.time = changes.number, changes.time
        self.epochs += 1
        for row in changes.added:
            self._turn(row, came=True)
        self.messages.extend(changes.messages)
        for row in changes.removed:
            self._turn(row, came=False)

    def _turn(self, row: Captures, *, came: bool) -> None:
        """A row that comes and goes again, or the reverse, was not there to be seen."""
        at = keys(row)
        if self.net.pop(at, None) is None:
            self.net[at] = (came, row)

    def __len__(self) -> int:
        return len(self.net) + len(self.messages)

    def changes(self) -> Changes:
        """One value that stands for them all."""
        rows = self.net.values()
        return Changes(
            self.number,
            self.time,
            [row for came, row in rows if came],
            self.messages,
            [row for came, row in rows if not came],
            flags=CONFLATED,
            first=self.first,
        )


class Observation:
    """The waiting room of one observer.  ``wake`` is called whenever something new waits."""

    __slots__ = (
        "_begun",
        "_byte_limit",
        "_bytes",
        "_conflated",
        "_difference",
        "_limit",
        "_message_bytes",
        "_message_limit",
        "_messages",
        "_size",
        "_taken",
        "_waiting",
        "_wake",
        "failure",
    )

    def __init__(
        self,
        wake: Callable[[], None],
        *,
        limit: int = LIMIT,
        message_limit: int = MESSAGE_LIMIT,
        byte_limit: int = BYTE_LIMIT,
    ) -> None:
        self.failure: Refused | None = None
        self._wake = wake
        self._limit = limit
        self._message_limit = message_limit
        self._byte_limit = byte_limit
        self._waiting: deque[Changes] = deque()
        self._difference: Difference | None = None
        self._begun = False
        self._size = 0
        self._bytes = 0
        self._messages = 0
        self._message_bytes = 0
        self._taken = 0
        self._conflated = 0

    def __len__(self) -> int:
        """Stream values that wait; a conflated difference counts as one."""
        return len(self._waiting) + (self._difference is not None)

    @property
    def size(self) -> int:
        """Changes that wait unconflated."""
        return self._size

    def offer(self, changes: Changes) -> None:
        """Takes in one epoch; O(1) until it conflates, then O(changes)."""
        if self.failure is not None:
            return
        if changes.messages and self._messages and self._is_failed_by(changes):
            pass  # nothing waits any more but the error
        elif self._difference is not None:
            self._fold(changes)
        elif self._waiting and self._beyond(changes):
            self._conflate(changes)
        else:
            self.extend(changes)
        self._wake()

    def extend(self, changes: Changes) -> None:
        """Takes in one epoch as it is, whatever waits already: for snapshots and for the log."""
        for part in changes.parts():
            self._waiting.append(part)
            self._count(part, +1)

    def _count(self, changes: Changes, sign: int) -> None:
        """Counts one value that begins or ceases to wait; a state is not packed before it leaves."""
        self._size += sign * len(changes)
        if not changes.snapshot:
            self._bytes += sign * len(changes.packed)
        if changes.messages:
            self._count_messages(changes, sign)

    def _count_messages(self, changes: Changes, sign: int) -> None:
        self._messages += sign * len(changes.messages)
        self._message_bytes += sign * len(changes.packed)

    def _beyond(self, changes: Changes) -> bool:
        """Whether one more epoch is too much to wait as it is."""
        return self._size + len(changes) > self._limit or self._bytes + len(changes.packed) > self._byte_limit

    def take(self, count: int, size: int) -> list[Changes]:
        """Up to ``count`` values of about ``size`` bytes in all, at least one if there is one and count > 0.

        The last may go beyond ``size``, so that a large value cannot get stuck.
        """
        taken: list[Changes] = []
        waiting = self._waiting
        while len(taken) < count and size > 0:
            if not waiting:
                if self._difference is None:
                    break
                self._wait_anew(self._difference.changes().parts())
                self._difference = None
            changes = waiting.popleft()
            if len(changes.packed) > PART_BYTES and len(changes) > 1:
                self._split(changes)
                continue
            self._count(changes, -1)
            size -= len(changes.packed)
            taken.append(changes)
            self._begun = bool(changes.flags & MORE)
        self._taken += len(taken)
        return taken

    def statistics(self) -> ObservationStatistics:
        """Counts, in O(1)."""
        return ObservationStatistics(self._size, self._taken, self._conflated, self.failure is not None)

    def _conflate(self, changes: Changes) -> None:
        """Folds all that waits, but for a snapshot and an epoch that has begun to leave."""
        begun: list[Changes] = []
        if self._begun or self._waiting[0].snapshot:
            while self._waiting:
                begun.append(self._waiting.popleft())
                if not begun[-1].flags & MORE:
                    break
        later: Sequence[Changes] = [*self._waiting, changes]
        self._wait_anew(begun)
        self._difference = Difference(later[0].first)
        for each in later:
            self._fold(each)

    def _fold(self, changes: Changes) -> None:
        """Adds an epoch to the difference that waits."""
        assert self._difference is not None  # the caller has seen to it
        self._difference.fold(changes)
        self._conflated += 1
        if changes.messages:
            self._count_messages(changes, +1)

    def _wait_anew(self, values: Sequence[Changes]) -> None:
        """Lets these values wait and nothing else."""
        self._waiting.clear()
        self._size = self._bytes = self._messages = self._message_bytes = 0
        for each in values:
            self._waiting.append(each)
            self._count(each, +1)

    def _split(self, changes: Changes) -> None:
        """Puts a value that would make too large a frame back in parts."""
        self._count(changes, -1)
        parts = changes.parts(max(1, len(changes) * PART_BYTES // len(changes.packed)))
        self._waiting.extendleft(reversed(parts))
        for part in parts:
            self._count(part, +1)

    def _is_failed_by(self, changes: Changes) -> bool:
        """Fails where messages wait already and these are too many more; whether it did."""
        count = self._messages + len(changes.messages)
        size = self._message_bytes + len(changes.packed)
        if count > self._message_limit:
            self._fail(f"{count} messages wait, limit {self._message_limit}")
        elif size > self._byte_limit:
            self._fail(f"{count} messages wait in {size} bytes, limit {self._byte_limit}")
        return self.failure is not None

    def _fail(self, what: str) -> None:
        self.failure = Refused("slow-observer", what)
        self._difference = None
        self._wait_anew(())
