"""Moving a space to another daemon: its leader here stops as if the daemon ended, and follows from then on.

Sessions with grace, leases, numbers of turns and all else that outlives a daemon go on at the other one; a
session without grace ends, as where its leader ends in order.  Other spaces do not notice.

Always: nothing is acknowledged here once the term is given up; each acknowledged turn is on disk before.
"""

from __future__ import annotations

import logging
from time import perf_counter
from typing import TYPE_CHECKING, Final, TypeAlias

import trio

from server.cluster.errors import SteppedDown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import ExitStack

    from server.daemon.daemon import Daemon
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
            daemon.watch.acted("moved", f"{name} to {successor}")
            raise SteppedDown(f"space {name} moves to {successor}")
        began = perf_counter()
        with trio.CancelScope(shield=True):
            await _hand_over(daemon, hosted, successor, held, stop_writing)
        seconds = perf_counter() - began
        logger.warning("space %s: handed over to %s in %.3f s", name, successor, seconds)
        daemon.watch.acted("moved", f"{name} to {successor} in {seconds:.3f} s")


async def _hand_over(
    daemon: Daemon, hosted: HostedSpace, successor: str, held: ExitStack, stop_writing: StopWriting
) -> None:
    name = hosted.name
    hosted.sessions.close()
    await daemon.follow(hosted, held)  # who comes from here on finds a follower
    await daemon.hosting.leave(name)
    peers = [each for each in daemon.connections.values() if each.hosted is hosted]
    for peer in peers:
        peer.lost = not peer.has_parted
        peer.dismiss("moved", f"space {name!r} moves to {successor}")
    daemon.flush()
    with trio.move_on_after(FAREWELL_SECONDS):
        for peer in peers:
            await peer.wait_ended()
    for peer in peers:
        peer.cancel()
    for peer in peers:
        await peer.wait_ended()
    daemon.end_leading(hosted)
    hosted.space.abandon()
    await stop_writing(hosted)
    hosted.give_back()
    hosted.log.close()
    await daemon.home.give_up(name, successor)
