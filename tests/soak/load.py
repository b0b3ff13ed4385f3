"""What a soak puts a daemon under: a bit of everything, steadily, and clients that come, go and are killed.

What came of it is noted in a history, a new one for each round.

Always: the pace is given, so that a slow machine does less at once and not more later; everybody ends when
the round does.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from time import time_ns
from typing import Final

import trio

import dataspace
from dataspace import Record
from dataspace.errors import Broken, Closed, Refused, Unreachable
from tests.guarantees.history import Term
from tests.guarantees.notes import Notes
from tests.model.topics import Seen, Sent, TopicHistory
from tests.server.proxies import Proxy

WRITERS: Final = 3
OBSERVERS: Final = 8
KEYS: Final = 200
"""Facts that one writer holds: it replaces one of them with each turn."""

LEASE: Final = 2.0
"""Seconds for which leases are granted."""

TOPIC: Final = "soaked"
TOPIC_AGE: Final = 30.0
"""Seconds for which an epoch of the topic is kept."""

DOOMED: Final = 50
"""Facts of each client that is killed."""

PATTERNS: Final = ("level($who, $key, $value)", "hot($who, $key)", "changed($who, $key)")

RULE: Final = "hot($who, $key) <- level($who, $key, $value), $value > 900."

DIES: Final = """
import sys, time
import dataspace
with dataspace.connect_blocking(sys.argv[1]) as space:
    with space.turn() as draft:
        for number in range(int(sys.argv[3])):
            draft.assert_(dataspace.Record("doomed", int(sys.argv[2]), number))
    print("here", flush=True)
    time.sleep(600)
"""
"""A client that is killed."""


class Load:
    """Everybody who is busy with the daemon at one address."""

    def __init__(self, url: str, proxy: Proxy, seed: int, directory: Path) -> None:
        self.notes: Final = Notes(directory)
        self.notes.history.topics[TOPIC] = TopicHistory()
        self.url = url
        self.proxy = proxy
        self.random = random.Random(seed)
        self.done: Counter[str] = Counter()
        """How much of each kind was done."""
        self._held: dict[int, set[int]] = {number: set() for number in range(WRITERS)}
        """By writer, the keys of the facts that it holds."""
        self._numbers = count()
        self._stopping = False

    async def add_rule(self) -> None:
        """Adds the rule, which stays."""
        async with dataspace.connect(self.url, owner="rules", client="owner:rules") as space:
            draft = space.draft()
            draft.assert_(Record("rule", "hot", RULE))
            await self.notes.note_turn("owner:rules", await space.submit(draft))

    async def run(self, seconds: float) -> None:
        """Runs one round; returns when all that was sent is answered and noted, and nobody is left."""
        self._stopping = False
        async with trio.open_nursery() as nursery:
            for number in range(WRITERS):
                nursery.start_soon(self._write, number)
            nursery.start_soon(self._publish)
            nursery.start_soon(self._keep_up)
            async with trio.open_nursery() as passing:
                for number in range(OBSERVERS):
                    passing.start_soon(self._pass, self._observe, number)
                for each in (self._lease, self._follow, self._ask, self._come_and_go, self._cut, self._kill):
                    passing.start_soon(self._pass, each)
                await trio.sleep(seconds)
                self._stopping = True
                passing.cancel_scope.cancel()
        await self._look()
        await self._read()

    async def _pass(self, work: Callable[..., Awaitable[None]], *args: object) -> None:
        """Does some work until the round ends, when its connection may be closed under it."""
        try:
            await work(*args)
        except* Closed:  # perhaps beside the cancellation of its connection
            if not self._stopping:
                raise

    async def _keep_up(self) -> None:
        """Notes what is on disk before retention deletes it."""
        while not self._stopping:
            await self._read()
            await trio.sleep(TOPIC_AGE / 10)

    async def _read(self) -> None:
        await trio.to_thread.run_sync(self.notes.read_log)
        with suppress(Refused):  # there is no topic yet
            await trio.to_thread.run_sync(self.notes.read_topic, self.url, TOPIC)

    async def _look(self) -> None:
        """Waits until all that sessions held has gone that have ended, and notes what there is."""
        async with dataspace.connect(self.url) as space:
            with trio.move_on_after(10):  # what is left then is in the history
                while await self._left(space):  # noqa: ASYNC110  # any of them may be the last
                    await trio.sleep(0.1)
            async with trio.open_nursery() as nursery:
                for pattern in (*PATTERNS, "doomed($k, $n)", "guest($n)"):
                    await nursery.start(self.notes.observe, space, pattern)
                await self.notes.wait_shown()
                nursery.cancel_scope.cancel()

    async def _left(self, space: dataspace.RemoteSpace) -> int:
        """Returns how many facts there are of clients that have gone."""
        return len(await space.matches("doomed($k, $n)")) + len(await space.matches("guest($n)"))

    async def _write(self, number: int) -> None:
        """Replaces one of its facts with each turn, and says so."""
        held = self._held[number]
        owner = f"writer-{number}"
        async with dataspace.connect(self.url, owner=owner, client=f"owner:{owner}") as space:
            while not self._stopping:
                key, value = self.random.randrange(KEYS), self.random.randrange(1000)
                draft = space.draft()
                if key in held:
                    draft.retract(key + 1)
                draft.assert_(Record("level", number, key, value), handle=key + 1)
                draft.send(Record("changed", number, key))
                await self.notes.note_turn(f"owner:writer-{number}", await space.submit(draft))
                held.add(key)
                self.done["turns"] += 1
                await trio.sleep(0.02)

    async def _observe(self, number: int) -> None:
        """Observes for a while, by a link that may be cut, and then begins anew."""
        pattern = PATTERNS[number % 3]
        while True:
            with suppress(Broken, Refused):
                async with dataspace.connect(self.proxy.url, grace=5.0) as space:
                    with trio.move_on_after(5 + self.random.random() * 10):
                        if number % 2:
                            name = f"{number}, {next(self._numbers)}"
                            await self.notes.observe(space, pattern, name)
                        else:
                            await self._take(space, pattern, quiet=number % 4 == 0)
            await trio.sleep(0.05)

    async def _take(self, space: dataspace.RemoteSpace, pattern: str, *, quiet: bool) -> None:
        """Observes with the policy ``conflate``, whose epochs are not those of the log."""
        async with space.observe(pattern, policy="conflate", quiet=quiet) as seen:
            async for epoch in seen.epochs():
                self.done["changes"] += len(epoch.added) + len(epoch.removed)

    async def _lease(self) -> None:
        """Holds a lease and gives it back, or vanishes with it."""
        while True:
            number, proxy = next(self._numbers), Proxy(self.url)
            asked = time_ns() // 1000
            async with trio.open_nursery() as nursery:
                await nursery.start(proxy.run)
                name = f"lease-{number}"
                with suppress(Broken, Closed, Unreachable):
                    async with dataspace.connect(proxy.url, lease=LEASE, name=name, reconnect=False) as space:
                        await space.assert_(Record("leased", number))
                        if number % 2:
                            proxy.cut()
                            self.notes.history.terms.append(Term(name, asked + round(LEASE * 1_000_000)))
                        else:
                            await trio.sleep(LEASE * 0.75)
                nursery.cancel_scope.cancel()
            self.done["leases"] += 1
            await trio.sleep(LEASE / 4)

    async def _publish(self) -> None:
        """A durable topic, a time after the other."""
        history = self.notes.history.topics[TOPIC]
        async with (
            dataspace.connect(self.url) as space,
            space.publish(TOPIC, durable=True, age=TOPIC_AGE) as topic,
        ):
            time = topic.time
            assert isinstance(time, int)  # it has one dimension
            while not self._stopping:
                item = f"item {next(self._numbers)}"
                history.sent.append(sent := Sent("publisher", 0, time, (item,)))
                await topic.send(item)
                await topic.advance(time := time + 1)
                await topic.flush()
                sent.is_taken = True
                self.done["times"] += 1
                await trio.sleep(0.05)

    async def _follow(self) -> None:
        """Takes what is published, for a while each."""
        history = self.notes.history.topics[TOPIC]
        while True:
            with suppress(Broken, Refused), trio.move_on_after(10):
                async with (
                    dataspace.connect(self.url) as space,
                    space.subscribe(TOPIC, timeout=5.0) as epochs,
                ):
                    seen = history.seen[f"follower {next(self._numbers)}"] = Seen(is_all=False)
                    async for epoch in epochs:
                        seen.epochs.append(epoch)
                        self.done["epochs of the topic"] += 1
            await trio.sleep(0.05)

    async def _ask(self) -> None:
        """Queries, looks into the past, and asks about the daemon."""
        async with dataspace.connect(self.url) as space:
            while True:
                await space.query("level($who, $key, $value), $value > 990")
                now = await space.sync()
                async with space.observe("changed($who, $key)", after=max(0, now - 50), upto=now) as past:
                    async for _ in past.epochs():
                        pass
                for verb in ("status", "sessions"):
                    await space.request(verb, dataspace.Map())
                self.done["queries"] += 1
                await trio.sleep(0.2)

    async def _come_and_go(self) -> None:
        """Connects, says something, and disconnects."""
        while True:
            async with dataspace.connect(self.url) as space:
                await space.assert_(Record("guest", self.random.random()))
            self.done["visits"] += 1
            await trio.sleep(0.1)

    async def _cut(self) -> None:
        """Has links of observers end in the midst."""
        while True:
            await trio.sleep(1)
            if len(self.proxy.cuts) < 2:
                self.proxy.cuts.append((1 << 20, self.random.randint(2_000, 200_000)))
                self.done["cuts"] += 1

    async def _kill(self) -> None:
        """Kills a client, again and again."""
        while True:
            number = next(self._numbers)
            command = [sys.executable, "-c", DIES, self.url, str(number), str(DOOMED)]
            process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE)
            is_there = False
            try:
                assert process.stdout is not None  # a pipe, as asked for
                is_there = bool(await process.stdout.receive_some())
                await trio.sleep(2)
            finally:
                process.send_signal(signal.SIGKILL)
                if is_there:
                    ended = frozenset(Record("doomed", number, each) for each in range(DOOMED))
                    self.notes.history.ended.append(ended)
                with trio.CancelScope(shield=True):
                    await process.wait()
            self.done["kills"] += 1
