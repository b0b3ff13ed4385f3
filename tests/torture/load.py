"""What a daemon is put under while it is killed; what came of it is in a history.

Writers of turns, of a durable topic and of staged batches, and observers.  Those that are *far* speak through
links that are cut at random bytes.

Always: nobody here gives up because a daemon or a link is gone; promises are for the validators.
"""

from __future__ import annotations

import contextlib
import logging
import random
from pathlib import Path
from typing import Final

import trio

import dataspace
from dataspace import Record
from dataspace.errors import Broken, Refused
from dataspace.kernel.actions import SEND
from index.values.values import Map
from tests.guarantees.history import Turn
from tests.guarantees.notes import Notes
from tests.model.topics import Seen, Sent, TopicHistory
from tests.server.proxies import Proxy

logger = logging.getLogger("torture")

EVERYBODY = 6
"""Two writers, the publisher, who stages, who acknowledges and who follows."""

AHEAD = 64
"""Epochs of the space, and of the topic, by which writers go ahead of those who observe them.

A cut link carries some 30 kB: a writer that does not wait fills more than all links can bring, and those who
share a link with the observer of most bytes would never get to begin.
"""

BALLAST = 5_000
"""Facts that make a snapshot more than one chunk."""

PATTERNS: Final = ("counted($name, $n)", "count($name, $n)", "present($k, $who)")

TOPIC: Final = "t"


class Load:
    """Everybody who is busy with one daemon; ``notes`` are of what came of it."""

    def __init__(self, url: str, proxy: Proxy, seed: int, directory: Path) -> None:
        self.url = url
        self.proxy = proxy
        self.notes: Final = Notes(directory)
        self.topic: Final = self.notes.history.topics.setdefault(TOPIC, TopicHistory())
        self.random = random.Random(seed)
        self.batches = 0
        self.stopping = False
        self.connected = 0
        self.busy = 0
        self._seen: Final = self.topic.seen.setdefault("far", Seen(is_all=True))

    async def everybody(self) -> None:
        """Returns when all have come: a connection that was never there is not made again."""
        while self.connected < EVERYBODY:  # noqa: ASYNC110  # any of them may be the last
            await trio.sleep(0.01)

    def _begin(self) -> None:
        self.connected += 1
        self.busy += 1

    # -- who writes -----------------------------------------------------------------------------------

    async def write(self, name: str, url: str) -> None:
        """Turns that each replace one fact by the next and send a message."""
        async with (
            dataspace.connect(url, owner=name, client=f"owner:{name}") as space,
            trio.open_nursery() as nursery,
        ):
            self._begin()
            number = 0
            while not self.stopping:
                draft = space.draft()
                if number:
                    draft.retract(number)
                draft.assert_(Record("count", name, number), handle=number + 1)
                draft.send(Record("counted", name, number))
                ticket = await space.submit(draft)
                nursery.start_soon(self.notes.note_turn, f"owner:{name}", ticket)
                if number % 7 == 0:
                    await ticket.wait()
                    await trio.sleep(0.002)
                number += 1
                while self._ahead() > AHEAD and not self.stopping:
                    await self.notes.wait_changed()
        self.busy -= 1

    def _ahead(self) -> int:
        """Returns how many turns were answered that some observer was not shown yet."""
        reached = min(view.upto for view in self.notes.history.views.values())
        late = 0
        for turn in reversed(self.notes.history.turns):
            if isinstance(turn.answer, int) and turn.answer <= reached:
                break
            late += 1
        return late

    async def publish(self, url: str) -> None:
        """A durable topic, each epoch of one item."""
        async with dataspace.connect(url) as space, space.publish(TOPIC, durable=True, away=120) as topic:
            self._begin()
            taken = 0
            while not self.stopping or taken < len(self.topic.sent):
                number = len(self.topic.sent)
                if not self.stopping:
                    self.topic.sent.append(Sent("publisher", 0, number, (number,)))
                    await topic.send(number)
                    await topic.advance(number + 1)
                if number % 8 == 7 or self.stopping:
                    sent = len(self.topic.sent)
                    await topic.flush()
                    for each in self.topic.sent[taken:sent]:
                        each.is_taken = True
                    taken = sent
                    await trio.sleep(0.02)
                while len(self.topic.sent) - len(self._seen.epochs) > AHEAD and not self.stopping:
                    await self.notes.wait_changed()
        self.busy -= 1

    async def stage(self, url: str) -> None:
        """Staged batches, each published as one turn, and tried again under its number until it was."""
        async with dataspace.connect(url) as space:
            self._begin()
            while not self.stopping:
                while True:
                    try:
                        await self._stage_one(space, self.batches + 1)
                        break
                    except (Broken, Refused) as error:
                        logger.debug("batch %d: %s", self.batches + 1, error)
                        await trio.sleep(0.01)
                self.batches += 1
                await trio.sleep(0.02)
        self.busy -= 1

    async def _stage_one(self, space: dataspace.RemoteSpace, number: int) -> None:
        key = (f"batch-{number}",)
        await space.request("discard", Map({"key": key}))
        messages = [Record("batch", number, at) for at in range(3)]
        await space.request("stage", Map({"key": key, "operations": [("send", each) for each in messages]}))
        asked = {"keys": [key], "owner": "bulk", "client": "bulk", "sequence": number}
        answer = await space.request("publish", Map(asked))
        assert isinstance(answer, int)  # by WIRE.md
        actions = [(SEND, each) for each in messages]
        self.notes.history.turns.append(Turn("bulk", number, actions, answer))

    async def wait_for_news(self) -> None:
        """Returns when writers have got answers to more turns than may have been applied before."""
        enough = self._written() + AHEAD
        while self._written() < enough:
            await self.notes.wait_changed()

    def _written(self) -> int:
        return sum(turn.client.startswith("owner:") for turn in self.notes.history.turns)

    async def weigh(self) -> None:
        """Facts that stay."""
        async with dataspace.connect(self.url, owner="ballast", client="owner:ballast") as space:
            draft = space.draft()
            for number in range(BALLAST):
                draft.assert_(Record("ballast", number))
            await self.notes.note_turn("owner:ballast", await space.submit(draft))

    # -- who observes ---------------------------------------------------------------------------------

    async def observe(
        self, url: str, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """What is said, what holds, and who is there, as durable observers are shown it."""
        async with dataspace.connect(url) as space, trio.open_nursery() as nursery:
            for pattern in PATTERNS:
                await nursery.start(self.notes.observe, space, pattern)
            task_status.started()

    async def acknowledge(self) -> None:
        """Lets what all observers have been shown go from the log, once it is noted, again and again."""
        async with dataspace.connect(self.url) as space:
            self.connected += 1
            while not self.stopping:
                await trio.sleep(0.5)
                last = await trio.to_thread.run_sync(self.notes.read_log)
                reached = min([last, *[view.upto for view in self.notes.history.views.values()]])
                asked = Map({"reader": "observers", "epoch": max(0, reached - 1)})  # the last is read again
                with contextlib.suppress(Broken):
                    await space.request("acknowledge", asked)

    async def follow(self, url: str) -> None:
        """The topic, epoch by epoch."""
        async with dataspace.connect(url) as space, space.subscribe(TOPIC, as_of=0, timeout=60) as epochs:
            self.connected += 1
            async for epoch in epochs:
                self._seen.epochs.append(epoch)
                self.notes.wake()

    async def wait_for(self, key: int, count: int) -> None:
        """Returns when the observer was told of so many changes of ``present(key, …)``."""
        view = self.notes.history.views[PATTERNS[2]]
        while sum(any(row[0] == key for row in (*each.added, *each.removed)) for each in view.epochs) < count:
            await self.notes.wait_changed()

    # -- links ----------------------------------------------------------------------------------------

    async def cut(self, scope: trio.CancelScope) -> None:
        """Has each link through the proxy end after a random number of bytes, until it is cancelled."""
        with scope:
            while True:
                while len(self.proxy.cuts) < 8:
                    cut = self.random.randint(200, 60_000), self.random.randint(400, 60_000)
                    self.proxy.cuts.append(cut)
                await trio.sleep(0.05)
        self.proxy.cuts.clear()
        self.proxy.cut()

    # -- the end --------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Lets everybody come to an end, with all answers and everything told."""
        self.stopping = True
        self.notes.wake()
        while self.busy:  # noqa: ASYNC110  # several tasks, each of which may be the last
            await trio.sleep(0.05)
        while len(self._seen.epochs) < len(self.topic.sent):
            await self.notes.wait_changed()
        await self.notes.wait_shown()

    def left(self) -> str:
        """What has not come to an end."""
        views = {name: view.upto for name, view in self.notes.history.views.items()}
        return f"{self.busy} busy; {self.statistics()}; observers at {views} of {self.notes.answered}"

    def statistics(self) -> dict[str, int]:
        """How much was done."""
        turns = len(self.notes.history.turns)
        return {"turns": turns, "topic epochs": len(self._seen.epochs), "batches": self.batches}
