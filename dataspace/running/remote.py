"""Remote: actors in a program of their own, in a dataspace that is elsewhere.

    trio.run(run, boot)            # as a client of the daemon, until only daemon actors are left

The program keeps a *mirror*: a space that takes in every epoch of the one elsewhere, whole and in order, so
that all an actor does here means what it would mean there.  What actors do is sent as turns and comes back
with the epochs like everybody's.  It is apart from the shell because that knows one process only.

Always: the mirror changes by what is heard, never by what is said; ``sync``, ``later`` and ``snapshot`` come
after all that was said before them has been heard; an actor whose turn is refused has crashed.
Costs what changes in the space, whoever is interested in it: each change comes here once.
"""

from __future__ import annotations

import ssl
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import trio

from dataspace.actors.engine.actors import ActorEvent, Call
from dataspace.actors.engine.engine import Engine
from dataspace.actors.engine.ports import Handler
from dataspace.client.connect import connect
from dataspace.client.observations import Observation
from dataspace.client.session.session import IN_FLIGHT
from dataspace.client.session.turns import Ticket
from dataspace.client.space import RemoteSpace
from dataspace.errors import ActorCrashed, Broken, Refused
from dataspace.facts import as_it_is
from dataspace.kernel.actions import ASSERT, REPLACE, RETRACT, Action
from dataspace.kernel.epoch_changes import EpochChanges
from dataspace.kernel.space import Space
from dataspace.running.actors import Shell, log_crash, wall
from dataspace.transport.credentials import Tls
from index.patterns.patterns import capture

AFTER_ALL: Final = frozenset(["later", "snapshot"])
"""Calls that come after what was said before them has been heard; ``sync`` is another word for ``later``."""


class Mirror(Space):
    """What a program knows of a space elsewhere; observed like any space."""

    def take(self, epoch: EpochChanges) -> None:
        """Takes in an epoch and tells the observers; O(changes × matching patterns)."""
        added, messages, removed = (
            [row[0] for row in rows] for rows in (epoch.added, epoch.messages, epoch.removed)
        )
        self.index.patch(added, removed, messages)
        self.epoch, self.time = epoch.number, epoch.micros
        self._tell()


class RemoteEngine(Engine):
    """An engine whose actors live in a mirror of one space."""

    def __init__(self, remote: RemoteSpace) -> None:
        super().__init__(clock=trio.current_time, wall=wall)
        self.mirror = Mirror(remote.space)
        self.there = self.home(self.mirror, commit=self._say, end=self._end)
        self._remote = remote
        self._handles: dict[str, dict[object, int]] = {}
        self._said: deque[tuple[str, Ticket]] = deque()
        self._count = self._answered = self._reached = 0
        self._held: deque[tuple[int, ActorEvent]] = deque()
        self._news = trio.Event()

    # -- saying ---------------------------------------------------------------------------------------

    def _say(self, owner: str, actions: Sequence[Action], _now: int) -> None:
        """Sends a turn; what it means is heard later."""
        handles = self._handles.setdefault(owner, {})
        draft = self._remote.draft()
        for action in actions:
            verb = action[0]
            if verb == ASSERT:
                handles[action[1]] = draft.assert_(as_it_is(action[2])).handle
            elif verb == RETRACT:
                draft.retract(handles.pop(action[1]))
            elif verb == REPLACE:
                handles[action[2]] = draft.replace(handles.pop(action[1]), as_it_is(action[3])).handle
            else:
                draft.send(as_it_is(action[1]))
        self._submit(owner, draft.actions)

    def _end(self, owner: str) -> None:
        """Retracts all that an actor claims, in one turn."""
        handles = self._handles.pop(owner, None)
        if handles:
            self._submit(owner, [(RETRACT, handle) for handle in handles.values()])

    def _submit(self, owner: str, actions: Sequence[Action]) -> None:
        self._said.append((owner, self._remote.submit_nowait(actions)))
        self._count += 1
        self._news.set()

    # -- hearing --------------------------------------------------------------------------------------

    def enqueue(self, event: ActorEvent) -> None:
        """Lets an event wait for its turn, and first for what was said before it, if it is to come after."""
        if isinstance(event, Call) and event.what in AFTER_ALL and self._answered < self._count:
            self._held.append((self._count, event))
        else:
            super().enqueue(event)

    def hear(self, epoch: EpochChanges) -> None:
        """Takes in an epoch."""
        self.mirror.take(epoch)
        self._release()

    async def collect(self) -> None:
        """Takes in the answers to turns, in their order, until cancelled."""
        while True:
            while self._said:
                owner, ticket = self._said[0]
                try:
                    self._reached = max(self._reached, await ticket.wait())
                except Refused as refusal:
                    self._refuse(owner, refusal)
                self._said.popleft()
                self._answered += 1
                self._release()
            self._news = trio.Event()
            await self._news.wait()

    def _refuse(self, owner: str, refusal: Refused) -> None:
        """The dataspace does not take a turn: who made it cannot go on as if it had."""
        for actor in list(self.actors.values()):
            if actor.owner == owner:
                crash = ActorCrashed(f"actor {actor.name}: its turn was refused, {refusal}")
                crash.__cause__ = refusal
                self.fell(actor, "refusal", crash)
                if self.on_ready is not None:
                    self.on_ready()

    def _release(self) -> None:
        """Lets go on what waited for what is heard by now."""
        while self._held and self._held[0][0] <= self._answered and self._reached <= self.mirror.epoch:
            super().enqueue(self._held.popleft()[1])

    async def wait_room(self) -> None:
        """Returns when few enough turns wait for their answers."""
        while len(self._said) > IN_FLIGHT // 2:
            await self._said[0][1].settled()
            await trio.lowlevel.checkpoint()


async def act(
    remote: RemoteSpace,
    boot: Handler,
    *args: object,
    name: str = "",
    prepare: Callable[[RemoteEngine], None] | None = None,
) -> None:
    """Runs a first actor in the space of a connection, until only daemon actors are left.

    ``prepare`` is called with the engine before anything runs, to trace or to watch it.
    Raises ``ActorCrashed`` if it was the first one that crashed; crashes of others are logged.
    """
    engine = RemoteEngine(remote)
    engine.on_crash = log_crash
    if prepare is not None:
        prepare(engine)
    shell = Shell(engine, after=engine.wait_room)
    async with remote.observe(capture("fact"), quiet=True, policy="wait") as news:
        await _hear(engine, news)  # the state, before anybody looks at it
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_hear_all, engine, news)
            nursery.start_soon(engine.collect)
            first = engine.spawn(boot, *args, home=engine.there, name=name)
            await shell.run()
            await remote.drain()
            nursery.cancel_scope.cancel()
    if first.crash is not None:
        raise first.crash


async def _hear_all(engine: RemoteEngine, news: Observation) -> None:
    while True:
        await _hear(engine, news)


async def _hear(engine: RemoteEngine, news: Observation) -> None:
    epoch = await news.next_epoch()
    if epoch is None:
        raise Broken("the dataspace has ended")
    engine.hear(epoch)


async def run(
    boot: Handler,
    *args: object,
    url: str | None = None,
    space: str = "main",
    token: str | None = None,
    tls: Tls | ssl.SSLContext | None = None,
) -> None:
    """Runs a program of actors as a client of a daemon; arguments as for ``dataspace.connect``."""
    async with connect(url, name="actors", space=space, token=token, tls=tls) as remote:
        await act(remote, boot, *args)
