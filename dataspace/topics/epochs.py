"""Epochs: which have begun, and which of those will never be known to be whole?

An epoch is *latent* until something of it is seen, then *active*, and *completed* once the frontier has
left it behind; these three are the source's.  If a producer vanishes that could have sent more, the epochs
that were active are *crashed*, which they stay.  Publisher and subscriber keep one of these each: the same
epoch may be completed on one partition and active for a group.

Always: every active epoch is at or after an element of the frontier that was last given to ``retire``.
"""

from __future__ import annotations

from typing import Any, Final

from dataspace.topics.antichains import Antichain
from dataspace.topics.messages import EpochState
from dataspace.topics.open_times import OpenTimes
from dataspace.topics.times import Time
from index.values.values import Value

REMEMBERED: Final = 1024
"""Crashed epochs that are remembered as such, the latest."""


class Epochs:
    """Tracks which epochs are active and which have crashed.

    >>> epochs = Epochs()
    >>> epochs.see(3); epochs.see(5)
    >>> epochs.crash(Antichain([4])), epochs.state(3, Antichain([1])), epochs.state(5, Antichain([1]))
    ((5,), <EpochState.ACTIVE: 'active'>, <EpochState.CRASHED: 'crashed'>)
    """

    __slots__ = ("_active", "_crashed")

    def __init__(self) -> None:
        self._active = OpenTimes()
        self._crashed: dict[Time, None] = {}

    def __contains__(self, time: Time) -> bool:
        """True if this epoch is active."""
        return time in self._active

    def __len__(self) -> int:
        """Returns how many epochs are active."""
        return len(self._active)

    def see(self, time: Time) -> None:
        """Notes that an item of this epoch was sent; O(log active)."""
        self._active.add(time)

    def retire(self, frontier: Antichain) -> None:
        """Removes the active epochs that the frontier has passed, as ``OpenTimes.passed``."""
        self._active.passed(frontier)

    def crash(self, since: Antichain) -> tuple[Time, ...]:
        """Marks and returns the active epochs that may be incomplete, now that ``since`` is lost."""
        epochs = tuple(sorted(each for each in self._active if since.less_equal(each)))
        self._crashed.update(dict.fromkeys(epochs))
        while len(self._crashed) > REMEMBERED:
            del self._crashed[next(iter(self._crashed))]
        return epochs

    def dump(self) -> Value:
        """Returns the active and the crashed epochs, for ``load``."""
        return (tuple(sorted(self._active)), tuple(self._crashed))

    def load(self, dumped: Any) -> None:
        """Restores what ``dump`` returned."""
        active, crashed = dumped
        self._active, self._crashed = OpenTimes(active), dict.fromkeys(crashed)

    def state(self, time: Time, frontier: Antichain) -> EpochState:
        """Returns the state of an epoch, given the frontier."""
        if time in self._crashed:
            return EpochState.CRASHED
        if not frontier.less_equal(time):
            return EpochState.COMPLETED
        return EpochState.ACTIVE if time in self._active else EpochState.LATENT
