"""A memory budget: what the changes that wait for all observers of a daemon may take together.

Each observer has bounds of its own, which it rarely needs; but a thousand that stall at once would need them
all.  So what waits is added up, and while it is too much, no observer may have more than an equal share.

Replays hold something else: the state from which they know what appeared and what vanished.  These states
have a part of the budget, and a replay is refused if its state is too much beside the states of other
replays.

Always: ``used`` is what the observations that have not left say that they hold, ``states`` what replays hold.
"""

from __future__ import annotations

from typing import Final

from dataspace.errors import Refused

WAITING_BYTES: Final = 512 << 20
"""Bytes that may wait for all observers together, before each must keep to its share."""

LEAST: Final = 64 << 10
"""Bytes that wait for an observer in any case."""

OVERHEAD: Final = 256
"""Bytes that a waiting value, or a row of a state or a difference, takes beside its wire form, at most."""


STATES_PART: Final = 4
"""The states of replays may take one part in so many of the budget."""

ROW_BYTES: Final = 256
"""Bytes that a row of a state takes, about."""


class MemoryBudget:
    """The memory shared by many delivery queues, and by the states of replays; ``limit`` in bytes."""

    __slots__ = ("limit", "observers", "states", "used")

    def __init__(self, limit: int = WAITING_BYTES) -> None:
        self.limit = limit
        self.used = 0
        self.observers = 0
        self.states = 0
        """Bytes in the states of replays, about."""

    @property
    def share(self) -> int:
        """Returns the bytes that may wait for one observer while there is too much for all."""
        return max(LEAST, self.limit // max(1, self.observers))

    def denies(self, used: int, more: int = 0) -> bool:
        """True if an observer that uses so much, and would use so much more, must use less."""
        return self.used + more > self.limit and used + more > self.share

    def pauses(self, used: int) -> bool:
        """True if a source that can pause should, for an observer that uses so much.

        It pauses before others have to use less: at half of the memory, and half of a share.
        """
        if self.used > self.limit:
            return used > 0
        return 2 * self.used > self.limit and 2 * used > self.share


class HeldState:
    """What the state of one replay takes of a budget; the state of a single one may be of any size."""

    __slots__ = ("_budget", "_used")

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._used = 0

    def holds(self, rows: int) -> None:
        """Counts so many rows; raises ``Refused`` where that is too much beside the states of others."""
        budget, grown = self._budget, rows * ROW_BYTES - self._used
        most = budget.limit // STATES_PART
        if grown > 0 and budget.states + grown > most and budget.states > self._used:
            raise Refused(
                "limit",
                f"a state of {rows} rows, beside {budget.states} bytes in states of replays, exceeds a "
                f"quarter of limits.waiting_bytes={budget.limit}; try again when others have ended",
            )
        budget.states += grown
        self._used += grown

    def close(self) -> None:
        """Gives back what it took; may be called again."""
        self._budget.states -= self._used
        self._used = 0
