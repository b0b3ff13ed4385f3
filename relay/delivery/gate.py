"""The gate of a space: holds back what observers would see until its epoch is on disk.

A turn is committed in memory first, and a crash before the next flush of the disk loses it.  With the gate
no observer has seen a lost epoch: changes go to the queues of their patterns when the writer of the log has
accepted the epoch.  The beginning of an observation is an entry between the changes before it and after it,
at the epoch of its state; so is the reason of a refused turn.

The gate is above the queues, so what an observer is sent, loses or conflates is the same with it and without
it, only later; and the queue of a pattern stays shared by all of its observers.

Always: entries leave in the order of their epochs, which is the order in which they came; an entry leaves
when its epoch is on disk, or the gate is opened; kept entries count in the memory of observers, and in the
backlog of the log's writer.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from relay.delivery.memory import OVERHEAD, ROW_BYTES, MemoryBudget

if TYPE_CHECKING:
    from dataspace.kernel.changes import Changes

logger = logging.getLogger("dataspace")


class DurableGate:
    """Keeps entries until their epoch is on disk, while it is closed; an open gate keeps nothing."""

    __slots__ = ("_kept", "_budget", "closed", "durable", "size")

    def __init__(self, budget: MemoryBudget, durable: int = 0) -> None:
        self._budget: Final = budget
        self._kept: deque[tuple[int, int, Callable[[Any], object], Any]] = deque()
        """Epoch, bytes, a function and its argument; the function is called once the epoch is on disk."""
        self.closed = False
        self.durable = durable
        """The newest epoch on disk."""
        self.size = 0
        """Bytes that the entries take, about."""

    def __len__(self) -> int:
        """Returns the number of entries that wait."""
        return len(self._kept)

    def keeps(self, epoch: int) -> bool:
        """True if an entry of this epoch has to wait."""
        return self.closed and (epoch > self.durable or bool(self._kept))

    def offer_when_durable(self, offer: Callable[[Changes], object], changes: Changes) -> None:
        """Calls ``offer`` with the changes once their epoch is on disk; at once if it is."""
        number = changes.number
        if number > self.durable or self._kept:
            # Packed now: what cannot be packed is an error of the turn.
            size = OVERHEAD + ROW_BYTES * changes.size + len(changes.packed)
            self._kept.append((number, size, offer, changes))
            self.count(size)
        else:
            self.closed = False  # as in ``_show``
            try:
                offer(changes)
            finally:
                self.closed = True

    def after(self, epoch: int, call: Callable[[Any], object], argument: object, size: int = 0) -> None:
        """Calls a function once everything up to an epoch was shown: at once, unless the gate keeps it.

        The entry takes about ``size`` bytes beside its own.
        """
        if self.keeps(epoch):
            size += OVERHEAD
            self._kept.append((epoch, size, call, argument))
            self.count(size)
        else:
            call(argument)

    def count(self, size: int) -> None:
        """Counts so many bytes more, or less, for what an entry refers to."""
        self.size += size
        self._budget.used += size

    def release(self, durable: int) -> None:
        """Shows everything up to an epoch, which is on disk now; O(that)."""
        self.durable = durable
        if self._kept:
            self._show(durable)

    def close(self) -> None:
        """Keeps from now on what is not on disk."""
        self.closed = True

    def open(self) -> None:
        """Shows everything that is kept, and keeps nothing from now on; O(kept)."""
        if self._kept:
            self._show(self._kept[-1][0])
        self.closed = False

    def _show(self, upto: int) -> None:
        kept = self._kept
        was, self.closed = self.closed, False  # else the queues would give it back
        try:
            while kept and kept[0][0] <= upto:
                _, size, call, argument = kept.popleft()
                self.count(-size)
                try:
                    call(argument)
                except Exception:  # a fence: the others, and the acceptance, come all the same
                    logger.exception("an epoch could not be shown: this is a defect, please report it")
        finally:
            self.closed = was
