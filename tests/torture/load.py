"""What a daemon is put under while it is killed, and what must be true of it all the same.

Writers of turns, of a durable topic and of staged batches note what was acknowledged; observers note what
they were told.  Those that are *far* speak through links that are cut at random bytes.  ``check`` holds the
one against the other.

Always: nobody here gives up because a daemon or a link is gone, only because a promise was broken.
"""

from __future__ import annotations

import contextlib
import logging
import random
from collections import Counter, defaultdict
from typing import Final

import trio

import dataspace
from dataspace import Record
from dataspace.client.bulk.client import BulkClient
from dataspace.client.bulk.topics import topic_epochs, topic_frontier
from dataspace.client.space import Observing
from dataspace.errors import Broken, Refused
from dataspace.kernel.epoch_changes import EpochChanges
from index.values.values import Map
from tests.server.proxies import Proxy

logger = logging.getLogger("torture")

_AS_A_READER: Final[Observing] = {"durable": True, "quiet": True, "policy": "wait", "progress": True}

EVERYBODY = 6
"""Two writers, the publisher, who stages, who acknowledges and who follows."""

AHEAD = 64
"""Turns, and epochs of the topic, by which a writer goes ahead of those who observe it.

A cut link carries some 30 kB: a writer that does not wait fills more than all links can bring, and those who
share a link with the observer of most bytes would never get to begin.
"""

BALLAST = 5_000
"""Facts that make a snapshot more than one chunk."""


class Load:
    """Everybody who is busy with one daemon."""

    def __init__(self, url: str, proxy: Proxy, seed: int) -> None:
        self.url = url
        self.proxy = proxy
        self.random = random.Random(seed)
        self.accepted: dict[str, dict[int, int]] = defaultdict(dict)
        """By writer, the epoch that each of its turns was acknowledged with."""
        self.heard: dict[str, list[tuple[int, int]]] = defaultdict(list)
        """By writer, the messages that the observer was told: number and epoch."""
        self.state: dict[str, set[int]] = defaultdict(set)
        self.seen: Counter[str] = Counter()
        """By writer, the number of the fact that holds, as an observer was told it."""
        self.batches = 0
        self.published = 0
        self.followed: list[int] = []
        self.present: dict[int, list[tuple[int, frozenset[object], frozenset[object]]]] = defaultdict(list)
        self.reached: dict[str, int] = {}
        self.changed = trio.Event()
        self.stopping = False
        self.connected = 0
        self.busy = 0

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
        accepted = self.accepted[name]

        async def note(number: int, ticket: dataspace.Ticket) -> None:
            accepted[number] = await ticket.wait()

        async with dataspace.connect(url, owner=name) as space, trio.open_nursery() as nursery:
            self._begin()
            number = 0
            while not self.stopping:
                draft = space.draft()
                if number:
                    draft.retract(number)
                draft.assert_(Record("count", name, number), handle=number + 1)
                draft.send(Record("counted", name, number))
                ticket = await space.submit(draft)
                nursery.start_soon(note, number, ticket)
                if number % 7 == 0:
                    await ticket.wait()
                    await trio.sleep(0.002)
                number += 1
                while number - min(len(self.heard[name]), self.seen[name]) > AHEAD and not self.stopping:
                    await self.changed.wait()
        self.busy -= 1

    async def publish(self, url: str) -> None:
        """A durable topic, each epoch of one item."""
        async with dataspace.connect(url) as space, space.publish("t", durable=True, away=120) as topic:
            self._begin()
            while not self.stopping:
                await topic.send(self.published)
                self.published += 1
                await topic.advance(self.published)
                while self.published - len(self.followed) > AHEAD and not self.stopping:
                    await self.changed.wait()
                if self.published % 8 == 0:
                    await trio.sleep(0.02)
            await topic.flush()
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
        operations = [("send", Record("batch", number, at)) for at in range(3)]
        await space.request("stage", Map({"key": key, "operations": operations}))
        asked = {"keys": [key], "owner": "bulk", "client": "bulk", "sequence": number}
        await space.request("publish", Map(asked))

    async def wait_for_turn(self) -> None:
        """Returns when one more turn has been acknowledged."""
        before = self.statistics()["turns"]
        while self.statistics()["turns"] == before:
            await self.changed.wait()

    async def weigh(self) -> None:
        """Facts that stay."""
        async with dataspace.connect(self.url, owner="ballast") as space, space.turn() as draft:
            for number in range(BALLAST):
                draft.assert_(Record("ballast", number))

    # -- who observes ---------------------------------------------------------------------------------

    async def observe(
        self, url: str, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """What is said, what holds, and who is there, as a durable observer is told it."""
        async with dataspace.connect(url) as space, trio.open_nursery() as nursery:
            await nursery.start(self._hear, space)
            nursery.start_soon(self._see, space)
            nursery.start_soon(self._watch, space)
            task_status.started()

    async def _hear(self, space: dataspace.RemoteSpace, *, task_status: trio.TaskStatus[None]) -> None:
        async with space.observe("counted($name, $n)", **_AS_A_READER) as seen:
            await seen.next_epoch()  # the state, after which nothing that is said is missed
            task_status.started()
            async for epoch in seen.epochs():
                self._reach("hear", epoch)
                for name, number in epoch.messages:
                    assert isinstance(name, str) and isinstance(number, int)
                    assert number == len(self.heard[name]), (
                        f"{name}: {number} in epoch {epoch.number} after {self.heard[name][-1:]}"
                    )
                    self.heard[name].append((number, epoch.number))
                self._tell()

    async def _see(self, space: dataspace.RemoteSpace) -> None:
        async with space.observe("count($name, $n)", **_AS_A_READER) as seen:
            async for epoch in seen.epochs():
                self._reach("see", epoch)
                for name, number in epoch.added:
                    self.state[str(name)].add(number)  # type: ignore[arg-type]  # a number
                    self.seen[str(name)] = number  # type: ignore[assignment]  # as above
                for name, number in epoch.removed:
                    self.state[str(name)].remove(number)  # type: ignore[arg-type]  # as above
                assert all(len(each) == 1 for each in self.state.values()), "a fact blinked, or doubled"
                self._tell()

    async def _watch(self, space: dataspace.RemoteSpace) -> None:
        async with space.observe("present($k, $who)", **_AS_A_READER) as seen:
            async for epoch in seen.epochs():
                self._reach("watch", epoch)
                for key in {row[0] for row in (*epoch.added, *epoch.removed)}:
                    came = frozenset(who for at, who in epoch.added if at == key)
                    went = frozenset(who for at, who in epoch.removed if at == key)
                    self.present[key].append((epoch.number, came, went))  # type: ignore[index]  # a number
                self._tell()

    def _reach(self, who: str, epoch: EpochChanges) -> None:
        """One of the observers has come to an epoch, and nothing before it was left out."""
        assert epoch.first == epoch.number or epoch.progress, f"{who}: {epoch.first} to {epoch.number} in one"
        self.reached[who] = epoch.number

    async def acknowledge(self) -> None:
        """Lets what all observers have been told go from the log, again and again."""
        async with dataspace.connect(self.url) as space:
            self.connected += 1
            while not self.stopping:
                await trio.sleep(0.5)
                if len(self.reached) == 3:
                    asked = Map({"reader": "observers", "epoch": min(self.reached.values())})
                    with contextlib.suppress(Broken):
                        await space.request("acknowledge", asked)

    async def follow(self, url: str) -> None:
        """The topic, epoch by epoch."""
        async with dataspace.connect(url) as space, space.subscribe("t", as_of=0, timeout=60) as epochs:
            self.connected += 1
            async for epoch in epochs:
                assert epoch.time == len(self.followed), f"epoch {epoch.time} after {len(self.followed)}"
                assert (epoch.items, epoch.crashed) == ((epoch.time,), "")
                self.followed.append(len(self.followed))
                self._tell()

    def _tell(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    async def wait_for(self, key: int, count: int) -> None:
        """Returns when the observer was told of so many changes of ``present(key, …)``."""
        while len(self.present[key]) < count:
            await self.changed.wait()

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
        self._tell()
        while self.busy:  # noqa: ASYNC110  # several tasks, each of which may be the last
            await trio.sleep(0.05)
        while len(self.followed) < self.published or any(
            len(self.heard[name]) < len(accepted) for name, accepted in self.accepted.items()
        ):
            await self.changed.wait()

    def left(self) -> str:
        """What has not come to an end."""
        heard = {name: (len(accepted), len(self.heard[name])) for name, accepted in self.accepted.items()}
        return (
            f"{self.busy} busy; turns accepted and heard {heard}; {self.published} epochs published,"
            f" {len(self.followed)} followed; observers at {self.reached}"
        )

    def check(self) -> None:
        """What was acknowledged is what there is, once, in order; the topic's past is all there."""
        for name, accepted in self.accepted.items():
            assert sorted(accepted) == list(range(len(accepted)))
            assert self.heard[name] == [(n, accepted[n]) for n in range(len(accepted))], name
        with BulkClient(self.url) as link:
            known = topic_frontier(link, "t")
            told = list(topic_epochs(link, "t", id=known.id, after=0, upto=known.completed))
            assert [(each.number, each.time, each.items, each.crashed) for each in told] == [
                (n + 1, n, (n,), "") for n in range(self.published)
            ]

    def statistics(self) -> dict[str, int]:
        """How much was done."""
        turns = sum(len(each) for each in self.accepted.values())
        return {"turns": turns, "topic epochs": self.published, "batches": self.batches}
