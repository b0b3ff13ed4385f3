"""All features in one space of one daemon after the other: each keeps its promise, whatever the others do.

Owners of each kind put the fact ``x(OWNER, ROUND)`` in place of the one before.  Rules, an actor, observers,
a page and a follower go on from these facts; messages are jobs of a group, and items of a topic are
published.  After the first round the leader is drained, and its stand-by leads; after the second one that is
killed, and started again.

Always: a feature is noted in ``acted`` once its promise was seen to hold.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import trio

import dataspace
from dataspace import ConnectionChange, Record, absent
from dataspace.actors.engine.turns import Turn
from dataspace.client.bulk.client import BulkClient
from dataspace.errors import DeliveryLost, ExpectationFailed
from index.values.jsons import to_json
from index.values.values import Map, Value
from server.cli.main import main
from tests.server.web.routes.callers import EventSource, HttpDaemon

SOON: Final = 900
"""Seconds after which something hangs."""
MESSAGES: Final = 4
"""Of each round."""
PATTERN: Final = "x($who, $n)"
TEXTS: Final = (
    "y($who, $n) <- x($who, $n).",
    "lately($n) <- said($n) within 2 s.",
    "next(was($n)) <- lately($n). next(was($n)) <- was($n).",
    "next(seen($who, $n)) <- x($who, $n). next(seen($who, $n)) <- seen($who, $n).",
)
PAYLOAD: Final = "x" * 50_000
"""So that few facts are worth a snapshot, without which nothing is deleted."""
BULKS: Final = 40

Rows = set[tuple[Value, ...]]


def mirror(turn: Turn) -> None:
    """An actor that the daemons host: a fact for each of the others."""

    @turn.during(PATTERN)
    def reflect(turn: Turn, who: str, n: int) -> None:
        turn.assert_(Record("mirror", who, n))


class Crowd:
    """The daemons, the clients, and what must be there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        more = ("--actor", f"{__name__}:mirror", "--keep-for", "0s")
        data = folder / "data"
        self.first = HttpDaemon(data, *more)
        self.second = HttpDaemon(data, "--follow", str(data), "--stand-by", *more)
        self.leader = self.first
        self.acted: set[str] = set()
        self.round = 0
        self.jobs: list[int] = []
        self.watched: Rows = set()
        self._changed = trio.Event()
        self._claims: dict[str, dataspace.Claim] = {}
        self._anew: list[str] = []
        self._last = ""
        self._shown: Rows = set()

    @asynccontextmanager
    async def clients(self) -> AsyncIterator[None]:
        """Has clients of all kinds connected within the block."""
        self.spaces: dict[str, dataspace.RemoteSpace] = {}
        options: dict[str, dict[str, Any]] = {
            "durable": {"owner": "durable"},
            "session": {},
            "grace": {"grace": 600, "on_connection": self._hear},
            "lease": {"lease": 600, "name": "holder"},
            "watcher": {},
            "worker": {"owner": "worker"},
        }
        async with AsyncExitStack() as stack:
            for name, each in options.items():
                connecting = dataspace.connect([self.first.url, self.second.url], **each)
                self.spaces[name] = await stack.enter_async_context(connecting)
            for at, text in enumerate(TEXTS):
                await self.spaces["durable"].assert_(Record("rule", f"r{at}", text), owner="texts")
            async with trio.open_nursery() as nursery:
                await nursery.start(self._watch)
                await nursery.start(self._work)
                yield
                nursery.cancel_scope.cancel()

    def _hear(self, event: dataspace.ConnectionEvent) -> None:
        if event.change is ConnectionChange.ANEW:
            self._anew.append(event.reason)

    async def _watch(self, task_status: Any) -> None:
        async with self.spaces["watcher"].observe(PATTERN) as seen:
            task_status.started()
            async for epoch in seen.epochs():
                self.watched = (self.watched | set(epoch.added)) - set(epoch.removed)
                self._changed.set()
                self._changed = trio.Event()

    async def _work(self, task_status: Any) -> None:
        async with self.spaces["worker"].consume("said($n)", group="g", attempts=0) as jobs:
            task_status.started()
            async for job in jobs:
                try:
                    await job.done()
                except DeliveryLost:
                    continue  # it comes again
                self.jobs.append(int(str(job["n"])))
                self._changed.set()
                self._changed = trio.Event()

    # -- a round -------------------------------------------------------------------------------------

    @property
    def facts(self) -> Rows:
        """What each owner asserts in this round."""
        owners = ("durable", "session", "grace", "lease", "http", "publication")
        return {(name, self.round) for name in owners}

    async def act(self) -> None:
        """Has all owners and clients do what they do once."""
        self.round += 1
        for name in ("durable", "session", "grace", "lease"):
            space, fact = self.spaces[name], Record("x", name, self.round)
            before = self._claims.get(name)
            made = space.assert_(fact) if before is None else space.replace(before, fact)
            self._claims[name] = await made
        await self._post(Record("x", "http", self.round - 1), Record("x", "http", self.round))
        await self._publish("publication", self.round, Record("x", "publication", self.round))
        await self._expect()
        for number in range(MESSAGES):
            await self.spaces["session"].send(Record("said", self.round * MESSAGES + number))
        async with self.spaces["durable"].publish("t", durable=True) as topic:
            begun = topic.time
            assert isinstance(begun, int)
            await topic.finish(self.round, then=begun + 1)
            await topic.flush()

    async def _post(self, before: Record, after: Record) -> None:
        action = {"replace": to_json(before), "with": to_json(after)}
        if self.round == 1:
            action = {"assert": to_json(after)}
        answer = await trio.to_thread.run_sync(lambda: self.leader.turn(action, owner="http"))
        assert answer.status == 200, answer

    async def _publish(self, owner: str, sequence: int, fact: Record) -> None:
        key = (owner, str(sequence))
        space = self.spaces["durable"]
        await space.request("stage", Map({"key": key, "operations": (("assert", fact),)}))
        said = {"keys": (key,), "owner": owner, "client": owner, "sequence": sequence, "replace": True}
        await space.request("publish", Map(said))

    async def _expect(self) -> None:
        space = self.spaces["durable"]
        draft = space.draft(expect=[absent('x("nobody", _)')])
        draft.send(Record("expected", self.round))
        await space.commit(draft)
        draft = space.draft(expect=[absent('x("lease", _)')])
        draft.assert_(Record("x", "wrong", self.round))
        try:
            await space.commit(draft)
        except ExpectationFailed:
            self.acted.add("conditions")

    # -- what must hold ------------------------------------------------------------------------------

    async def judge(self) -> None:
        """Looks whether all promises hold after a round; those that take a while are waited for."""
        rounds = range(1, self.round + 1)
        owners = [str(who) for who, _ in self.facts]
        said: Rows = {(n,) for n in range(MESSAGES, (self.round + 1) * MESSAGES)}
        await self._stands(PATTERN, self.facts, "session", "durable", "lease", "http", "publication")
        await self._stands("y($who, $n)", self.facts, "rules")
        await self._stands("was($n)", said, "messages", waits=True)
        await self._stands("lately($n)", set(), "time", waits=True)
        await self._stands("seen($who, $n)", {(who, n) for who in owners for n in rounds}, "next", waits=True)
        await self._stands("mirror($who, $n)", self.facts, "actors", waits=True)
        await self._come(lambda: self.watched == self.facts, "observers")
        await self._come(lambda: {(n,) for n in self.jobs} == said, "groups")
        await trio.to_thread.run_sync(self._read_events)
        self.acted.add("events")
        epochs = self.spaces["durable"].completed("t", after=0)
        items = [item async for epoch in epochs for item in epoch.items]
        assert items == list(rounds), items
        self.acted.add("topics")

    async def _stands(self, pattern: str, rows: Rows, *features: str, waits: bool = False) -> None:
        space = self.spaces["watcher"]
        found = set(await space.matches(pattern))
        while waits and found != rows:
            await trio.sleep(0.05)
            found = set(await space.matches(pattern))
        assert found == rows, (self.round, pattern, found ^ rows)
        self.acted.update(features)

    async def _come(self, is_so: Callable[[], bool], feature: str) -> None:
        while not is_so():
            await self._changed.wait()
        self.acted.add(feature)

    def _read_events(self) -> None:
        """Goes on with a page from its last event until it shows what there is."""
        shown = self._shown
        source = EventSource(self.leader, PATTERN, last=self._last)
        assert source.status == 200, source.status
        try:
            for event in source:
                if event.data.get("state"):
                    shown = set()
                shown |= {(each["who"], each["n"]) for each in event.data.get("added", ())}
                shown -= {(each["who"], each["n"]) for each in event.data.get("removed", ())}
                self._last = event.id
                if shown == self.facts:
                    break
        finally:
            source.close()
        self._shown = shown

    # -- what befalls the daemons --------------------------------------------------------------------

    async def _leads(self) -> None:
        while not (await self.spaces["watcher"].status())["leads"]:  # noqa: ASYNC110  # another process does
            await trio.sleep(0.05)

    async def follow(self) -> None:
        """Reads what the stand-by shows."""
        async with dataspace.connect(self.second.url, read="any") as reader:
            while set(await reader.matches(PATTERN)) != self.facts:  # noqa: ASYNC110  # as above
                await trio.sleep(0.05)
        self.acted.add("follower")

    async def drain(self) -> None:
        """Drains the leader, after which the stand-by leads."""
        command = ["drain", "--url", self.first.url, "--within", "0s"]
        assert await trio.to_thread.run_sync(main, command) == 0
        assert await trio.to_thread.run_sync(self.first.wait) == 0
        self.acted.add("drain")
        self.leader = self.second
        await self._leads()
        self.acted.add("take-over")

    async def restart(self) -> None:
        """Kills the daemon and starts it again."""
        await trio.to_thread.run_sync(self.leader.kill)
        await trio.to_thread.run_sync(self.leader.start)
        await self._leads()
        assert not self._anew, self._anew
        self.acted |= {"restart", "grace"}

    async def forget(self) -> None:
        """Publishes until the daemon has deleted the past."""
        for number in range(1, BULKS):
            await self._publish("heap", number, Record("heap", number, PAYLOAD))
        await trio.to_thread.run_sync(self._wait_deleted)
        self.acted.add("retention")

    def _wait_deleted(self) -> None:
        with BulkClient(self.leader.url) as link:
            while link.frontier().oldest <= 1:
                pass

    async def archive(self) -> None:
        """Archives what is left of the past, beside the daemon, and verifies it."""
        place = str(self.folder / "archive")
        for command in (
            ["log", "archive", place, "--data", str(self.first.data), "--quiet"],
            ["log", "verify", "--archive", place],
        ):
            assert await trio.to_thread.run_sync(main, command) == 0
        self.acted.add("archive")
