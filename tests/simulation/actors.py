"""Actors: what clients do in a life, with the product's own client, each on a host of its own.

A *writer* has a durable owner, and replaces, claims, leaves and sends; a *guest* is a session that ends from
one moment to the next; a *borrower* does so with a lease; a *keeper* has a session with grace, which outlives
cuts; a *locker* holds a lock now and then; a *watcher* observes what is on disk, and a *peeker* what is not
yet.

Always: what is recorded is what the client itself was told, up to the instant at which its host dies.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random
from typing import Any, Final

import trio

import dataspace
from dataspace import Record
from dataspace.client.session.session import ClientSession
from dataspace.errors import Broken, Closed, LockLost, ProtocolError, Refused, Unreachable
from dataspace.wire.packets import ELSEWHERE
from index.patterns.text import parse_pattern
from server.config.model import DURABLE
from tests.guarantees.clients import fill
from tests.guarantees.history import Heard, Term, Turn, View
from tests.guarantees.notes import CONNECTED, shown
from tests.model.locks import Belief, Grant
from tests.simulation.entropy import BEGAN
from tests.simulation.hosts import Host
from tests.simulation.occurrences import Occurrence
from tests.simulation.plan import Part
from tests.simulation.world import World

PATTERNS: Final = (
    "busy($who, $n)",
    "borrowed($n)",
    "shared($k)",
    "said($who, $n)",
    "kept($n, $k)",
    "held($n, $k)",
    "seat($n, $who)",
    "stored($n, $who)",
    "b($k, $v)",
    "s($k)",
)

HEARTBEAT: Final = 1.0
LEASE: Final = 1.5
LOCK: Final = 1.0

AWAY: Final = frozenset(["closing", *ELSEWHERE])
"""Codes of a daemon that does not serve a client now."""

CLOCKS: Final = ("clock", "store clock", "store failover", "unconfirmed")
"""Faults after which a clock may be another one."""

AWAY_STORE: Final = "store-away"
OF_THE_DISK: Final = ("disk-full", "disk-failed", AWAY_STORE)

_DURABLE: Final[Any] = {"durable": True, "quiet": True, "policy": "wait", "progress": True}


class Actor:
    """One client: ``name`` is that of its host."""

    def __init__(self, world: World, part: Part, host: Host) -> None:
        self.world = world
        self.number = part.number
        self.host = host
        self.part = part
        self.random = Random(part.seed)
        self.history = world.histories[part.space]
        self._tickets: list[tuple[str, dataspace.Ticket]] = []
        self._process = ""
        """The process to which it is connected, as of its last welcome; empty where there is a single one."""
        self._heard: list[Heard] = []
        """Epochs that it has heard of, from whatever process."""
        self.urls = world.urls
        if len(self.urls) > 1:
            self.urls = self.random.sample(self.urls, len(self.urls) if self.random.random() < 0.7 else 1)
            self.history.heard[host.name] = self._heard

    async def run(self, does: Callable[[Actor], Awaitable[None]]) -> None:
        """Does what actors of its kind do, until that has ended or its host has."""
        self.host.enter()
        try:
            with self.host.scope:
                await trio.sleep(self.part.at)
                await does(self)
        except Exception as error:  # noqa: BLE001  # whatever ends a client is judged
            self._ended_by(error)
        except BaseExceptionGroup as group:  # it was cancelled as well
            failed, cancelled = group.split(Exception)
            _, defect = (
                failed.split(Closed) if failed and cancelled else (None, failed)
            )  # its connection ends as well
            self._ended_by(defect)
            if cancelled is not None:
                raise cancelled from None
        finally:
            for client, ticket in self._tickets:
                self.history.turns.append(Turn.of(client, ticket, None))

    def _ended_by(self, error: BaseException | None) -> None:
        if isinstance(error, Refused) and error.code == "epoch-lost" and self.world.went_back():
            self.world.cut_short()  # the daemon has said so to this client
        elif error is not None and not self.host.is_dead:
            self.world.accuse(f"{self.host.name} raised {error!r}")

    # -- kinds ----------------------------------------------------------------------------------------

    async def write(self) -> None:
        """Turns that replace a fact, claim and leave what others claim, and send; some that are refused."""
        name, owner = self.host.name, f"writer{self.part.rank}"  # which one in another space has as well
        turns, pause = self.random.randint(3, 25), self.random.choice((0.0, 0.02, 0.2))
        async with self.connected(owner=owner) as space, trio.open_nursery() as nursery:
            mine: dataspace.Claim | None = None
            held: list[dataspace.Claim] = []
            for number in range(turns):
                draft = space.draft()
                mine = fill(draft, self.random, name, number, mine, held)
                if number % 4 != 3 and self.random.random() < 0.2:
                    fact = Record("shared", self.random.randrange(3))
                    held.append(draft.assert_(fact, owner=f"{owner}'s store"))
                after = self.world.last[self.part.space]
                nursery.start_soon(self.note, f"owner:{owner}", await space.submit(draft), after)
                if number % 10 == 5:
                    wrong = space.draft()
                    wrong.send(Record("never", name, number))
                    wrong.retract(1)
                    nursery.start_soon(self.note, f"owner:{owner}", await space.submit(wrong))
                if self.random.random() < 0.7:
                    await trio.sleep(pause)

    async def note(self, client: str, ticket: dataspace.Ticket, after: int = 0) -> None:
        """Records a turn, once it is answered; ``after`` was acknowledged when it was submitted."""
        entry = client, ticket
        self.world.asked.add((self.part.space, client, ticket.sequence))
        self._tickets.append(entry)
        try:
            answer: int | str = await ticket.wait()
            self.world.reach(self.part.space, int(answer))
            self._hears(int(answer), 0)
        except Refused as refusal:
            answer = refusal.code
        self._tickets.remove(entry)
        self.world.trace("answer", client, ticket.sequence, answer)
        self.history.turns.append(Turn.of(client, ticket, answer, self._process, after))

    def _hears(self, epoch: int, asked: int) -> None:
        """Notes an epoch that it hears of, where it had heard of so many when it asked."""
        self._heard.append(Heard(epoch, self._process, asked))

    async def visit(self) -> None:
        """Facts of a session that ends without a goodbye."""
        facts = [Record("held", self.number, at) for at in range(3)]
        with contextlib.suppress(
            Broken, Closed, Unreachable, ProtocolError, Refused
        ):  # there may be no daemon
            async with dataspace.connect(
                self.urls, space=self.part.space, heartbeat=HEARTBEAT, reconnect=False, token=""
            ) as space:
                async with space.turn() as draft:
                    for fact in facts:
                        draft.assert_(fact)
                self.history.ended.append(frozenset(facts))
                await trio.sleep(self.random.choice((0.0, 0.1, 2.0)))
                await self.vanish()

    async def borrow(self) -> None:
        """A lease whose client vanishes once it holds a fact."""
        name, asked = f"borrower{self.number}", self._microseconds()
        async with self.connected(lease=LEASE, name=name) as space:
            try:
                await space.assert_(Record("borrowed", self.number))
            except Refused:  # the disk is full just now
                return
            if not any(fault.kind in CLOCKS for fault in self.world.plan.faults):  # else times stand still
                self.history.terms.append(Term(name, asked + round(LEASE * 1_000_000)))
            await trio.sleep(self.random.choice((0.0, 0.1, 3.0)))
            await self.vanish()

    def _microseconds(self) -> int:
        return round((BEGAN + trio.current_time()) * 1_000_000)

    async def lock(self) -> None:
        """Takes a lock that others want as well, and notes when it believes that it holds it."""
        self.host.rate = self.random.choice((0.9, 1.0, 1.1))
        async with self.connected(name=self.host.name) as space:
            for _ in range(self.random.randint(1, 4)):
                try:
                    await self._hold(space)
                except LockLost:
                    self.world.trace("lock lost", self.host.name)
                except Refused as refusal:
                    if refusal.code not in OF_THE_DISK:
                        raise
                await trio.sleep(self.random.choice((0.0, 0.1, 0.5)))

    async def _hold(self, space: dataspace.RemoteSpace) -> None:
        me, began = self.host.name, trio.current_time()
        async with space.lock("store", me, ttl=LOCK) as lock:
            self.world.trace("lock", me, lock.token)
            self.history.lock.grants.append(Grant(me, lock.token, began, trio.current_time()))
            for _ in range(self.random.randint(1, 5)):
                lock.check()
                self.history.lock.beliefs.append(Belief(me, lock.token, trio.current_time()))
                await trio.sleep(self.random.choice((0.0, 0.1, 0.3)))
            if self.random.random() < 0.1:
                await self.vanish()

    async def peek(self) -> None:
        """Observes a pattern as soon as the daemon shows it, which may be before it is on disk."""
        async with self.reading() as space, trio.open_nursery() as nursery:
            if self.world.plan.show == DURABLE:
                nursery.start_soon(self._glance, space)
            while True:
                view = View(parse_pattern(PATTERNS[0]))
                self.world.eager[self._name(PATTERNS[0])] = self.part.space, view
                try:
                    await self._peek(space, view)
                except Refused as refusal:
                    lost = () if self.world.plan.show == DURABLE else ("epoch-lost",)  # in a crash
                    if refusal.code not in (*lost, *OF_THE_DISK):
                        raise
                    await trio.sleep(0.1)

    async def glance(self) -> None:
        """Turns, and after each the state from any daemon, in which it is."""
        name, owner = self.host.name, f"glancer{self.part.rank}"
        async with self.connected(owner=owner, read="any") as space:
            mine: dataspace.Claim | None = None
            held: list[dataspace.Claim] = []
            for number in range(self.random.randint(3, 12)):
                draft = space.draft()
                mine = fill(draft, self.random, name, number, mine, held)
                await self.note(f"owner:{owner}", await space.submit(draft))
                for _ in range(self.random.randint(1, 3)):
                    await self._look(space)
                await trio.sleep(self.random.choice((0.0, 0.02, 0.2)))

    async def _glance(self, space: dataspace.RemoteSpace) -> None:
        """Reads the state again and again, while turns are on their way to the disk."""
        while True:
            await trio.sleep(self.random.choice((0.0, 0.001, 0.02, 0.2)))
            await self._look(space)

    async def _look(self, space: dataspace.RemoteSpace) -> None:
        """Reads the state of a pattern."""
        pattern, asked = self.random.choice(PATTERNS), len(self._heard)
        try:
            async with space.observe(pattern, quiet=True) as seen:
                state = await seen.next_epoch()
        except Refused as refusal:
            if refusal.code not in OF_THE_DISK:
                raise
            return
        if state is not None:
            self._hears(state.number, asked)
            view = View(parse_pattern(pattern), [shown(state)], state.number)
            self.history.views[f"{self._name(pattern)} glanced at {state.number}"] = view
            self.world.count(Occurrence.PEEKED)

    async def _peek(self, space: dataspace.RemoteSpace, view: View) -> None:
        options = {**_DURABLE, "durable": False}
        async with space.observe(PATTERNS[0], **options) as seen:
            async for epoch in seen.epochs():
                if not epoch.progress:
                    view.epochs.append(shown(epoch))
                    if epoch.snapshot and self.world.plan.show == DURABLE:  # it stands after any crash
                        self.history.views[f"{self._name(PATTERNS[0])} peeked from {epoch.number}"] = view
                        self.world.count(Occurrence.PEEKED)
                view.upto = epoch.number
                self.world.trace("peeked", self.host.name, epoch.number, len(view.epochs))
                self.world.note()

    async def watch(self) -> None:
        """Observes patterns, over as many connections as it takes, until the end."""
        async with self.reading() as space, trio.open_nursery() as nursery:
            for pattern in self.random.sample(PATTERNS, self.random.randint(1, len(PATTERNS))):
                nursery.start_soon(self._observe, space, pattern)

    async def _observe(self, space: dataspace.RemoteSpace, pattern: str) -> None:
        # Behind a gate an observer need not ask for it.
        durable = self.world.plan.show != DURABLE or self.random.random() < 0.3
        while True:
            view, asked = View(parse_pattern(pattern)), len(self._heard)
            try:
                async with space.observe(pattern, **{**_DURABLE, "durable": durable}) as seen:
                    await self._take(seen, pattern, view, asked)
            except Refused as refusal:
                if refusal.code not in ("disk-failed", AWAY_STORE):  # the next daemon is asked anew
                    raise
                self.world.watched.pop(self._name(pattern), None)
                await trio.sleep(0.1)

    async def _take(self, seen: dataspace.Observation, pattern: str, view: View, asked: int) -> None:
        async for epoch in seen.epochs():
            self._hears(epoch.number, asked)
            if not epoch.progress:
                view.epochs.append(shown(epoch))
                if epoch.snapshot:
                    self.world.watched[self._name(pattern)] = self.part.space, view
                    self.history.views[f"{self._name(pattern)} from {epoch.number}"] = view
            self.world.trace("shown", self._name(pattern), epoch.number, len(view.epochs))
            view.upto = epoch.number
            self.world.note()

    def _name(self, pattern: str) -> str:
        return f"{self.host.name} {pattern}"

    async def mark(self) -> None:
        """One more turn, after which all that was answered has been shown."""
        async with self.connected(owner="mark") as space:
            draft = space.draft()
            draft.send(Record("said", "nobody", 0))
            await self.note("owner:mark", await space.submit(draft))

    # -- connections ----------------------------------------------------------------------------------

    def _hear(self, event: dataspace.ConnectionEvent) -> None:
        self.world.trace("connection", self.host.name, event.change.value)
        if event.change in (dataspace.ConnectionChange.RESUMED, dataspace.ConnectionChange.ANEW):
            self.world.count(Occurrence.RESUMED)
        if event.change is dataspace.ConnectionChange.REFUSED and "disk-full" not in event.reason:
            self.world.accuse(f"{self.host.name} could not assert its facts again: {event.reason}")

    def reading(self) -> contextlib.AbstractAsyncContextManager[dataspace.RemoteSpace]:
        """Connects as one that may read from any daemon."""
        if len(self.world.urls) == 1:
            return self.connected()
        return self.connected(read="any" if self.random.random() < 0.7 else "leader")

    async def vanish(self) -> None:
        """Ends its host in this instant; does not return."""
        self.world.count(Occurrence.VANISHED)
        self.host.die(power=self.random.random() < 0.5)
        await trio.sleep_forever()

    @contextlib.asynccontextmanager
    async def connected(
        self, hear: Callable[[dataspace.ConnectionEvent], None] | None = None, **options: Any
    ) -> AsyncIterator[dataspace.RemoteSpace]:
        """Connects to its space, as soon as there is a daemon; ``hear`` is called with each event.

        The turns of an ``owner`` are numbered by a name of their own, by which the history knows them.
        """
        if "owner" in options:
            options["client"] = f"owner:{options['owner']}"
        session: ClientSession | None = None

        def heard(event: dataspace.ConnectionEvent) -> None:
            if session is not None and event.change in CONNECTED:
                self._settle(session)
            self._hear(event)
            if hear is not None:
                hear(event)

        while True:
            connecting = dataspace.connect(
                self.urls,
                space=self.part.space,
                heartbeat=HEARTBEAT,
                token="",
                on_connection=heard,
                **options,
            )
            try:
                space = await connecting.__aenter__()
                break
            except (Unreachable, Broken, Closed):
                await trio.sleep(0.1)
            except ProtocolError as error:
                if error.code not in AWAY:
                    raise
                await trio.sleep(0.1)
        session = space._session
        self._settle(session)
        try:
            yield space
        except BaseException as error:
            if not await connecting.__aexit__(type(error), error, error.__traceback__):
                raise
        else:
            await connecting.__aexit__(None, None, None)

    def _settle(self, session: ClientSession) -> None:
        """Notes the process to which it is connected."""
        link: Any = session.uplink._link
        if len(self.world.urls) > 1 and link is not None:
            before, self._process = self._process, link._socket.far.title
            if before not in ("", self._process):
                self.world.count(Occurrence.MOVED)
