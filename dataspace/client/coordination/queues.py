"""The queue before a lock: which contenders came before this one?

Each contender states a fact, and observes the facts of the others.  Contenders whose facts were there when
its own appeared are ahead of it, and no others: so contenders need no numbers, and no two are each ahead of
the other.

Always: the contenders ahead only become fewer, but for a holder that was found; where the order is not known,
because epochs came as one, ``is_unclear`` is true, and the contender must begin again, behind all others.
"""

from __future__ import annotations

from collections.abc import Iterable

from dataspace.kernel.epoch_changes import EpochChanges
from index.values.values import Value


class Queue:
    """Those before one contender, by their terms."""

    def __init__(self, mine: str) -> None:
        self._mine = mine
        self._ahead: set[Value] = set()
        self._gone: set[Value] = set()
        self._is_in = False
        self.is_out = False
        """True once the contender's own fact has gone."""
        self.is_unclear = False

    @property
    def is_first(self) -> bool:
        """True while this contender waits, and nothing is ahead of it."""
        return self._is_in and not self.is_out and not self._ahead

    def take(self, epoch: EpochChanges) -> None:
        """Takes in one epoch of ``contender(NAME, $who, $term)``."""
        came = [row[1] for row in epoch.added]
        if self._mine in came and len(came) > 1:
            self.is_unclear = True
        self._gone.difference_update(came)  # back, since a daemon that was killed had not written its end
        for term in came:
            if term == self._mine:
                self._is_in = True
            elif not self._is_in:
                self._ahead.add(term)
        for _, term in epoch.removed:
            self._ahead.discard(term)
            self._gone.add(term)
            self.is_out |= term == self._mine

    def wait_for(self, rows: Iterable[tuple[Value, ...]]) -> None:
        """Waits for holders that were found, unless they are known to have gone."""
        self._ahead.update([row[1] for row in rows if row[1] not in self._gone])
