"""A lease: the owner of a client's facts, which outlasts connections and goes when nobody renews it.

It is apart from the session because it decides when turns wait: nothing is said in the name of a lease that
has not been granted, or that has ended.

Always: there is one lease at a time; what it held is said again, in turns of its own, when it was a new one
that was granted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import trio

from dataspace.client.session.events import ConnectionChange, ConnectionEvent
from dataspace.client.session.in_flight import InFlight
from dataspace.client.session.pending import PendingRequest
from dataspace.errors import Broken, DataspaceError, Refused
from index.values.values import Map, Value


class LeaseHolder(Protocol):
    """The session whose turns wait for the lease."""

    on_connection: Callable[[ConnectionEvent], None]

    @property
    def in_flight(self) -> InFlight:
        """The turns."""

    async def request(self, verb: str, arguments: Map) -> Value:
        """Asks and waits."""

    def ask(self, verb: str, arguments: Map, question: PendingRequest) -> None:
        """Asks without waiting."""

    def restored(self, *, fresh: bool, facts: int) -> None:
        """What is claimed in the name of the lease stands again."""


class Lease:
    """The lease of one client session, of so many seconds."""

    def __init__(self, session: LeaseHolder, owner: str, seconds: float) -> None:
        self._session = session
        self._about = Map({"owner": owner})
        self._seconds = seconds
        self._asking = False
        self._granted = PendingRequest()

    async def wait(self) -> None:
        """Returns when it is granted for the first time; raises ``Refused`` if it is not."""
        await self._granted.wait()

    async def keep(self) -> None:
        """Renews it in good time, until cancelled; asserts everything anew if it was too late."""
        while True:
            await trio.sleep(self._seconds / 3)
            try:
                await self._session.request("renew", self._about)
            except Refused:
                self.lose()
            except Broken:
                pass  # it is asked for again when the connection is back

    def ask(self) -> None:
        """Asks for it; there must be a connection, and turns must be held."""
        self._asking = True
        self._session.ask("lease", self._about, Grant(self))

    def lose(self) -> None:
        """It has ended before its renewal came: nothing is said in its name until there is another."""
        if not self._asking:
            self._session.on_connection(ConnectionEvent(ConnectionChange.LEASE_ENDED))
            self._session.in_flight.hold()
            self.ask()

    def granted(self, told: Map) -> None:
        """It is there, or there again."""
        self._asking = False
        fresh, again = told["fresh"] is True, self._granted.is_settled
        self._granted.answer(None)
        facts = self._session.in_flight.release(restate=fresh)
        if again:
            self._session.restored(fresh=fresh, facts=facts)

    def fail(self, error: DataspaceError) -> None:
        """It will not be."""
        self._granted.fail(error)

    def end(self) -> None:
        """Gives it up, and with it its facts."""
        self._session.ask("release", self._about, PendingRequest())


class Grant(PendingRequest):
    """What is asked for a lease."""

    __slots__ = ("_lease",)

    def __init__(self, lease: Lease) -> None:
        super().__init__()
        self._lease = lease

    def answer(self, value: Value) -> None:
        """It is granted."""
        assert isinstance(value, Map)  # by WIRE.md
        self._lease.granted(value)

    def fail(self, error: DataspaceError) -> None:
        """It is denied; or the connection is lost, and it is asked for again with the next."""
        if isinstance(error, Refused):
            self._lease.fail(error)
