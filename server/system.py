"""The read-only space ``system``, in which the daemon describes itself: its topics, and the connections that
read.

It has no log. Clients can observe its current facts, and what changes in them from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from itertools import count
from typing import Final

from dataspace.kernel.actions import ASSERT, RETRACT, Action
from dataspace.kernel.space import Space
from dataspace.wire.features import SYSTEM
from index.values.values import Record

_OWNER: Final = "catalogue"


class SystemSpace:
    """The facts that a daemon states about itself."""

    def __init__(self, now: Callable[[], int], flush: Callable[[], None] = lambda: None) -> None:
        """``now`` returns microseconds since 1970 UTC; ``flush`` writes what observers are to be sent."""
        self._now = now
        self._flush = flush
        self._handles = count(1)
        self._facts: dict[Record, int] = {}
        self.space: Final = Space(SYSTEM)
        # nothing of this space is on disk, and its epochs must not repeat those of an earlier daemon
        self.space.epoch = now()

    def state(self, appeared: Sequence[Record], vanished: Sequence[Record]) -> None:
        """Asserts and retracts facts in one turn; a fact that is not there is not retracted.

        Observers get them with the next flush: at the end of a request, or of ``DaemonState.flushing.flush``.
        """
        actions: list[Action] = []
        for fact in appeared:
            self._facts[fact] = handle = next(self._handles)
            actions.append((ASSERT, handle, fact))
        actions += [(RETRACT, self._facts.pop(fact)) for fact in vanished if fact in self._facts]
        if actions:
            self.space.commit(_OWNER, actions, self._now(), own=True)

    def replace(self, stated: dict[Record, int], facts: Set[Record]) -> None:
        """Replaces the facts of a caller; ``stated`` is its record of them, empty at first.

        Observers get them at once, since callers are tasks that no request waits for.  A fact of two callers
        is there as long as one of them states it.
        """
        actions: list[Action] = []
        for fact in facts - stated.keys():
            stated[fact] = handle = next(self._handles)
            actions.append((ASSERT, handle, fact))
        actions += [(RETRACT, stated.pop(fact)) for fact in stated.keys() - facts]
        if actions:
            self.space.commit(_OWNER, actions, self._now(), own=True)
            self._flush()
