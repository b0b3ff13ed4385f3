"""Remote: actors in a program of their own, as clients of a dataspace elsewhere.

    trio.run(run, boot)            # as a client of the daemon, until only daemon actors are left

The program keeps a *mirror*: a space that applies every epoch of the one elsewhere, whole and in order, so
that an action here has the meaning that it would have there.  What actors do is sent as turns and comes back
with the epochs, like the turns of any client.

Always: the mirror changes by received epochs only, never by sent turns; ``sync``, ``later`` and ``snapshot``
come after all earlier turns have been received; an actor whose turn is refused has crashed.  The cost is to
receive each change in the space once, whatever its actors observe.
"""

from __future__ import annotations

import ssl
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import trio

from dataspace.actors.engine.actors import ActorEvent, Call, Handler
from dataspace.actors.engine.engine import Engine
from dataspace.client.connect import connect
from dataspace.client.observations import Observation
from dataspace.client.session.events import ConnectionEvent
from dataspace.client.session.session import IN_FLIGHT
from dataspace.client.session.turns import Draft, Ticket
from dataspace.client.space import RemoteSpace
from dataspace.errors import ActorCrashed, AnotherSpace, Broken, DataspaceError, Refused
from dataspace.facts import as_it_is
from dataspace.kernel.actions import ASSERT, REPLACE, RETRACT, Action
from dataspace.kernel.changes import EpochChanges
from dataspace.kernel.space import Mirror
from dataspace.loops.lone import lone_nursery
from dataspace.running.actors import Shell, log_crash, wall
from dataspace.transport.credentials import Tls
from index.patterns.patterns import capture

AFTER_ALL: Final = frozenset(["later", "snapshot"])
"""Calls that wait until what was sent before them has been received; ``sync`` is the same as ``later``."""


class RemoteEngine(Engine):
    """An engine whose actors live in a mirror of one space."""

    def __init__(self, remote: RemoteSpace) -> None:
        super().__init__(clock=trio.current_time, wall=wall)
        self.mirror = Mirror(remote.space)
        self.there = self.home(self.mirror, commit=self._send, end=self._end)
        self._remote = remote
        self._handles: dict[str, dict[object, int]] = {}
        self._sent: deque[tuple[str, Ticket]] = deque()
        self._count = self._answered = self._reached = 0
        self._held: deque[tuple[int, ActorEvent]] = deque()
        self._news = trio.Event()

    # -- sending --------------------------------------------------------------------------------------

    def _send(self, owner: str, actions: Sequence[Action], _now: int) -> None:
        """Sends a turn; its changes are received later."""
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
        self._submit(owner, draft)

    def _end(self, owner: str) -> None:
        """Retracts all facts of an actor, in one turn where the daemon takes it."""
        handles = self._handles.pop(owner, None)
        if handles:
            draft = self._remote.draft()
            for handle in handles.values():
                draft.retract(handle)
            self._submit(owner, draft)

    def _submit(self, owner: str, draft: Draft) -> None:
        """Sends a turn: in several where the daemon does not take it as one, as after a start, when all
        matches come at once."""
        welcome = self._remote.welcome
        assert welcome is not None  # the state has come before any actor runs
        most = welcome.limits["actions_per_turn"]
        assert isinstance(most, int)  # by WIRE.md
        for part in [draft] if len(draft.actions) <= most else self._remote.cut(draft):
            self._sent.append((owner, self._remote.submit_nowait(part)))
            self._count += 1
        self._news.set()

    # -- receiving ------------------------------------------------------------------------------------

    def enqueue(self, event: ActorEvent) -> None:
        """Queues an event; a call of ``AFTER_ALL``, once what was sent before it has been received."""
        if isinstance(event, Call) and event.what in AFTER_ALL and self._answered < self._count:
            self._held.append((self._count, event))
        else:
            super().enqueue(event)

    def receive(self, epoch: EpochChanges) -> None:
        """Applies an epoch, and queues the events that waited for it."""
        self.mirror.apply(epoch)
        self._release()

    async def collect(self) -> None:
        """Receives the answers to turns, in their order, until cancelled."""
        while True:
            while self._sent:
                owner, ticket = self._sent[0]
                try:
                    self._reached = max(self._reached, await ticket.wait())
                except (Refused, AnotherSpace) as refusal:
                    self._refuse(owner, refusal)
                self._sent.popleft()
                self._answered += 1
                self._release()
            self._news = trio.Event()
            await self._news.wait()

    def _refuse(self, owner: str, refusal: DataspaceError) -> None:
        """Crashes the actor whose turn was refused or lost: it cannot go on as if the turn had been
        committed."""
        for actor in list(self.actors.values()):
            if actor.owner == owner:
                crash = ActorCrashed(f"actor {actor.name}: its turn was refused, {refusal}")
                crash.__cause__ = refusal
                self.fell(actor, "refusal", crash)
                if self.on_ready is not None:
                    self.on_ready()

    def _release(self) -> None:
        """Queues the events whose turns were answered and whose epochs were received."""
        while self._held and self._held[0][0] <= self._answered and self._reached <= self.mirror.epoch:
            super().enqueue(self._held.popleft()[1])

    async def wait_room(self, _used: float) -> None:
        """Waits until few enough turns wait for their answers."""
        while len(self._sent) > IN_FLIGHT // 2:
            await self._sent[0][1].settled()
            await trio.lowlevel.checkpoint()


async def act(
    remote: RemoteSpace,
    boot: Handler,
    *args: object,
    name: str = "",
    prepare: Callable[[RemoteEngine], None] | None = None,
) -> None:
    """Runs a first actor in the space of a connection, until only daemon actors are left.

    ``prepare`` is called with the engine before anything runs, for instance to set a tracer.
    Raises ``ActorCrashed`` if the first actor crashed; crashes of others are logged.
    """
    engine = RemoteEngine(remote)
    engine.on_crash = log_crash
    if prepare is not None:
        prepare(engine)
    causes: list[BaseException | None] = [None]

    def keep_cause(crash: ActorCrashed | None) -> None:
        if crash is not None:  # from which it is taken once it was logged
            causes.append(crash.__cause__)

    shell = Shell(engine, after=engine.wait_room)
    async with remote.observe(capture("fact"), quiet=True, policy="wait") as news:
        await _receive(engine, news)  # the state, before any actor runs
        async with lone_nursery() as nursery:
            nursery.start_soon(_receive_all, engine, news)
            nursery.start_soon(engine.collect)
            first = engine.spawn(boot, *args, home=engine.there, name=name)
            first.exits.append(keep_cause)
            await shell.run()
            await remote.drain()
            nursery.cancel_scope.cancel()
    if first.crash is not None:
        raise first.crash from causes[-1]


async def _receive_all(engine: RemoteEngine, news: Observation) -> None:
    while True:
        await _receive(engine, news)


async def _receive(engine: RemoteEngine, news: Observation) -> None:
    epoch = await news.next_epoch()
    if epoch is None:
        raise Broken("the dataspace has ended")
    engine.receive(epoch)


async def run(
    boot: Handler,
    *args: object,
    url: str | None = None,
    space: str = "main",
    token: str | None = None,
    tls: Tls | ssl.SSLContext | None = None,
    on_connection: Callable[[ConnectionEvent], None] | None = None,
) -> None:
    """Runs a program of actors as a client of a daemon; arguments as for ``dataspace.connect``."""
    async with connect(
        url, name="actors", space=space, token=token, tls=tls, on_connection=on_connection
    ) as remote:
        await act(remote, boot, *args)
