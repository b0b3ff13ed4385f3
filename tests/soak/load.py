"""What a soak puts a daemon under: a bit of everything, steadily, and clients that come, go and are killed.

Always: the pace is given, so that a slow machine does less at once and not more later; everybody ends when
the soak does.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from itertools import count
from typing import Any, Final

import trio

import dataspace
from dataspace import Record
from dataspace.errors import Broken, Refused
from tests.server.proxies import Proxy

WRITERS: Final = 3
OBSERVERS: Final = 8
KEYS: Final = 200
"""Facts that one writer holds: it replaces one of them with each turn."""

RULE: Final = "hot($who, $key) <- level($who, $key, $value), $value > 900."

DIES: Final = """
import sys, time
import dataspace
with dataspace.connect_blocking(sys.argv[1]) as space:
    for number in range(50):
        space.assert_(dataspace.Record("doomed", number))
    print("here", flush=True)
    time.sleep(600)
"""
"""A client that is killed."""


class Load:
    """Everybody who is busy with the daemon at one address."""

    def __init__(self, url: str, proxy: Proxy, seed: int) -> None:
        self.url = url
        self.proxy = proxy
        self.random = random.Random(seed)
        self.done: Counter[str] = Counter()
        """How much of each kind was done."""
        self.held: dict[int, dict[int, int]] = {}
        """By writer, the value of each key, as acknowledged."""
        self.stopping = trio.Event()

    async def run(self) -> None:
        """Runs until ``stopping`` is set; returns when what was sent is acknowledged."""
        async with trio.open_nursery() as nursery:
            async with dataspace.connect(self.url, owner="rules") as space:
                await space.assert_(Record("rule", "hot", RULE))
            for number in range(WRITERS):
                nursery.start_soon(self._write, number)
            async with trio.open_nursery() as passing:
                for number in range(OBSERVERS):
                    passing.start_soon(self._observe, number)
                for each in (self._lease, self._follow, self._ask, self._come_and_go, self._cut, self._kill):
                    passing.start_soon(each)
                passing.start_soon(self._publish)
                await self.stopping.wait()
                passing.cancel_scope.cancel()

    async def _write(self, number: int) -> None:
        """Replaces one of its facts with each turn, and says so."""
        held = self.held[number] = {}
        async with dataspace.connect(self.url, owner=f"writer-{number}") as space:
            while not self.stopping.is_set():
                key, value = self.random.randrange(KEYS), self.random.randrange(1000)
                draft = space.draft()
                if key in held:
                    draft.retract(key + 1)
                draft.assert_(Record("level", number, key, value), handle=key + 1)
                draft.send(Record("changed", number, key))
                await space.commit(draft)
                held[key] = value
                self.done["turns"] += 1
                await trio.sleep(0.02)

    async def _observe(self, number: int) -> None:
        """Observes for a while, by a link that may be cut, and then begins anew."""
        policy: Any = ("conflate", "wait")[number % 2]
        while True:
            with suppress(Broken, Refused):
                async with dataspace.connect(self.proxy.url, grace=5.0) as space:
                    pattern = ("level($who, $key, $value)", "hot($who, $key)", "changed($who, $key)")[
                        number % 3
                    ]
                    async with space.observe(pattern, policy=policy, quiet=number % 4 == 0) as seen:
                        with trio.move_on_after(5 + self.random.random() * 10):
                            async for epoch in seen.epochs():
                                self.done["changes"] += len(epoch.added) + len(epoch.removed)
            await trio.sleep(0.05)

    async def _lease(self) -> None:
        """Holds a lease, renews it, and lets it end."""
        for number in count():
            with suppress(Broken, Refused):
                async with dataspace.connect(self.url, owner=f"lease-{number % 5}", lease=2.0) as space:
                    await space.assert_(Record("leased", number))
                    await trio.sleep(1.5)
                self.done["leases"] += 1

    async def _publish(self) -> None:
        """A durable topic, a time after the other."""
        async with (
            dataspace.connect(self.url) as space,
            space.publish("soaked", durable=True, age=30.0) as topic,
        ):
            for number in count(1):
                await topic.send(f"item {number}")
                await topic.advance(number)
                self.done["times"] += 1
                await trio.sleep(0.05)

    async def _follow(self) -> None:
        """Takes what is published, for a while each."""
        while True:
            with suppress(Broken, Refused), trio.move_on_after(10):
                async with (
                    dataspace.connect(self.url) as space,
                    space.subscribe("soaked", timeout=5.0) as epochs,
                ):
                    async for _ in epochs:
                        self.done["epochs of the topic"] += 1

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
            process = await trio.lowlevel.open_process(
                [sys.executable, "-c", DIES, self.url], stdout=subprocess.PIPE
            )
            try:
                assert process.stdout is not None  # a pipe, as asked for
                await process.stdout.receive_some()
                await trio.sleep(2)
            finally:
                process.send_signal(signal.SIGKILL)
                with trio.CancelScope(shield=True):
                    await process.wait()
            self.done["kills"] += 1
