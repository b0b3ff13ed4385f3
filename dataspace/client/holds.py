"""Holds: a fact under a lease of its own, which needs no connection.

A hold outlasts the connection that made it, and the daemon: its fact stays for ``ttl`` seconds after the last
``put`` or ``renew``, of this client or of another one of the same principal that knows its name.  A turn over
HTTP in the name of a lease does the same.

``hold.ended`` is set when this client learns that the hold has ended.  A block, ``async with hold``, is
cancelled then, and raises that at its end.

Always: a hold has one fact; while another fact takes its place no observer sees two, or none; a turn that is
sent again after a lost connection happens once.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from dataspace.client.session.session import ClientSession
from dataspace.codec import pack
from dataspace.errors import DataspaceError, Refused, Unreachable, UsageError
from dataspace.loops.here import loop
from dataspace.loops.primitives import Event, Scope
from index.values.freezing import freeze
from index.values.values import Map, Value

RENEWALS: Final = 3
"""How often a hold is renewed in its time, and how often in a third of it where there was no answer."""

RELEASED: Final = "it was released"
"""The reason of a hold that this client has released."""

RELEASE_SECONDS: Final = 1.0
"""Seconds for which the end of a block waits until the fact is retracted."""

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
        self._renewing: Scope | None = None
        self._renews = self._is_renewing = False
        self._blocks: list[Scope] = []
        self.ended: Event = loop().event()
        """Set when this client learns that the hold has ended, or renews it no more.

        A later ``put`` begins anew, with another event.
        """

    async def put(self, value: object) -> int:
        """States a fact in place of the held one, and renews; returns the epoch.

        A hold that has ended begins anew.
        """
        fact = freeze(value)
        self._sequence += 1
        arguments: dict[str, Value] = {
            "keys": (pack((("assert", fact),)),),
            "owner": self.owner,
            "client": self._client,
            "sequence": self._sequence,
            "replace": True,
        }
        epoch = await self._session.request("publish", Map(arguments))
        assert isinstance(epoch, int)  # by WIRE.md
        self.epoch, self.reason = epoch, ""
        if self.ended.is_set():
            self.ended = loop().event()
        if self._renews:
            self.keep()
        return epoch

    async def renew(self) -> None:
        """Keeps the fact for another ``ttl`` seconds from now; raises ``Refused("no-lease")`` if it has
        ended."""
        try:
            await self._session.request("renew", Map({"owner": self.owner}))
        except Refused as refusal:
            self._end(refusal.text)
            raise

    async def release(self) -> None:
        """Retracts the fact now; does nothing if it has ended."""
        self._renews = False
        if self._renewing is not None:
            self._renewing.cancel()
        try:
            await self._session.request("release", Map({"owner": self.owner}))
        except Refused as refusal:
            if refusal.code != "no-lease":
                raise
        self.reason = RELEASED
        self.ended.set()

    def keep(self) -> None:
        """Renews it from now on, for as long as the connection is open; it stops where the hold has ended."""
        self._renews = True
        if not self._is_renewing:
            self._is_renewing = True
            self._session.start_soon(self._keep)

    async def _keep(self) -> None:
        try:
            with loop().scope() as self._renewing:
                pause = self._ttl / RENEWALS
                while self._renews and not self.ended.is_set():
                    await loop().sleep(pause)
                    try:
                        await self.renew()
                        pause = self._ttl / RENEWALS
                    except Unreachable:  # this call has waited in vain, and the lease may be there still
                        pause = self._ttl / RENEWALS / RENEWALS
        except DataspaceError as error:  # it has ended, or there will be no further connection
            self._end(str(error))
        finally:
            self._is_renewing, self._renewing = False, None

    def _end(self, reason: str) -> None:
        """Notes that the hold has ended, as far as this client knows."""
        self.reason = reason
        self.ended.set()
        for block in self._blocks:
            block.cancel()

    def check(self) -> None:
        """Raises ``Refused("no-lease")`` if the hold has ended, as far as this client knows."""
        if self.ended.is_set():
            raise Refused("no-lease", f"the hold {self.name!r:.80} has ended: {self.reason}")

    async def __aenter__(self) -> Self:
        """Begins a block that is cancelled once the hold has ended, and then raises ``Refused("no-lease")``.

        The end of the block releases the hold, and waits for at most a second for that: if the daemon is
        away, the fact ends when its time is over.
        """
        self.check()
        self._blocks.append(loop().scope())
        self._blocks[-1].__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        block = self._blocks.pop()
        block.__exit__(kind, error, trace)
        if (error is None and self.reason != RELEASED) or block.cancelled_caught:
            self.check()
        if not self.ended.is_set():
            with loop().move_on_after(RELEASE_SECONDS, shield=True), suppress(DataspaceError):
                await self.release()  # if it cannot be, the fact ends by itself
        return block.cancelled_caught
