"""Which connection a client uses for topics: its own, or another one.

The daemons of a cluster lead each space by itself, and topics with ``main``.  A client of another space opens
a further connection with its first use of a topic, and goes with it to the daemon that leads them.

Always: such a connection is made once, for all topics; it sends no turns, and ends with the client's block.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from dataspace.loops.here import loop

if TYPE_CHECKING:
    from dataspace.client.session.session import ClientSession
    from index.values.values import Map, Value


class TopicSessions:
    """The sessions of one client that topics may go over."""

    def __init__(
        self,
        session: ClientSession,
        reads: ClientSession | None = None,
        more: Callable[[], Awaitable[ClientSession]] | None = None,
    ) -> None:
        """``reads`` is at any daemon of the store, ``more`` opens a session for topics alone."""
        self._session = session
        self._reads = reads
        self._more = more
        self._apart: ClientSession | None = None
        self._opening = loop().event()
        self._is_opening = False

    async def session(self) -> ClientSession:
        """Returns the session for publications and for topics in memory; may open it."""
        if self._more is None or not self._session.granted.topics:
            return self._session
        while self._apart is None:
            if self._is_opening:
                await self._opening.wait()
                continue
            self._is_opening, self._opening = True, loop().event()
            try:
                self._apart = await self._more()
            finally:
                self._is_opening = False
                self._opening.set()
        return self._apart

    async def reading(self) -> ClientSession:
        """Returns the session for lookups and durable topics; may open it."""
        return await self.session() if self._reads is None else self._reads

    async def request(self, verb: str, arguments: Map) -> Value:
        """Sends a request about completed epochs, as ``ClientSession.request``."""
        return await (await self.reading()).request(verb, arguments)
