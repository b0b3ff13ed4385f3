"""Recording: clients at work on a real daemon, which is killed and whose links are cut, and what came of it.

Two durable writers claim facts of their own and facts that both claim, and send messages; a rule derives
facts from theirs; sessions come and are broken off; a lease is not renewed; two clients want one lock; a
topic is published and read.  Observers see it all, some of them through links that are cut.

Always: as ``notes``.
"""

from __future__ import annotations

import contextlib
import random
import time
from functools import partial
from pathlib import Path
from typing import Final

import trio

import dataspace
from dataspace import Record, absent
from dataspace.errors import Broken, Closed, LockLost, Refused, Unreachable
from relay.log.reader import verify
from tests.guarantees.history import Graced, History, Term
from tests.guarantees.locks import Belief, Grant
from tests.guarantees.notes import Notes
from tests.guarantees.topics import Seen, Sent, TopicHistory
from tests.server.coordination.histories import now
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

RULE: Final = "twice($k) <- shared($k), busy($who, $n), $n > 2."

LEASE: Final = 0.4
"""Seconds for which a lease is granted."""

LOCK: Final = 0.5

GRACE: Final = 30.0

BROKEN_OFF: Final = 3
"""Sessions that are broken off."""

FACTS: Final = 3
"""Facts of each of them."""

CAME_BACK: Final = (dataspace.ConnectionChange.RESUMED, dataspace.ConnectionChange.ANEW)

TOPIC: Final = "news"


class Recording:
    """One run; ``history`` is whole after ``run``."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._directory = directory
        self._notes = Notes(directory)
        self.history: Final = self._notes.history
        self._daemon = DaemonProcess(directory)
        self._random = random.Random(seed)

    async def run(self, kills: int, turns: int) -> History:
        """Has each writer make so many turns, and kills the daemon so many times meanwhile."""
        await trio.to_thread.run_sync(self._daemon.start)
        proxy = Proxy(self._daemon.url)
        async with trio.open_nursery() as nursery:
            await nursery.start(proxy.run)
            urls = {"near": self._daemon.url, "far": proxy.url}
            await self._add_rule(urls["near"])
            for pattern, place in OBSERVED.items():
                await nursery.start(self._observe, urls[place], pattern)
            async with trio.open_nursery() as passing:
                passing.start_soon(self._publish, urls["near"])
                passing.start_soon(self._follow, urls["far"])
                for each in ("Alice", "Bob"):
                    passing.start_soon(self._lock, urls["near"], each)
                for place in ("near", "far"):
                    passing.start_soon(self._keep, urls[place], place)
                async with trio.open_nursery() as writers:
                    writers.start_soon(self._write, urls["near"], "Alice", turns)
                    writers.start_soon(self._write, urls["far"], "Bob", turns)
                    writers.start_soon(self._break_off)
                    for number in range(kills):
                        await trio.sleep(self._random.uniform(0.05, 0.3))
                        proxy.cuts.append(
                            (self._random.randint(300, 4_000), self._random.randint(300, 9_000))
                        )
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
                        await self._notes.wait_changed()
                passing.cancel_scope.cancel()
            with trio.fail_after(60):
                while sum(len(each.removed) for each in self.history.views["borrowed($n)"].epochs) < kills:
                    await self._notes.wait_changed()
                await self._mark(urls["near"])
                await self._notes.wait_shown()
            nursery.cancel_scope.cancel()
        await trio.to_thread.run_sync(self._notes.read_topic, self._daemon.url, TOPIC)
        assert await trio.to_thread.run_sync(self._daemon.stop) == 0
        assert verify(self._directory).damages == ()
        self._notes.read_log()
        return self.history

    async def _add_rule(self, url: str) -> None:
        async with dataspace.connect(url, owner="rules") as space:
            draft = space.draft()
            draft.assert_(Record("rule", "twice", RULE))
            await self._notes.note_turn("owner:rules", await space.submit(draft))

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
                if number % 10 == 7:  # begun and ended in one turn
                    draft.retract(draft.assert_(Record("passing", name, number)))
                nursery.start_soon(self._notes.note_turn, f"owner:{name}", await space.submit(draft))
                if number % 10 == 2:  # also of another owner, if nothing has come in between
                    both = space.draft(expect=[absent(Record("taken", number, Record("_")))])
                    both.assert_(Record("taken", number, name))
                    both.assert_(Record("lent", number, name), owner=f"{name}'s store")
                    nursery.start_soon(self._notes.note_turn, f"owner:{name}", await space.submit(both))
                if number % 10 == 5:
                    wrong = space.draft()
                    wrong.send(Record("never", name, number))
                    wrong.retract(1)
                    nursery.start_soon(self._notes.note_turn, f"owner:{name}", await space.submit(wrong))
                await trio.sleep(0.004)

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

    async def _keep(self, url: str, name: str) -> None:
        """A session with grace, which outlives the daemon: it puts one fact in the place of the other."""
        session, answered = Graced(name, GRACE), time.monotonic()
        self.history.graced.append(session)

        def hear(event: dataspace.ConnectionEvent) -> None:
            if event.change in CAME_BACK:
                resumed = event.change is dataspace.ConnectionChange.RESUMED
                session.returns.append((time.monotonic() - answered, resumed))
                self._notes.wake()

        async with dataspace.connect(url, grace=GRACE, on_connection=hear) as space:
            mine: dataspace.Claim | None = None
            for number in range(1_000_000):
                session.facts.append(fact := Record("kept", name, number))
                mine = await (space.assert_(fact) if mine is None else space.replace(mine, fact))
                answered = time.monotonic()
                await trio.sleep(0.01)

    async def _lock(self, url: str, name: str) -> None:
        """Holds a lock that another client wants as well, for a while each time."""
        lock = self.history.lock
        async with dataspace.connect(url, name=name) as space:
            while True:
                began = now()
                with contextlib.suppress(LockLost, Broken, Refused):
                    async with space.lock("store", name, ttl=LOCK) as held:
                        lock.grants.append(Grant(name, held.token, began, now()))
                        self._notes.wake()
                        for _ in range(self._random.randint(1, 5)):
                            at = now()
                            held.check()
                            lock.beliefs.append(Belief(name, held.token, at))
                            await trio.sleep(0.02)
                await trio.sleep(0.02)

    async def _publish(self, url: str) -> None:
        """A durable topic, each epoch of two items in two calls, the first of which may be answered alone."""
        history = self.history.topics.setdefault(TOPIC, TopicHistory())
        async with dataspace.connect(url) as space, space.publish(TOPIC, durable=True, away=60) as topic:
            for number in range(1_000_000):
                pending = []
                for part in range(2):
                    pending.append(Sent("near", 0, number, ((number, part),)))
                    history.sent.append(pending[-1])
                    await topic.send(*pending[-1].items)
                await topic.advance(number + 1)
                await topic.flush()
                for each in pending:
                    each.is_taken = True
                await trio.sleep(0.02)

    async def _follow(self, url: str) -> None:
        """All epochs of the topic, by a link that is cut."""
        seen = Seen(is_all=True)
        self.history.topics.setdefault(TOPIC, TopicHistory()).seen["far"] = seen
        async with (
            dataspace.connect(url) as space,
            space.subscribe(TOPIC, as_of=0, timeout=60) as epochs,
        ):
            async for epoch in epochs:
                seen.epochs.append(epoch)
                self._notes.wake()

    async def _observe(
        self, url: str, pattern: str, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        async with dataspace.connect(url) as space:
            await self._notes.observe(space, pattern, task_status=task_status)

    async def _mark(self, url: str) -> None:
        """One more turn, after which all that was answered has been shown."""
        async with dataspace.connect(url, owner="mark") as space:
            draft = space.draft()
            draft.send(Record("said", "nobody", 0))
            await self._notes.note_turn("owner:mark", await space.submit(draft))


def record(directory: Path, seed: int, *, kills: int, turns: int) -> History:
    """Returns the history of one run, in a trio loop of its own."""
    return trio.run(partial(Recording(directory, seed).run, kills, turns))
