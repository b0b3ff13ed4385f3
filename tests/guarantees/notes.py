"""Notes: adds to a history what clients are answered and shown, and the log as it grows.

Always: what is noted is what the clients themselves were told, and the log as its reader reads it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import trio

import dataspace
from dataspace.client.bulk.client import BulkClient
from dataspace.client.bulk.topics import topic_epochs, topic_frontier
from dataspace.client.space import Observing
from dataspace.errors import Refused
from dataspace.kernel.changes import EpochChanges
from index.patterns.text import parse_pattern
from relay.log.reader import LogReader
from tests.guarantees.history import History, Shown, Turn, View

AS_A_READER: Final[Observing] = {"durable": True, "quiet": True, "policy": "wait", "progress": True}
"""How an observation is opened whose epochs are those of the log."""


class Notes:
    """Notes of one run in one space; ``history`` is replaced when a part of it was judged."""

    def __init__(self, directory: Path) -> None:
        """``directory`` is where the log of the space is."""
        self.history = History()
        self.answered: int = 0
        """The latest epoch with which a turn was answered."""
        self._directory = directory
        self._observing: set[str] = set()
        """The names of the views that grow."""
        self._read = 0
        self._entries = 0
        self._changed = trio.Event()

    # -- turns and what is shown -----------------------------------------------------------------------

    async def note_turn(self, client: str, ticket: dataspace.Ticket) -> int | str:
        """Waits for the answer to a turn and notes both; returns its epoch, or the code of its refusal."""
        try:
            answer: int | str = await ticket.wait()
            self.answered = max(self.answered, int(answer))
        except Refused as refusal:
            answer = refusal.code
        is_known = answer != "old-sequence"  # else the log does not go back to it any more, and nobody knows
        self.history.turns.append(Turn.of(client, ticket, answer if is_known else None))
        self.wake()
        return answer

    async def observe(
        self,
        space: dataspace.RemoteSpace,
        pattern: str,
        name: str = "",
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Notes what an observer of a pattern is shown until it is cancelled; started once it has the state.

        It is noted under this ``name``, or under the pattern.
        """
        name = name or pattern
        async with space.observe(pattern, **AS_A_READER) as seen:
            self.history.views[name] = View(parse_pattern(pattern))
            self._observing.add(name)
            try:
                async for epoch in seen.epochs():
                    view = self.history.views[name]  # another one once the history was continued
                    if not epoch.progress:
                        view.epochs.append(shown(epoch))
                    view.upto = epoch.number
                    if epoch.snapshot:
                        task_status.started()
                    self.wake()
            finally:
                self._observing.discard(name)

    def wake(self) -> None:
        """Wakes those who wait for something to be noted."""
        self._changed.set()
        self._changed = trio.Event()

    async def wait_changed(self) -> None:
        """Returns once something more was noted."""
        await self._changed.wait()

    async def wait_shown(self) -> None:
        """Returns once all that observe now have reached the latest epoch with which a turn was answered."""
        while any(self.history.views[name].upto < self.answered for name in self._observing):
            await self._changed.wait()

    # -- what is on disk -------------------------------------------------------------------------------

    def read_log(self) -> int:
        """Adds what the log has got since the last time; returns the last epoch that is in the history.

        An entry that changes no fact repeats the number of the epoch before, so that epoch is read again.
        """
        reader = LogReader.open(self._directory)
        try:
            last, known = self._read, self._entries
            for epoch in reader.read(max(0, last - 1)):
                if epoch.number == last and known:
                    known -= 1
                    continue
                self._entries = self._entries + 1 if epoch.number == self._read else 1
                self._read = epoch.number
                self.history.log.append(epoch)
        finally:
            reader.close()
        return self._read

    def read_topic(self, url: str, name: str) -> None:
        """Adds the epochs of a durable topic that were completed since the last time."""
        topic = self.history.topics[name]
        with BulkClient(url) as link:
            known = topic_frontier(link, name)
            after = topic.before + len(topic.epochs)
            topic.epochs += topic_epochs(link, name, id=known.id, after=after, upto=known.completed)


def shown(epoch: EpochChanges) -> Shown:
    """Returns an epoch as it is recorded."""
    return Shown(
        epoch.number,
        epoch.first,
        tuple(epoch.added),
        tuple(epoch.messages),
        tuple(epoch.removed),
        is_state=epoch.snapshot,
    )
