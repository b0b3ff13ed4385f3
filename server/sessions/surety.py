"""Holds what clients are sent while another daemon may lead.

What a leader says depends on its state: answers, refusals, welcomes, the states with which streams begin.
Where it is not sure to lead, the state may be an old one.  All of that waits in the queues of the
connections, in order, until the daemon is sure again; a client that has waited for a lease is sent away,
since another daemon may serve it.

A client that asks about this daemon itself (``here``) is answered, and so is one that is trusted: followers
read the log, and hosted actors go by memory.

Always: what leaves a queue was true when the daemon was last sure to lead, or later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from server.sessions.peer import Peer

LOOK_SECONDS: Final = 0.02
"""How often it looks whether the daemon is sure again."""


class Surety:
    """The connections for which something is held."""

    def __init__(self, is_sure: Callable[[], bool], patience: float) -> None:
        """``patience`` is the seconds after which a client is sent away."""
        self.is_sure: Final = is_sure
        self._patience: Final = patience
        self._held: dict[Peer, float] = {}

    def holds(self, peer: Peer) -> bool:
        """Returns whether nothing may be sent to a client now; it is sent once that is over."""
        if self.is_sure() or peer.is_here or peer.trusted or not peer.hosted.leads:
            return False
        self._held.setdefault(peer, trio.current_time())
        return True

    async def run(self) -> None:
        """Sends what was held, or sends clients away that have waited for too long, until cancelled."""
        while True:
            await trio.sleep(LOOK_SECONDS)
            if not self._held:
                continue
            if self.is_sure():
                held, self._held = self._held, {}
                for peer in held:
                    peer.sending.touch()
                    peer.flush()
                continue
            for peer, since in list(self._held.items()):
                if trio.current_time() - since > self._patience:
                    del self._held[peer]
                    peer.dismiss("moved", "another daemon may lead by now: connect again")
