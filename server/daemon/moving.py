"""Moving a space to another daemon: its leader here stops as if the daemon ended, and follows from then on.

A daemon that is to end leaves first: it is given no space any more, and hands over what it leads before it
waits for its clients.  So no space is without a leader for as long as one slow client takes.

Sessions with grace, leases, numbers of turns and all else that outlives a daemon go on at the other one; a
session without grace ends, as where its leader ends in order.  Other spaces do not notice.

Always: nothing is acknowledged here once the term is given up; each acknowledged turn is on disk before.
"""

from __future__ import annotations

import logging
from time import perf_counter
from typing import TYPE_CHECKING, Final, TypeAlias

import trio

from server.home import SteppedDown
from server.hosting.actors import HOSTING
from server.sessions.peer import PEERS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import ExitStack

    from server.daemon.daemon import Daemon
    from server.daemon.draining import Draining
    from server.spaces.space import HostedSpace

logger = logging.getLogger("dataspace")

FAREWELL_SECONDS: Final = 2.0
"""Seconds in which the connections of a space may end after a goodbye, before they are cut."""


StopWriting: TypeAlias = "Callable[[HostedSpace], Awaitable[None]]"


async def move_spaces(daemon: Daemon, held: ExitStack, stop_writing: StopWriting) -> None:
    """Hands over each space that the home says, until cancelled; ``main`` by stepping down.

    Logs that are followed instead are closed with ``held``; ``stop_writing`` ends the writer of a log.
    """
    while True:
        name, successor = await daemon.home.wait_move()
        hosted = daemon.spaces[name]
        if not hosted.leads:  # as it was taken a moment ago
            continue
        if hosted is daemon.main:
            _end_snapshots(daemon)
            daemon.watch.acted("moved", f"{name} to {successor}")
            raise SteppedDown(f"space {name} moves to {successor}")
        began = perf_counter()
        with trio.CancelScope(shield=True):
            await _hand_over(daemon, hosted, successor, stop_writing, held)
        seconds = perf_counter() - began
        logger.warning("space %s: handed over to %s in %.3f s", name, successor, seconds)
        daemon.watch.acted("moved", f"{name} to {successor} in {seconds:.3f} s")


RETIRE_SECONDS: Final = 2.0
"""How long a daemon that is to end waits for the database to note that."""


async def leave(daemon: Daemon, stop_writing: StopWriting) -> None:
    """Leaves the daemons that may lead, and hands over what this one leads, if another one can take it.

    The leader of ``main`` hands over with its own end, which is at once then.  Where no other daemon stands
    by nothing is handed over, and clients have the time of the drain.
    """
    draining: Draining = daemon.draining
    has_successor = daemon.home.has_stand_by
    with trio.move_on_after(RETIRE_SECONDS):
        has_successor = await daemon.home.retire() or has_successor
    led = [hosted for hosted in daemon.spaces.values() if hosted.leads]
    if not led or not has_successor or draining.is_late:
        return
    if daemon.main in led:
        _end_snapshots(daemon)
        draining.hasten()
        return
    for hosted in led:
        draining.dismiss(daemon, hosted)
    for hosted in led:
        with trio.CancelScope(shield=True):
            await _hand_over(daemon, hosted, "", stop_writing)
        logger.warning("space %s: given back, as this daemon ends", hosted.name)


def _end_snapshots(daemon: Daemon) -> None:
    """Has no snapshot written at the end of what this daemon leads: others have the state, and wait."""
    for hosted in daemon.spaces.values():
        if hosted.leads:
            hosted.leading.commits.end_snapshots()


async def _hand_over(
    daemon: Daemon,
    hosted: HostedSpace,
    successor: str,
    stop_writing: StopWriting,
    held: ExitStack | None = None,
) -> None:
    """Hands over a space, and follows it by a log that ``held`` closes; without ``held`` it is gone here."""
    name = hosted.name
    hosted.sessions.close()
    if held is None:
        del daemon.spaces[name]
    else:
        await daemon.follow(hosted, held)  # who comes from here on finds a follower
    await daemon.parts[HOSTING].leave(name)
    peers = [each for each in daemon.parts[PEERS].values() if each.hosted is hosted]
    stopped = perf_counter()
    for peer in peers:
        peer.lost = not peer.has_parted
        peer.dismiss("moved", f"space {name!r} moves to {successor or 'another daemon'}")
    daemon.flushing.flush()
    with trio.move_on_after(FAREWELL_SECONDS):
        for peer in peers:
            await peer.tasks.ended.wait()
    for peer in peers:
        peer.cancel()
    for peer in peers:
        await peer.tasks.ended.wait()
    daemon.end_leading(hosted)
    hosted.space.abandon()
    await stop_writing(hosted)
    hosted.give_back()
    hosted.log.close()
    await daemon.home.give_up(name, successor, perf_counter() - stopped)
    if held is not None:
        await daemon.lane.work(daemon).do(hosted.space.emptying())
