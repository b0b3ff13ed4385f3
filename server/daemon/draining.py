"""The end of a daemon that is to end: its listeners close, and its clients get time to finish.

What the daemon leads is handed over before (``moving``).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import trio

from dataspace.wire.verbs import Arguments
from index.values.values import Map, Value
from server.sessions.peer import PEERS
from server.sessions.requests import check_own_machine

if TYPE_CHECKING:
    from server.sessions.peer import Peer
    from server.sessions.requests import Verb
    from server.sessions.state import DaemonState
    from server.spaces.space import HostedSpace

logger = logging.getLogger("dataspace")

LOOK_SECONDS: Final = 0.05
"""How often it looks for sessions that have finished."""

FAREWELL_SECONDS: Final = 2.0
"""Seconds after a goodbye in which connections may end, before they are cut."""

REASON: Final = "the daemon is ending; it may be started again"


class Draining:
    """The end of a daemon: ``wanted`` is set as soon as there is to be one.

    First the listeners close, so that no new client comes. A session that waits for an answer, or offers a
    stream, may finish that until the deadline; each then gets a ``Bye`` with the code ``closing``, after
    which clients connect again by themselves. A client that did not say that it knows this code finds its
    connection closed, as it would after a crash. A signal gives no time: the deadline is now.

    Always: after ``begin`` no connection is accepted; ``run`` returns when no session is left, or shortly
    after the deadline.
    """

    def __init__(self) -> None:
        self.wanted: Final = trio.Event()
        self.accepting: Final[list[trio.CancelScope]] = []
        """What accepts connections."""
        self._deadline = 0.0
        self._reason = REASON

    def begin(self, within: float = 0.0, reason: str = "") -> None:
        """Begins the end; sessions may finish requests for so many seconds.  A later call may shorten it."""
        deadline = trio.current_time() + within
        self._deadline = min(self._deadline, deadline) if self.wanted.is_set() else deadline
        self._reason = reason or self._reason
        self.wanted.set()
        for scope in self.accepting:
            scope.cancel()

    @property
    def is_late(self) -> bool:
        """True once sessions have no time left."""
        return trio.current_time() >= self._deadline

    def hasten(self) -> None:
        """Leaves sessions no time: another daemon is to lead now."""
        self._deadline = trio.current_time()

    def dismiss(self, daemon: DaemonState, hosted: HostedSpace) -> None:
        """Ends the sessions about a space."""
        hosted.sessions.close()
        for each in daemon.parts[PEERS].values():
            if each.hosted is hosted and not each.trusted:
                _close(each, self._reason)
        daemon.flushing.flush()

    async def run(self, daemon: DaemonState) -> None:
        """Ends the sessions of clients; returns when they have gone, or shortly after the deadline."""
        for hosted in daemon.spaces.values():
            hosted.sessions.close()
        gone: set[int] = set()
        while left := [each for each in daemon.parts[PEERS].values() if not each.trusted]:
            late = self.is_late
            for each in left:
                if each.number not in gone and (late or not each.is_busy):
                    gone.add(each.number)
                    _close(each, self._reason)
            daemon.flushing.flush()
            if late:
                break
            await trio.sleep(LOOK_SECONDS)
        with trio.move_on_after(FAREWELL_SECONDS):
            for each in left:
                await each.tasks.ended.wait()
        if left:
            logger.info("%d connections were sent away", len(left))


def drain_verb(daemon: DaemonState, draining: Draining) -> Verb:
    """Returns the request ``drain``, which ends the daemon for an administrator."""

    async def drain(peer: Peer, arguments: Arguments) -> Value:
        await trio.lowlevel.checkpoint()
        peer.permit.check_administer("end the daemon")
        check_own_machine(daemon, peer, "end it")
        within = arguments["within"] / 1000
        logger.warning("session %s requested a drain (limit %g s)", peer.session_id, within)
        draining.begin(within, arguments["reason"][:1000])
        return Map({"sessions": _clients(daemon.parts[PEERS].values(), peer)})

    return drain


def _close(peer: Peer, reason: str) -> None:
    """Ends a connection because the daemon ends: its client may connect again, and resume its session."""
    peer.lost = not peer.has_parted
    peer.dismiss("closing", reason)


def _clients(connections: Iterable[Peer], asker: Peer) -> int:
    """Returns the number of clients beside the asking one."""
    return sum([not each.trusted and each is not asker for each in connections])
