"""Notes: adds to a history what clients are answered and shown, and the log as it grows.

Always: what is noted is what the clients themselves were told, and the log as its reader reads it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

import dataspace
from dataspace import ConnectionChange, ConnectionEvent
from dataspace.client.bulk.client import BulkClient
from dataspace.client.bulk.topics import topic_epochs, topic_frontier
from dataspace.client.observations import Observing
from dataspace.client.session.session import ClientSession
from dataspace.errors import Refused
from dataspace.kernel.changes import EpochChanges
from index.patterns.text import parse_pattern
from relay.log.reader import LogReader
from tests.guarantees.history import Heard, History, Shown, Turn, View

AS_A_READER: Final[Observing] = {"durable": True, "quiet": True, "policy": "wait", "progress": True}
"""How an observation is opened whose epochs are those of the log."""


CONNECTED: Final = (ConnectionChange.CONNECTED, ConnectionChange.RESUMED, ConnectionChange.ANEW)


class Caller:
    """A client, and the process to which it is connected, as of its last welcome."""

    process: str
    session: ClientSession

    def __init__(
        self,
        client: str,
        heard: list[Heard],
        process_at: Callable[[str], str],
        hear: Callable[[ConnectionEvent], None],
    ) -> None:
        """``process_at`` returns the name of the process at an address, empty if that is not known."""
        self.client: Final = client
        self._heard = heard
        self._process_at = process_at
        self._hear = hear

    def take(self, event: ConnectionEvent) -> None:
        """Notes where it is connected."""
        if event.change in CONNECTED and hasattr(self, "session"):
            self.settle()
        self._hear(event)

    def settle(self) -> None:
        """Notes the present process."""
        self.process = self._process_at(self.session.uplink.address.url)

    def asks(self) -> int:
        """Returns how many epochs it has heard of, for ``hears``."""
        return len(self._heard)

    def hears(self, epoch: int, asked: int) -> None:
        """Notes an epoch that it hears of."""
        self._heard.append(Heard(epoch, self.process, asked))


class Notes:
    """Notes of one run in one space; ``history`` is replaced when a part of it was judged."""

    def __init__(
        self, log: Path | Callable[[], LogReader], process_at: Callable[[str], str] = lambda _: ""
    ) -> None:
        """``log`` is the directory of the space's log, or opens the log; ``process_at`` as for ``Caller``."""
        self.history = History()
        self.answered: int = 0
        """The latest epoch with which a turn was answered."""
        self._open = partial(LogReader.open, log) if isinstance(log, Path) else log
        self._process_at = process_at
        self._observing: set[str] = set()
        """The names of the views that grow."""
        self._read = 0
        self._entries = 0
        self._changed = trio.Event()

    # -- turns and what is shown -----------------------------------------------------------------------

    @asynccontextmanager
    async def connected(
        self,
        url: str,
        client: str,
        /,
        hear: Callable[[ConnectionEvent], None] = lambda _: None,
        **options: Any,
    ) -> AsyncIterator[tuple[dataspace.RemoteSpace, Caller]]:
        """Connects; notes under the client's name each epoch that the client hears of, and the process."""
        caller = Caller(client, self.history.heard.setdefault(client, []), self._process_at, hear)
        async with dataspace.connect(url, on_connection=caller.take, **options) as space:
            caller.session = space._session
            caller.settle()
            yield space, caller

    async def note_turn(
        self,
        client: str,
        ticket: dataspace.Ticket,
        caller: Caller | None = None,
        asked: int = 0,
        after: int = 0,
    ) -> int | str:
        """Waits for the answer to a turn and notes both; returns its epoch, or the code of its refusal.

        ``asked`` is what ``caller.asks`` returned before the turn was submitted, ``after`` what ``answered``
        was then.
        """
        try:
            answer: int | str = await ticket.wait()
            self.answered = max(self.answered, int(answer))
            if caller is not None:
                caller.hears(int(answer), asked)
        except Refused as refusal:
            answer = refusal.code
        at = "" if caller is None else caller.process
        is_known = answer != "old-sequence"  # else the log does not go back to it any more, and nobody knows
        self.history.turns.append(Turn.of(client, ticket, answer if is_known else None, at, after))
        self.wake()
        return answer

    async def observe(
        self,
        space: dataspace.RemoteSpace,
        pattern: str,
        name: str = "",
        caller: Caller | None = None,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Notes what an observer of a pattern is shown until it is cancelled; started once it has the state.

        It is noted under this ``name``, or under the pattern.
        """
        name = name or pattern
        asked = 0 if caller is None else caller.asks()
        async with space.observe(pattern, **AS_A_READER) as seen:
            self.history.views[name] = View(parse_pattern(pattern))
            self._observing.add(name)
            try:
                async for epoch in seen.epochs():
                    view = self.history.views[name]  # another one once the history was continued
                    if not epoch.progress:
                        view.epochs.append(shown(epoch, "" if caller is None else caller.process))
                    if caller is not None:
                        caller.hears(epoch.number, asked)
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
        reader = self._open()
        try:
            last, known = self._read, self._entries
            for epoch in reader.read(max(0, last - 1)):
                if epoch.number == last and known:
                    known -= 1
                    continue
                self._entries = self._entries + 1 if epoch.number == self._read else 1
                self._read = epoch.number
                self.history.log.append(epoch)
            self.history.firsts |= firsts(reader)
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


def firsts(reader: LogReader) -> dict[int, int]:
    """Returns the first epoch of each term in the log, by the number of the term."""
    starts = sorted([first for first, _ in reader._tables.starts()])
    return dict(enumerate(starts, reader.term - len(starts) + 1))


def shown(epoch: EpochChanges, process: str = "") -> Shown:
    """Returns an epoch as it is recorded."""
    return Shown(
        epoch.number,
        epoch.first,
        tuple(epoch.added),
        tuple(epoch.messages),
        tuple(epoch.removed),
        is_state=epoch.snapshot,
        process=process,
    )
