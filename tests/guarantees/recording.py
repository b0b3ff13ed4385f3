"""Recording: clients at work on a real daemon, which is killed and whose links are cut, and what came of it.

Two durable writers claim facts of their own and facts that both claim, and send messages; sessions come and
are broken off; a lease is not renewed.  Two observers see it all, one of them through links that are cut.

Always: what is recorded is what the clients themselves were told, and the log as its reader reads it.
"""

from __future__ import annotations

import contextlib
import random
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

import dataspace
from dataspace import Record, absent
from dataspace.errors import Broken, Closed, Refused, Unreachable
from dataspace.kernel.epoch_changes import EpochChanges
from index.patterns.text import parse_pattern
from relay.log.reader import LogReader, verify
from tests.guarantees.history import History, Shown, Term, Turn, View
from tests.server.processes import DaemonProcess
from tests.server.proxies import Proxy

OBSERVED: Final = {
    "busy($who, $n)": "near",
    "borrowed($n)": "near",
    "shared($k)": "far",
    "said($who, $n)": "far",
}
"""Patterns, and whether their observer has a link of its own or one that is cut."""

LEASE: Final = 0.4
"""Seconds for which a lease is granted."""

BROKEN_OFF: Final = 3
"""Sessions that are broken off."""

FACTS: Final = 3
"""Facts of each of them."""

_DURABLE: Final[Any] = {"durable": True, "quiet": True, "policy": "wait", "progress": True}


class Recording:
    """One run; ``history`` is whole after ``run``."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.history = History()
        self._directory = directory
        self._daemon = DaemonProcess(directory)
        self._random = random.Random(seed)
        self._last = 0
        self._changed = trio.Event()

    async def run(self, kills: int, turns: int) -> History:
        """Has each writer make so many turns, and kills the daemon so many times meanwhile."""
        await trio.to_thread.run_sync(self._daemon.start)
        proxy = Proxy(self._daemon.url)
        async with trio.open_nursery() as nursery:
            await nursery.start(proxy.run)
            urls = {"near": self._daemon.url, "far": proxy.url}
            for pattern, place in OBSERVED.items():
                await nursery.start(self._observe, urls[place], pattern)
            async with trio.open_nursery() as writers:
                writers.start_soon(self._write, urls["near"], "Alice", turns)
                writers.start_soon(self._write, urls["far"], "Bob", turns)
                writers.start_soon(self._break_off)
                for number in range(kills):
                    await trio.sleep(self._random.uniform(0.05, 0.3))
                    proxy.cuts.append((self._random.randint(300, 4_000), self._random.randint(300, 9_000)))
                    proxy.cut()
                    await trio.to_thread.run_sync(self._daemon.kill)
                    await trio.to_thread.run_sync(self._daemon.start)
                    await self._borrow(number)
            with trio.fail_after(60):
                while sum(len(each.removed) for each in self.history.views["borrowed($n)"].epochs) < kills:
                    await self._changed.wait()
                await self._mark(urls["near"])
                while any(view.upto < self._last for view in self.history.views.values()):
                    await self._changed.wait()
            nursery.cancel_scope.cancel()
        assert await trio.to_thread.run_sync(self._daemon.stop) == 0
        self._read_log()
        return self.history

    def _read_log(self) -> None:
        assert verify(self._directory).damages == ()
        reader = LogReader.open(self._directory)
        try:
            self.history.log = list(reader.read(0))
        finally:
            reader.close()

    async def _write(self, url: str, name: str, turns: int) -> None:
        """Turns that replace a fact, claim and leave what others claim, and send; some that are refused."""
        async with dataspace.connect(url, owner=name) as space, trio.open_nursery() as nursery:
            mine: dataspace.Claim | None = None
            held: list[dataspace.Claim] = []
            for number in range(turns):
                draft = space.draft()
                if held and self._random.random() < 0.5:
                    draft.retract(held.pop(0))
                if number % 4 == 3 or self._random.random() < 0.3:
                    held.append(draft.assert_(Record("shared", self._random.randrange(3))))
                if number % 4 != 3:
                    fact = Record("busy", name, number)
                    mine = draft.assert_(fact) if mine is None else draft.replace(mine, fact)
                    draft.send(Record("said", name, number))
                nursery.start_soon(self._note, f"owner:{name}", await space.submit(draft))
                if number % 10 == 2:  # also of another owner, if nothing has come in between
                    both = space.draft(expect=[absent(Record("taken", number, Record("_")))])
                    both.assert_(Record("taken", number, name))
                    both.assert_(Record("lent", number, name), owner=f"{name}'s store")
                    nursery.start_soon(self._note, f"owner:{name}", await space.submit(both))
                if number % 10 == 5:
                    wrong = space.draft()
                    wrong.send(Record("never", name, number))
                    wrong.retract(1)
                    nursery.start_soon(self._note, f"owner:{name}", await space.submit(wrong))
                await trio.sleep(0.004)

    async def _note(self, client: str, ticket: dataspace.Ticket) -> None:
        try:
            answer: int | str = await ticket.wait()
            self._last = max(self._last, int(answer))
        except Refused as refusal:
            answer = refusal.code
        self.history.turns.append(Turn.of(client, ticket, answer))

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

    async def _observe(
        self, url: str, pattern: str, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        async with dataspace.connect(url) as space, space.observe(pattern, **_DURABLE) as seen:
            view = self.history.views[pattern] = View(parse_pattern(pattern))
            async for epoch in seen.epochs():
                if not epoch.progress:
                    view.epochs.append(shown(epoch))
                    if epoch.snapshot:
                        task_status.started()
                view.upto = epoch.number
                self._changed.set()
                self._changed = trio.Event()

    async def _mark(self, url: str) -> None:
        """One more turn, after which all that was answered has been shown."""
        async with dataspace.connect(url, owner="mark") as space:
            await self._note("owner:mark", await space.submit(_marked(space.draft())))


def _marked(draft: dataspace.Draft) -> dataspace.Draft:
    draft.send(Record("said", "nobody", 0))
    return draft


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


def record(directory: Path, seed: int, *, kills: int, turns: int) -> History:
    """Returns the history of one run, in a trio loop of its own."""
    return trio.run(partial(Recording(directory, seed).run, kills, turns))
