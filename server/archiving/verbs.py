"""The request ``erase``: an administrator has the past of a pattern erased from the archive of a space.

Always: only a bearer of the right may ask, and without tokens only a client on the daemon's own machine.
"""

from __future__ import annotations

import trio

from dataspace.errors import Refused
from dataspace.wire.verbs import Arguments
from index.patterns.skeletons import skeleton
from index.patterns.text import unparse
from index.values.values import Map, Value
from server.archiving.keeper import ArchiveKeeper
from server.sessions.peer import Peer
from server.sessions.requests import Verb, check_own_machine
from server.sessions.state import DaemonState


def erase_verb(daemon: DaemonState, archiving: ArchiveKeeper | None) -> Verb:
    """Returns the request, which waits for the process that archives; it takes the daemon's loop nothing."""

    async def erase(peer: Peer, arguments: Arguments) -> Value:
        await trio.lowlevel.checkpoint()
        peer.permit.check_administer("erase the past")
        check_own_machine(daemon, peer, "erase the past")
        hosted = peer.hosted
        pattern, before, wait = arguments["pattern"], arguments["before"], arguments["wait"] / 1000
        skeleton(pattern)  # raises for no pattern
        if archiving is None:
            raise Refused("no-archive", f"space {hosted.name} is not archived here (log.archive)")
        by = str(peer.who.principal)
        erasures = archiving.erasures
        is_new = not erasures.is_known(hosted.name, pattern, before, by)
        counts = await erasures.ask(hosted.name, pattern, before, by, wait)
        if is_new:
            target = f"{unparse(pattern):.200} before {before}, in space {hosted.name}"
            daemon.watch.acted("past-erased", target, peer.who)
        now: dict[str, Value] = {"done": counts is not None, "held_from": hosted.log.held_from}
        if counts is None:
            return Map({**now, "error": archiving.state(hosted.name).error})
        return Map({**now, **counts})

    return erase
