"""A lease: the owner of a client's facts that outlasts connections, and ends if it is not renewed in time.

It is apart from the session because it decides when turns wait: no turn is sent in the name of a lease that
has not been granted, or that has ended.

Always: there is one lease at a time; if a new one is granted in place of an old one, the claims of the old
one are asserted again, in turns of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dataspace.client.session.events import ConnectionChange, ConnectionEvent
from dataspace.client.session.in_flight import InFlight
from dataspace.client.session.pending import PendingRequest
from dataspace.errors import Broken, DataspaceError, Refused
from dataspace.loops.here import loop
from index.values.values import Map, Value


class LeaseHolder(Protocol):
    """What a lease needs of the session whose turns wait for it."""

    on_connection: Callable[[ConnectionEvent], None]

    @property
    def in_flight(self) -> InFlight:
        """Returns the turns in flight."""

    async def request(self, verb: str, arguments: Map) -> Value:
        """Sends a request and returns its answer."""

    def ask(self, verb: str, arguments: Map, question: PendingRequest) -> None:
        """Sends a request without waiting; ``question`` is settled by the answer."""

    def release(self, *, fresh: bool) -> int:
        """Sends what was held, after the claims where these have ended; returns how many there were."""

    def restored(self, *, fresh: bool, facts: int) -> None:
        """Called when the claims of the lease hold again."""


class Lease:
    """The lease of one client session, for a number of seconds."""

    def __init__(self, session: LeaseHolder, owner: str, seconds: float) -> None:
        self._session = session
        self._about = Map({"owner": owner})
        self._seconds = seconds
        self._asking = False
        self._granted = PendingRequest()

    async def wait(self) -> None:
        """Returns when the lease is granted for the first time; raises ``Refused`` if it is not."""
        await self._granted.wait()

    async def keep(self) -> None:
        """Renews the lease in good time, until cancelled; asserts everything again if it was too late."""
        while True:
            await loop().sleep(self._seconds / 3)
            try:
                await self._session.request("renew", self._about)
            except Refused:
                self.lose()
            except Broken:
                pass  # it is requested again after the client has reconnected

    def ask(self) -> None:
        """Requests the lease; there must be a connection, and turns must be held."""
        self._asking = True
        self._session.ask("lease", self._about, Grant(self))

    def lose(self) -> None:
        """Notes that the lease ended before it was renewed: turns are held until another one is granted."""
        if not self._asking:
            self._session.on_connection(ConnectionEvent(ConnectionChange.LEASE_ENDED))
            self._session.in_flight.hold()
            self.ask()

    def granted(self, answer: Map) -> None:
        """Notes that the lease was granted, for the first time or again."""
        self._asking = False
        fresh, again = answer["fresh"] is True, self._granted.is_settled
        self._granted.answer(None)
        facts = self._session.release(fresh=fresh)
        if again:
            self._session.restored(fresh=fresh, facts=facts)

    def fail(self, error: DataspaceError) -> None:
        """Notes that the lease will not be granted."""
        self._granted.fail(error)

    def end(self) -> None:
        """Ends the lease, which retracts its facts."""
        self._session.ask("release", self._about, PendingRequest())


class Grant(PendingRequest):
    """The request for a lease, which waits for its answer."""

    __slots__ = ("_lease",)

    def __init__(self, lease: Lease) -> None:
        super().__init__()
        self._lease = lease

    def answer(self, value: Value) -> None:
        """Passes on that the lease is granted."""
        assert isinstance(value, Map)  # by WIRE.md
        self._lease.granted(value)

    def fail(self, error: DataspaceError) -> None:
        """Passes on that it is denied; if the connection was lost, it is requested again with the next
        one."""
        if isinstance(error, Refused):
            self._lease.fail(error)
