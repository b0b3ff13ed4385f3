"""CatchUpMessages: the steps of a topic as the messages that a subscriber as of some times would have had.

Who reads the past from the disk, and who takes over where that meets the present, must be told one history.
So the frontiers that a subscriber receives are those that were, moved up to the times it asked for: no time
before them is of interest, and none of them is over as long as it was not.

Always: the messages are a snapshot of each partition, then what happened at or after those times in order;
after ``catch_up`` the frontiers that were told are those of the topic.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from dataspace.topics import encoding as forms
from dataspace.topics.antichains import Antichain
from dataspace.topics.messages import Batch, Crashed, Message, Progress, Snapshot
from dataspace.topics.times import Time, join
from relay.topics.steps import Moved, Step


class CatchUpMessages:
    """Makes the messages by which one subscriber gets from the past to the present."""

    def __init__(self, partitions: Collection[int], since: Antichain) -> None:
        self._partitions: Final = frozenset(partitions)
        self._since: Final = since
        self._told = dict.fromkeys(sorted(self._partitions), since)

    def snapshots(self) -> list[Message]:
        """Returns the first message of each partition."""
        return [Snapshot(each, tuple(told), ()) for each, told in self._told.items()]

    def messages(self, step: Step) -> list[Message]:
        """Returns what one step means to this subscriber; none for most steps before its times."""
        match step.form:
            case (forms.SEND | forms.FINISH, _, partition, time, items, *_):
                wanted = partition in self._partitions and self._since.less_equal(time)
                batch: list[Message] = [Batch(partition, time, items)] if wanted else []
                return [*batch, *self.catch_up(step.moved)]
            case (forms.CRASH, _, partition, lost, reason, moved) if partition in self._partitions and lost:
                return [Crashed(partition, lost, (), reason, ()), *self.catch_up(moved)]
            case _:
                return self.catch_up(step.moved)

    def catch_up(self, moved: Moved) -> list[Message]:
        """Returns progress to these frontiers."""
        messages: list[Message] = []
        for partition, lower in moved:
            if partition in self._partitions:
                messages += self._progress(partition, lower)
        return messages

    def _progress(self, partition: int, lower: Iterable[Time]) -> list[Message]:
        before = self._told[partition]
        after = Antichain(join(mine, each) for mine in self._since for each in lower)
        changes = [(each, -1) for each in before if each not in after]
        changes += [(each, +1) for each in after if each not in before]
        self._told[partition] = after
        return [Progress(partition, tuple(changes))] if changes else []
