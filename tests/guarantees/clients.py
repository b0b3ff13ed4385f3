"""Clients: what is done by clients of every recorded run, over whatever addresses they are given.

*Writers* with durable owners claim facts of their own and facts that others claim as well, and send messages;
a rule derives facts from theirs; *keepers* have a session with grace, which outlives its daemon; *lockers*
want one lock; one client publishes a durable topic, and another one reads it.

Always: as ``notes``.
"""

from __future__ import annotations

import contextlib
import random
import time
from typing import Final

import trio

import dataspace
from dataspace import Record, absent
from dataspace.errors import Broken, LockLost, Refused
from tests.guarantees.history import Graced
from tests.guarantees.locks import Belief, Grant
from tests.guarantees.notes import Notes
from tests.guarantees.topics import Seen, Sent, TopicHistory
from tests.server.coordination.histories import now

RULE: Final = "twice($k) <- shared($k), busy($who, $n), $n > 2."

LOCK: Final = 0.5

GRACE: Final = 30.0

CAME_BACK: Final = (dataspace.ConnectionChange.RESUMED, dataspace.ConnectionChange.ANEW)

TOPIC: Final = "news"

FOREVER: Final = 1_000_000


class Clients:
    """What clients of a run do; all is in ``notes``."""

    def __init__(self, notes: Notes, seed: int) -> None:
        self.notes: Final = notes
        self.history: Final = notes.history
        self.random = random.Random(seed)
        self.stopping = False
        """Set when writers that have no end are to come to one."""

    async def add_rule(self, url: str) -> None:
        """Has facts derived from those of writers."""
        async with dataspace.connect(url, owner="rules") as space:
            draft = space.draft()
            draft.assert_(Record("rule", "twice", RULE))
            await self.notes.note_turn("owner:rules", await space.submit(draft))

    async def write(self, url: str, name: str, turns: int = FOREVER) -> None:
        """Turns that replace a fact, claim and leave what others claim, and send; some that are refused."""
        async with (
            self.notes.connected(url, name, owner=name) as (space, caller),
            trio.open_nursery() as nursery,
        ):

            async def submit(draft: dataspace.Draft) -> None:
                asked = caller.asks()
                ticket = await space.submit(draft)
                nursery.start_soon(self.notes.note_turn, f"owner:{name}", ticket, caller, asked)

            mine: dataspace.Claim | None = None
            held: list[dataspace.Claim] = []
            for number in range(turns):
                if self.stopping:
                    return
                draft = space.draft()
                if held and self.random.random() < 0.5:
                    draft.retract(held.pop(0))
                if number % 4 == 3 or self.random.random() < 0.3:
                    held.append(draft.assert_(Record("shared", self.random.randrange(3))))
                if number % 4 != 3:
                    fact = Record("busy", name, number)
                    mine = draft.assert_(fact) if mine is None else draft.replace(mine, fact)
                    draft.send(Record("said", name, number))
                if number % 10 == 7:  # begun and ended in one turn
                    draft.retract(draft.assert_(Record("passing", name, number)))
                await submit(draft)
                if number % 10 == 2:  # also of another owner, if nothing has come in between
                    both = space.draft(expect=[absent(Record("taken", number, Record("_")))])
                    both.assert_(Record("taken", number, name))
                    both.assert_(Record("lent", number, name), owner=f"{name}'s store")
                    await submit(both)
                if number % 10 == 5:
                    wrong = space.draft()
                    wrong.send(Record("never", name, number))
                    wrong.retract(1)
                    await submit(wrong)
                await trio.sleep(0.004)

    async def keep(self, url: str, name: str) -> None:
        """A session with grace, which outlives the daemon: it puts one fact in the place of the other."""
        session, answered = Graced(name, GRACE), time.monotonic()
        self.history.graced.append(session)

        def hear(event: dataspace.ConnectionEvent) -> None:
            if event.change in CAME_BACK:
                resumed = event.change is dataspace.ConnectionChange.RESUMED
                session.returns.append((time.monotonic() - answered, resumed))
                self.notes.wake()

        async with dataspace.connect(url, grace=GRACE, on_connection=hear) as space:
            mine: dataspace.Claim | None = None
            for number in range(FOREVER):
                session.facts.append(fact := Record("kept", name, number))
                mine = await (space.assert_(fact) if mine is None else space.replace(mine, fact))
                answered = time.monotonic()
                await trio.sleep(0.01)

    async def lock(self, url: str, name: str) -> None:
        """Holds a lock that another client wants as well, for a while each time."""
        lock = self.history.lock
        async with dataspace.connect(url, name=name) as space:
            while True:
                began = now()
                with contextlib.suppress(LockLost, Broken, Refused):
                    async with space.lock("store", name, ttl=LOCK) as held:
                        lock.grants.append(Grant(name, held.token, began, now()))
                        self.notes.wake()
                        for _ in range(self.random.randint(1, 5)):
                            at = now()
                            held.check()
                            lock.beliefs.append(Belief(name, held.token, at))
                            await trio.sleep(0.02)
                await trio.sleep(0.02)

    async def publish(self, url: str) -> None:
        """A durable topic, each epoch of two items in two calls, the first of which may be answered alone."""
        history = self.history.topics.setdefault(TOPIC, TopicHistory())
        async with dataspace.connect(url) as space, space.publish(TOPIC, durable=True, away=60) as topic:
            for number in range(FOREVER):
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

    async def follow(self, url: str) -> None:
        """All epochs of the topic, by a link that is cut."""
        seen = Seen(is_all=True)
        self.history.topics.setdefault(TOPIC, TopicHistory()).seen["far"] = seen
        async with (
            dataspace.connect(url) as space,
            space.subscribe(TOPIC, as_of=0, timeout=60) as epochs,
        ):
            async for epoch in epochs:
                seen.epochs.append(epoch)
                self.notes.wake()

    async def observe(
        self, url: str, pattern: str, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """What is shown of a pattern."""
        async with self.notes.connected(url, pattern) as (space, caller):
            await self.notes.observe(space, pattern, caller=caller, task_status=task_status)

    async def mark(self, url: str) -> None:
        """One more turn, after which all that was answered has been shown."""
        async with dataspace.connect(url, owner="mark") as space:
            draft = space.draft()
            draft.send(Record("said", "nobody", 0))
            await self.notes.note_turn("owner:mark", await space.submit(draft))
