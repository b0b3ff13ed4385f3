"""A lease: the owner of a client's facts that outlasts connections, and ends if it is not renewed in time.

It is apart from the session because it decides when turns wait: no turn is sent in the name of a lease that
has not been granted, or that has ended.

Always: there is one lease at a time; if a new one is granted in place of an old one, the claims of the old
one are asserted again, in turns of their own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from dataspace.client.session.pending import PendingRequest
from dataspace.errors import Broken, DataspaceError, Refused
from dataspace.loops.here import loop
from index.values.values import Map, Value


class Lease:
    """The lease of one client session, for a number of seconds.

    ``request`` sends a request and returns its answer, ``ask`` does not wait: the answer settles a
    ``PendingRequest``.  ``lost`` is called when the lease has ended, before another one is requested;
    ``granted`` with True if a lease is new, and with True if it is not the first of the session.
    """

    def __init__(
        self,
        owner: str,
        seconds: float,
        *,
        request: Callable[[str, Map], Awaitable[Value]],
        ask: Callable[[str, Map, PendingRequest], None],
        lost: Callable[[], None],
        granted: Callable[[bool, bool], None],
    ) -> None:
        self._about: Final = Map({"owner": owner})
        self._seconds: Final = seconds
        self._request: Final = request
        self._ask: Final = ask
        self._on_lost: Final = lost
        self._on_granted: Final = granted
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
                await self._request("renew", self._about)
            except Refused:
                self.lose()
            except Broken:
                pass  # it is requested again after the client has reconnected

    def ask(self) -> None:
        """Requests the lease; there must be a connection, and turns must be held."""
        self._asking = True
        self._ask("lease", self._about, Grant(self))

    def lose(self) -> None:
        """Notes that the lease ended before it was renewed: turns are held until another one is granted."""
        if not self._asking:
            self._on_lost()
            self.ask()

    def granted(self, answer: Map) -> None:
        """Notes that the lease was granted, for the first time or again."""
        self._asking = False
        again = self._granted.is_settled
        self._granted.answer(None)
        self._on_granted(answer["fresh"] is True, again)

    def fail(self, error: DataspaceError) -> None:
        """Notes that the lease will not be granted."""
        self._granted.fail(error)

    def end(self) -> None:
        """Ends the lease, which retracts its facts."""
        self._ask("release", self._about, PendingRequest())


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
