"""Clients: what is done by clients of every recorded run, over whatever addresses they are given.

*Writers* with durable owners claim facts of their own and facts that others claim as well, and send messages;
a rule derives facts from theirs; *keepers* have a session with grace, which outlives its daemon; *lockers*
want one lock; one client publishes a durable topic, and another one reads it; sessions come and are broken
off, and leases are not renewed.

Always: as ``notes``.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from random import Random
from typing import Final

import trio

import dataspace
from dataspace import Record, absent
from dataspace.errors import Broken, Closed, LockLost, ProtocolError, Refused, Unreachable
from index.patterns.text import parse_pattern
from tests.guarantees.history import Graced, Term, View
from tests.guarantees.notes import Caller, Notes, shown
from tests.model.locks import Belief, Grant
from tests.model.topics import Seen, Sent, TopicHistory
from tests.server.coordination.histories import now
from tests.server.proxies import Proxy

RULE: Final = "twice($k) <- shared($k), busy($who, $n), $n > 2."

LOCK: Final = 0.5

GRACE: Final = 30.0

LEASE: Final = 0.4
"""Seconds for which a lease is granted."""

BROKEN_OFF: Final = 3
"""Sessions that are broken off."""

FACTS: Final = 3
"""Facts of each of them."""

AWAY: Final = (Broken, Closed, Unreachable, ProtocolError, Refused)
"""What a client raises that makes no second connection, where its daemon goes or does not lead."""

CAME_BACK: Final = (dataspace.ConnectionChange.RESUMED, dataspace.ConnectionChange.ANEW)

TOPIC: Final = "news"

FOREVER: Final = 1_000_000


def fill(
    draft: dataspace.Draft,
    random: Random,
    name: str,
    number: int,
    mine: dataspace.Claim | None,
    held: list[dataspace.Claim],
) -> dataspace.Claim | None:
    """Fills the turn of a writer: it replaces its fact ``mine``, and claims and leaves what others claim.

    Returns its fact after the turn; ``held`` has the shared facts that it claims.
    """
    if held and random.random() < 0.5:
        draft.retract(held.pop(0))
    if number % 4 == 3 or random.random() < 0.3:
        held.append(draft.assert_(Record("shared", random.randrange(3))))
    if number % 4 == 3:
        return mine
    fact = Record("busy", name, number)
    mine = draft.assert_(fact) if mine is None else draft.replace(mine, fact)
    draft.send(Record("said", name, number))
    return mine


class Clients:
    """What clients of a run do; all is in ``notes``."""

    def __init__(self, notes: Notes, seed: int) -> None:
        self.notes: Final = notes
        self.history: Final = notes.history
        self.random = Random(seed)
        self.stopping = False
        """Set when writers that have no end are to come to one."""

    async def add_rule(self, url: str) -> None:
        """Adds a rule, which derives facts from the facts of writers."""
        async with dataspace.connect(url, owner="rules", client="owner:rules") as space:
            draft = space.draft()
            draft.assert_(Record("rule", "twice", RULE))
            await self.notes.note_turn("owner:rules", await space.submit(draft))

    async def write(self, url: str, name: str, turns: int = FOREVER) -> None:
        """Turns that replace a fact, claim and leave what others claim, and send; some that are refused."""
        async with (
            self.notes.connected(url, name, owner=name, client=f"owner:{name}") as (space, caller),
            trio.open_nursery() as nursery,
        ):

            async def submit(draft: dataspace.Draft) -> None:
                known = caller.asks(), self.notes.answered
                ticket = await space.submit(draft)
                nursery.start_soon(self.notes.note_turn, f"owner:{name}", ticket, caller, *known)

            mine: dataspace.Claim | None = None
            held: list[dataspace.Claim] = []
            for number in range(turns):
                if self.stopping:
                    return
                draft = space.draft()
                mine = fill(draft, self.random, name, number, mine, held)
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
        session, answered = Graced(name, GRACE), -math.inf
        self.history.graced.append(session)

        def hear(event: dataspace.ConnectionEvent) -> None:
            if event.change in CAME_BACK and answered > 0:  # else it was sent on, before it had any fact
                resumed = event.change is dataspace.ConnectionChange.RESUMED
                session.returns.append((time.monotonic() - answered, resumed))
                self.notes.wake()

        async with dataspace.connect(url, grace=GRACE, on_connection=hear) as space:
            mine: dataspace.Claim | None = None
            for number in range(FOREVER):
                session.facts.append(fact := Record("kept", name, number))
                mine = await (space.assert_(fact) if mine is None else space.replace(mine, fact))
                answered = time.monotonic()
                self.notes.wake()
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
        """A durable topic: each epoch has two items in two calls; the first may be answered alone."""
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

    async def glance(self, url: str, name: str) -> None:
        """Turns, and the state again and again, from any daemon: never an earlier one than was known."""
        async with self.notes.connected(url, name, read="any", owner=name, client=f"owner:{name}") as (
            space,
            caller,
        ):
            mine: dataspace.Claim | None = None
            while not self.stopping:
                draft, asked, after = space.draft(), caller.asks(), self.notes.answered
                fact = Record("glanced", name, asked)
                mine = draft.assert_(fact) if mine is None else draft.replace(mine, fact)
                ticket = await space.submit(draft)
                await self.notes.note_turn(f"owner:{name}", ticket, caller, asked, after)
                for _ in range(self.random.randint(1, 4)):
                    await self._look(space, caller)
                    await trio.sleep(self.random.choice((0.0, 0.01)))

    async def _look(self, space: dataspace.RemoteSpace, caller: Caller) -> None:
        asked = caller.asks()
        async with space.observe("busy($who, $n)", quiet=True) as seen:
            state = await seen.next_epoch()
        assert state is not None  # it ends with the client
        caller.hears(state.number, asked)
        if asked % 16 == 0:  # each is compared with the whole log
            name = f"{caller.client} glanced at {state.number}"
            self.history.views[name] = View(parse_pattern("busy($who, $n)"), [shown(state)], state.number)

    async def mark(self, url: str) -> None:
        """One more turn, after which all that was answered has been shown."""
        async with dataspace.connect(url, owner="mark", client="owner:mark") as space:
            draft = space.draft()
            draft.send(Record("said", "nobody", 0))
            await self.notes.note_turn("owner:mark", await space.submit(draft))

    async def break_off(self, url: Callable[[], str]) -> None:
        """Sessions whose links end without a goodbye, with the daemon that leads, whose ``url`` is asked."""
        number = 0
        while len(self.history.ended) < BROKEN_OFF:
            number += 1
            facts = [Record("held", number, at) for at in range(FACTS)]
            proxy = Proxy(url())
            async with trio.open_nursery() as nursery:
                await nursery.start(proxy.run)
                with contextlib.suppress(*AWAY):  # the daemon may be dead just now, or follow
                    async with dataspace.connect(proxy.url, reconnect=False) as space:
                        async with space.turn() as draft:
                            for fact in facts:
                                draft.assert_(fact)
                        self.history.ended.append(frozenset(facts))
                        proxy.cut()
                nursery.cancel_scope.cancel()
            await trio.sleep(0.01)

    async def borrow(self, url: str, number: int) -> None:
        """A lease whose client vanishes once it holds a fact."""
        proxy = Proxy(url)
        asked = time.time_ns() // 1000
        async with trio.open_nursery() as nursery:
            await nursery.start(proxy.run)
            name = f"borrower{number}"
            async with dataspace.connect(proxy.url, lease=LEASE, name=name, reconnect=False) as space:
                await space.assert_(Record("borrowed", number))
                proxy.cut()
            nursery.cancel_scope.cancel()
        self.history.terms.append(Term(name, asked + round(LEASE * 1_000_000)))
