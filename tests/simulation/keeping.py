"""Keepers: sessions with grace, which outlive broken connections and daemons, and thieves of them.

A *keeper* puts one fact in the place of the other, and notes how it comes back.  Now and then a *thief* asks
for its session by number, with a secret that it has guessed.
"""

from __future__ import annotations

import contextlib
from math import inf
from typing import TYPE_CHECKING, Final

import trio

import dataspace
from dataspace import ConnectionChange, Record
from dataspace.client.session.session import ClientSession
from dataspace.errors import Broken, Closed, ProtocolError, Refused, Unreachable
from dataspace.transport.candidates import parse_urls
from dataspace.transport.credentials import Credentials
from dataspace.wire.features import Granted
from tests.guarantees.history import Graced

if TYPE_CHECKING:
    from tests.simulation.actors import Actor

GRACE: Final = 4.0
SURE: Final = 2.0
"""Seconds after its last answer in which a client is in time: an answer may be as old as two heartbeats."""

GUESSED: Final = bytes(16)
PATIENCE: Final = 2.0


async def keep(actor: Actor) -> None:
    """A session with grace: its facts are there while it is, whatever happens to its connections."""
    kept = Graced(actor.host.name, SURE)
    answered: float | None = None
    if not any(fault.kind == "pause" for fault in actor.world.plan.faults):  # else it may not know its delay
        actor.history.graced.append(kept)

    def hear(event: dataspace.ConnectionEvent) -> None:
        nonlocal answered
        if event.change is ConnectionChange.ANEW:
            actor.world.trace("anew", actor.host.name)
        if event.change in (ConnectionChange.RESUMED, ConnectionChange.ANEW):
            resumed = event.change is ConnectionChange.RESUMED
            away = inf if answered is None else trio.current_time() - answered  # it may be late
            kept.returns.append((away, resumed))
            answered = answered if resumed else None

    async with actor.connected(grace=GRACE, hear=hear) as space:
        mine: dataspace.Claim | None = None
        for number in range(actor.random.randint(1, 8)):
            fact = Record("kept", actor.number, number)
            with contextlib.suppress(Refused):  # the disk is full just now
                kept.facts.append(fact)
                mine = await (space.assert_(fact) if mine is None else space.replace(mine, fact))
                answered = trio.current_time()
                if actor.random.random() < 0.3 and await _is_taken(actor, space):
                    return
            await trio.sleep(actor.random.choice((0.0, 0.3, 1.0)))


async def _is_taken(actor: Actor, space: dataspace.RemoteSpace) -> bool:
    """Has a thief ask for the session; True if it is the thief's identity now, of whatever session."""
    mine = space._session
    thief = ClientSession(
        parse_urls(actor.urls), mine.identity, Credentials.complete("", None), reconnect=False
    )
    assert mine.welcome is not None  # as it was answered
    thief._hellos._ticket = (mine.welcome.session, GUESSED)
    try:
        with trio.move_on_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                await nursery.start(thief.uplink.run)
                nursery.cancel_scope.cancel()
    except* (Broken, Closed, Unreachable, ProtocolError):
        pass  # it was refused, or there is no daemon
    actor.world.trace("thief", actor.host.name, thief.welcome is not None)
    if thief.welcome is not None and Granted.read(thief.welcome.features).resumed:
        actor.history.stolen.append(actor.host.name)
    return thief.welcome is not None
