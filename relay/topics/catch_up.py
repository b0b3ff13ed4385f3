"""Catching up: the steps of a topic as the messages that a subscriber as of some times would have had.

Steps come from the disk, from memory, or first from the one and then from the other; a subscriber is told one
history all the same.  So the frontiers that a subscriber receives are the earlier ones, moved up to the times
it asked for: no time before them is of interest, and no time is reported complete before it was.

Always: the messages are a snapshot of each partition, then what happened at or after those times in order;
between the past and the present there is neither gap nor overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from dataspace.errors import Refused, UsageError
from dataspace.topics import messages as forms
from dataspace.topics.messages import Batch, Crashed, Message, Progress, Snapshot
from dataspace.topics.times import Antichain, Time, join
from relay.topics.steps import Moved, Step, StepLog


class CatchUp:
    """One subscriber on its way from some times to the present of a topic.

    ``tell`` gets its messages, and ``over`` is called when nothing more comes.  ``at`` is the position of the
    last step that it was told.
    """

    def __init__(
        self,
        ledger: StepLog,
        number: int,
        partitions: Sequence[int],
        as_of: Sequence[Time],
        tell: Callable[[Message], None],
        over: Callable[[], None],
    ) -> None:
        """Raises ``Refused`` unless all since these times is retained or still to come."""
        if not partitions:
            raise UsageError("a subscription needs a partition at least")
        self.ledger: Final = ledger
        self.since: Final = ledger.check_as_of(as_of, partitions)
        self.at = 0
        self._number = number
        self._partitions: Final = frozenset(partitions)
        self._told = dict.fromkeys(sorted(self._partitions), self.since)
        self._tell = tell
        self._over = over

    def begin(self, at: int) -> None:
        """Tells the state after the step at a position, with the frontiers at the times asked for."""
        self.at = at
        for each, told in self._told.items():
            self._tell(Snapshot(each, tuple(told), ()))

    def take(self, steps: Iterable[Step]) -> None:
        """Tells the steps that follow."""
        for step in steps:
            self._take(step)
            self.at = step.position

    def finish(self) -> bool:
        """Tells the rest and adds the subscriber to the topic, if all the rest is in memory; True if so."""
        tail = self.ledger.tail(self.at)
        if tail is None:
            return False
        self.take(tail)
        self._catch_up(self.ledger.lowers())
        self.ledger.topic.subscribe(self._number, self._partitions, self._tell, self._over, snapshot=False)
        return True

    def check_retained(self) -> None:
        """Raises ``Refused`` if retention has deleted steps that were still to be told."""
        forgotten = self.ledger.forgotten
        if any(forgotten.covers(each) for each in self.since):
            raise Refused("epoch-gone", f"times to {list(forgotten)} went while they were being read")

    def _take(self, step: Step) -> None:
        match step.form:
            case (forms.SEND | forms.FINISH, _, partition, time, items, *_):
                if partition in self._partitions and self.since.less_equal(time):
                    self._tell(Batch(partition, time, items))
            case (forms.CRASH, _, partition, lost, reason, _) if partition in self._partitions and lost:
                self._tell(Crashed(partition, lost, (), reason, ()))
        if not self.ledger.in_memory:  # where a partition may have ended, and begun again before its frontier
            self._catch_up(step.moved)

    def _catch_up(self, moved: Moved) -> None:
        """Tells progress to these frontiers."""
        for partition, lower in moved:
            if partition in self._partitions:
                self._progress(partition, lower)

    def _progress(self, partition: int, lower: Iterable[Time]) -> None:
        before = self._told[partition]
        after = Antichain(join(mine, each) for mine in self.since for each in lower)
        changes = [(each, -1) for each in before if each not in after]
        changes += [(each, +1) for each in after if each not in before]
        self._told[partition] = after
        if changes:
            self._tell(Progress(partition, tuple(changes)))
