"""Holds: a fact under a lease of its own, which needs no connection.

A hold outlasts the connection that made it, and the daemon: its fact stays for ``ttl`` seconds after the last
``put`` or ``renew``, of this client or of another one of the same principal that knows its name.  A turn over
HTTP in the name of a lease does the same.

Always: a hold has one fact; while another fact takes its place no observer sees two, or none; a turn that is
sent again after a lost connection happens once.
"""

from __future__ import annotations

import uuid
from typing import Final

from dataspace.client.session.session import ClientSession
from dataspace.codec import pack
from dataspace.errors import DataspaceError, Refused, UsageError
from dataspace.loops.here import loop
from index.values.freezing import freeze
from index.values.values import Map, Value

RENEWALS: Final = 3
"""How often a hold is renewed in its time."""

LONGEST: Final = 86_400.0
"""Seconds that a hold may last without being renewed."""


class Hold:
    """A fact under a lease of its own; made by ``space.hold``."""

    def __init__(self, session: ClientSession, ttl: float, name: str) -> None:
        if not 0.01 <= ttl <= LONGEST:
            raise UsageError(f"ttl is in seconds, from 0.01 to {LONGEST:g}, not {ttl!r:.40}")
        if ":" in name or len(name) > 128:
            raise UsageError(f"the name of a hold has no colon and at most 128 characters, got {name!r:.150}")
        self.name: Final = name or uuid.uuid4().hex
        self.owner: Final = f"lease:{max(1, round(ttl * 1000))}:hold-{self.name}"
        """The owner of the fact."""
        self.epoch = 0
        """The epoch in which the fact was last stated."""
        self.reason = ""
        """Why the hold has ended, as far as this client knows; empty while it runs."""
        self._ttl: Final = ttl
        self._session: Final = session
        self._client: Final = f"~hold-{uuid.uuid4().hex}"
        self._sequence = 0
        self._scope = loop().scope()

    async def put(self, value: object) -> int:
        """States a fact in place of the held one, and renews; returns the epoch.

        A hold that has ended begins anew.
        """
        fact = freeze(value)
        self._sequence += 1
        told: dict[str, Value] = {
            "keys": (pack((("assert", fact),)),),
            "owner": self.owner,
            "client": self._client,
            "sequence": self._sequence,
            "replace": True,
        }
        epoch = await self._session.request("publish", Map(told))
        assert isinstance(epoch, int)  # by WIRE.md
        self.epoch, self.reason = epoch, ""
        return epoch

    async def renew(self) -> None:
        """Lets the fact stay for another ``ttl`` seconds from now; raises ``Refused("no-lease")`` if it has
        ended."""
        try:
            await self._session.request("renew", Map({"owner": self.owner}))
        except Refused as refusal:
            self.reason = refusal.text
            raise

    async def release(self) -> None:
        """Retracts the fact now; does nothing if it has ended."""
        self._scope.cancel()
        try:
            await self._session.request("release", Map({"owner": self.owner}))
        except Refused as refusal:
            if refusal.code != "no-lease":
                raise
        self.reason = "it was released"

    def keep(self) -> None:
        """Renews it from now on, for as long as the connection is open; it stops where the hold has ended."""
        self._session.start_soon(self._keep)

    async def _keep(self) -> None:
        with self._scope:
            while True:
                await loop().sleep(self._ttl / RENEWALS)
                try:
                    await self.renew()
                except DataspaceError as error:  # it has ended, or there will be no further connection
                    self.reason = str(error)
                    return
