"""Recording: clients at work on a real daemon, which is killed and whose links are cut, and what came of it.

Observers see all that ``Clients`` do, some of them through links that are cut.

Always: as ``notes``.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

import trio

from relay.log.reader import verify
from relay.space_registers import space_registers
from tests.guarantees.clients import TOPIC, Clients
from tests.guarantees.history import History
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
                with trio.fail_after(60):
                    while sum(len(session.facts) > 1 for session in self.history.graced) < 2:
                        await self.notes.wait_changed()
                async with trio.open_nursery() as writers:
                    writers.start_soon(self.write, urls["near"], "Alice", turns)
                    writers.start_soon(self.write, urls["far"], "Bob", turns)
                    writers.start_soon(self.break_off, lambda: self._daemon.url)
                    for number in range(kills):
                        await trio.sleep(self.random.uniform(0.05, 0.3))
                        proxy.cuts.append((self.random.randint(300, 4_000), self.random.randint(300, 9_000)))
                        proxy.cut()
                        await trio.to_thread.run_sync(self._daemon.kill)
                        await trio.to_thread.run_sync(self._daemon.start)
                        await self.borrow(self._daemon.url, number)
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
        assert verify(self._directory, space_registers).damages == ()
        self.notes.read_log()
        return self.history


def record(directory: Path, seed: int, *, kills: int, turns: int) -> History:
    """Returns the history of one run, in a trio loop of its own."""
    return trio.run(partial(Recording(directory, seed).run, kills, turns))
