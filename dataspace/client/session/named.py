"""Questions about a daemon: they are asked of the daemon that the client has named.

A client that has named a follower is sent on to the leader with its first turn.  A ``drain`` or ``sessions``
that went along would be about the leader.  Such a request is sent over a connection of its own then, to the
address that the client has named.

Always: ``drain`` and ``end-session`` reach no daemon that the client has not named, and none twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from dataspace.client.session.session import ClientSession, NotNamed
from dataspace.errors import Broken
from dataspace.wire.verbs import ACTS, VERBS, Subject, check_one_address

if TYPE_CHECKING:
    from index.values.values import Map, Value


class NamedDaemon:
    """The daemon that a client has named."""

    def __init__(
        self, session: ClientSession, apart: Callable[[str, Map], Awaitable[Value]] | None = None
    ) -> None:
        """``apart`` sends a request over a connection to the named daemon, which ends with the answer."""
        self._session = session
        self._apart = apart

    def answers(self, verb: str) -> bool:
        """True if a verb is about a daemon."""
        return verb in VERBS and VERBS[verb].subject is Subject.DAEMON

    async def request(self, verb: str, arguments: Map) -> Value:
        """Sends a request about the daemon and returns its answer; raises as ``ClientSession.request``.

        A client with several addresses asks the daemon of its connection.  Raises ``UsageError`` where such a
        client acts on a daemon, and ``Broken`` if an act may have been done.
        """
        listed = self._session.uplink.candidates.listed
        check_one_address(verb, len(listed))
        if self._apart is None or len(listed) > 1:
            return await self._session.request(verb, arguments)
        try:
            return await self._session.request_named(verb, arguments)
        except NotNamed as lost:
            if lost.sent and verb in ACTS:
                raise Broken(f"{lost}; whether {verb} was carried out is not known") from None
        return await self._apart(verb, arguments)
