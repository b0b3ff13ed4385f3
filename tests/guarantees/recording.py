"""Recording: clients at work on a real daemon, which is killed and whose links are cut, and what came of it.

Beside what all ``Clients`` do, sessions come and are broken off, and a lease is not renewed.  Observers see
it all, some of them through links that are cut.

Always: as ``notes``.
"""

from __future__ import annotations

import contextlib
import time
from functools import partial
from pathlib import Path
from typing import Final

import trio

import dataspace
from dataspace import Record
from dataspace.errors import Broken, Closed, Unreachable
from relay.log.reader import verify
from tests.guarantees.clients import TOPIC, Clients
from tests.guarantees.history import History, Term
from tests.guarantees.notes import Notes
from tests.server.processes import DaemonProcess
from tests.server.proxies import Proxy

OBSERVED: Final = {
    "busy($who, $n)": "near",
    "borrowed($n)": "near",
    "shared($k)": "far",
    "said($who, $n)": "far",
    "twice($k)": "far",
}
"""Patterns, and whether their observer has a link of its own or one that is cut."""

LEASE: Final = 0.4
"""Seconds for which a lease is granted."""

BROKEN_OFF: Final = 3
"""Sessions that are broken off."""

FACTS: Final = 3
"""Facts of each of them."""


class Recording(Clients):
    """One run; ``history`` is whole after ``run``."""

    def __init__(self, directory: Path, seed: int) -> None:
        super().__init__(Notes(directory), seed)
        self._directory = directory
        self._daemon = DaemonProcess(directory)

    async def run(self, kills: int, turns: int) -> History:
        """Has each writer make so many turns, and kills the daemon so many times meanwhile."""
        await trio.to_thread.run_sync(self._daemon.start)
        proxy = Proxy(self._daemon.url)
        async with trio.open_nursery() as nursery:
            await nursery.start(proxy.run)
            urls = {"near": self._daemon.url, "far": proxy.url}
            await self.add_rule(urls["near"])
            for pattern, place in OBSERVED.items():
                await nursery.start(self.observe, urls[place], pattern)
            async with trio.open_nursery() as passing:
                passing.start_soon(self.publish, urls["near"])
                passing.start_soon(self.follow, urls["far"])
                for each in ("Alice", "Bob"):
                    passing.start_soon(self.lock, urls["near"], each)
                for place in ("near", "far"):
                    passing.start_soon(self.keep, urls[place], place)
                async with trio.open_nursery() as writers:
                    writers.start_soon(self.write, urls["near"], "Alice", turns)
                    writers.start_soon(self.write, urls["far"], "Bob", turns)
                    writers.start_soon(self._break_off)
                    for number in range(kills):
                        await trio.sleep(self.random.uniform(0.05, 0.3))
                        proxy.cuts.append((self.random.randint(300, 4_000), self.random.randint(300, 9_000)))
                        proxy.cut()
                        await trio.to_thread.run_sync(self._daemon.kill)
                        await trio.to_thread.run_sync(self._daemon.start)
                        await self._borrow(number)
                with trio.fail_after(60):
                    while (
                        len(self.history.topics[TOPIC].seen["far"].epochs) < kills
                        or len(self.history.lock.grants) < 3
                        or not all(session.returns for session in self.history.graced)
                    ):
                        await self.notes.wait_changed()
                passing.cancel_scope.cancel()
            with trio.fail_after(60):
                while sum(len(each.removed) for each in self.history.views["borrowed($n)"].epochs) < kills:
                    await self.notes.wait_changed()
                await self.mark(urls["near"])
                await self.notes.wait_shown()
            nursery.cancel_scope.cancel()
        await trio.to_thread.run_sync(self.notes.read_topic, self._daemon.url, TOPIC)
        assert await trio.to_thread.run_sync(self._daemon.stop) == 0
        assert verify(self._directory).damages == ()
        self.notes.read_log()
        return self.history

    async def _break_off(self) -> None:
        """Sessions whose links end without a goodbye."""
        number = 0
        while len(self.history.ended) < BROKEN_OFF:
            number += 1
            facts = [Record("held", number, at) for at in range(FACTS)]
            proxy = Proxy(self._daemon.url)
            async with trio.open_nursery() as nursery:
                await nursery.start(proxy.run)
                with contextlib.suppress(Broken, Closed, Unreachable):  # the daemon may be dead just now
                    async with dataspace.connect(proxy.url, reconnect=False) as space:
                        async with space.turn() as draft:
                            for fact in facts:
                                draft.assert_(fact)
                        self.history.ended.append(frozenset(facts))
                        proxy.cut()
                nursery.cancel_scope.cancel()

    async def _borrow(self, number: int) -> None:
        """A lease whose client vanishes once it holds a fact."""
        proxy = Proxy(self._daemon.url)
        asked = time.time_ns() // 1000
        async with trio.open_nursery() as nursery:
            await nursery.start(proxy.run)
            name = f"borrower{number}"
            async with dataspace.connect(proxy.url, lease=LEASE, name=name, reconnect=False) as space:
                await space.assert_(Record("borrowed", number))
                proxy.cut()
            nursery.cancel_scope.cancel()
        self.history.terms.append(Term(name, asked + round(LEASE * 1_000_000)))


def record(directory: Path, seed: int, *, kills: int, turns: int) -> History:
    """Returns the history of one run, in a trio loop of its own."""
    return trio.run(partial(Recording(directory, seed).run, kills, turns))
