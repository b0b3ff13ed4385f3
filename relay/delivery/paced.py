"""A queue member with a pace: every so many seconds it takes the changes since then, as one epoch.

A page that a person looks at gains nothing from a hundred states a second, though each of them costs the
daemon a write and the page a drawing.  So a paced member that is live takes nothing before its turn
(``pacing.py``), and then the net difference of all waiting epochs, or the epoch itself if only one waits.

Its own queue is not paced: the state that it begins with, epochs from the log, an epoch that travels in
several values, and the remainder if more came than may wait.

Always: its values lead to the same state as the values of any member, and have all messages in their order;
their epochs follow one another, and neither overlap nor leave one out; while it does not wait for its turn
nothing refers to it but its queue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from dataspace.kernel.changes import Changes
from dataspace.wire.observing import Policy
from relay.delivery.net_changes import net_of
from relay.delivery.packed import PackedChanges
from relay.delivery.queue_members import Delivery, PatternQueue, QueueMember
from relay.delivery.shared import QueueBounds


class PacedMember(QueueMember):
    """What waits for one observer with the policy ``conflate``, which takes it every ``pace`` seconds."""

    __slots__ = ("_due", "_pace", "_wakes_at")

    def __init__(
        self, delivery: Delivery, wake: Callable[[Any], None], woken: object = None, *, pace: float
    ) -> None:
        super().__init__(delivery, wake, woken, policy=Policy.CONFLATE)
        self._pace: Final = pace
        self._due = 0.0  # the time of its next turn, on the clock of the daemon's pacing
        self._wakes_at: float | None = None

    def __len__(self) -> int:
        """Returns the number of stream values that wait; everything that waits for its turn counts as one."""
        return len(self._own) if self._own is not None else min(1, super().__len__())

    @property
    def oldest(self) -> tuple[int, int] | None:
        """Returns what ``QueueMember.oldest`` does; None before its turn, since nothing is late then."""
        return None if self._own is None and self._wakes_at is not None else super().oldest

    # -- the space's side -----------------------------------------------------------------------------

    def wake(self) -> None:
        """Called when something waits again: has the stream woken when its turn comes."""
        if self._own is not None or self._is_due():
            self._wake(self._woken)

    def leave(self, waiting: Sequence[PackedChanges], changes: Changes) -> None:
        """Called by the shared queue where too much waits: all of it leaves as one, before its turn."""
        self._take_over(()).extend_all(net_of([*waiting, changes]))
        self.wake()

    def call(self) -> None:
        """Called when its turn has come."""
        self._wakes_at = None
        self._wake(self._woken)

    def close(self) -> None:
        """Drops what waits when the observer has left; may be called again."""
        super().close()
        if self._wakes_at is not None:
            self._delivery.pacing.forget(self.call, self._wakes_at)
            self._wakes_at = None

    @property
    def _bounds(self) -> QueueBounds:
        """Returns what may wait in a queue of its own.

        Twice the messages: as many as otherwise may have come before its turn, and a reader that takes all at
        its turn is not slow.
        """
        bounds = super()._bounds
        return replace(bounds, messages=2 * bounds.messages)

    # -- the stream's side ----------------------------------------------------------------------------

    def take_packed(self, count: int, size: int) -> tuple[int, bytes]:
        """Removes what has waited for its turn; nothing before that."""
        queue = self.queue
        taken: tuple[int, bytes] | None = None
        if self._own is None and queue is not None and self.position < queue.end:
            if not self._is_due():
                return 0, b""
            if count > 0 and size > 0 and queue.end - self.position > 1:
                taken = self._take_all(queue)
        if taken is None:
            taken = super().take_packed(count, size)
        if taken[0]:
            self._due = self._delivery.pacing.after(self._pace)
        return taken

    def _take_all(self, queue: PatternQueue) -> tuple[int, bytes] | None:
        """Takes all waiting epochs, as one value.

        Returns None if it is too large for one, or is one epoch: then it is in the queue of its own.
        """
        merged = queue.merged(self)
        if merged is None:
            self._part()
            return None
        if len(merged) > 1:
            queue.part(self)
            self._take_over(merged)
            return None
        queue.take_all(self)
        return 1, merged[0].packed

    def _is_due(self) -> bool:
        """True if its turn has come; else it will be called then."""
        if self._wakes_at is not None:
            return False
        pacing = self._delivery.pacing
        if pacing.clock() >= self._due:
            return True
        self._wakes_at = self._due
        pacing.wait(self.call, self._due)
        return False
