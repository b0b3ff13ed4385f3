"""Places: what a connection takes of what all connections share, and how it waits for its turn.

Always: what a connection has taken is given back once, when it ends.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol

from dataspace.errors import ProtocolError, Refused
from dataspace.transport.tls import encryption_of
from dataspace.wire import packets as p
from index.values.values import Record
from server.owners.accounts import STREAM_BYTES, Account, Accounts

if TYPE_CHECKING:
    from dataspace.transport.sockets import Link
    from relay.delivery.outbox import OutStream
    from server.config.model import Limits
    from server.config.principals import Principal
    from server.system import SystemSpace

NAME_SHOWN: Final = 256
"""Characters of what a client calls itself that are stated."""

logger = logging.getLogger("dataspace")


class Shared(Protocol):
    """The daemon, as far as its connections share it; ``streams`` counts those of all connections."""

    streams: int

    @property
    def limits(self) -> Limits:
        """The limits that the daemon was given."""

    @property
    def accounts(self) -> Accounts:
        """What each principal has."""

    @property
    def system(self) -> SystemSpace:
        """The space in which the daemon describes itself."""


class Places:
    """The places of one connection: as a stranger, as a connection, and for its streams."""

    __slots__ = ("_about", "_house", "account")

    def __init__(self, house: Shared, principal: Principal) -> None:
        self._house = house
        self.account: Account = house.accounts.of(principal)
        """That of the address until the hello, and of the token, if there is one, from then on."""
        self._about: tuple[Record, ...] = ()
        """What is stated of a connection that has been counted."""

    def enter(self, principal: Principal, number: int, space: str, name: str, link: Link) -> None:
        """Counts a connection of a principal, and states it; raises ``ProtocolError`` for one too many."""
        account = self._house.accounts.of(principal)
        try:
            account.take("connections")
        except Refused as refusal:
            raise ProtocolError(refusal.code, refusal.text) from None
        self.account = account
        self._about = (
            Record("session", number, space, name[:NAME_SHOWN], str(principal)),
            Record("connection", number, link.peer, encryption_of(link), time.time_ns() // 1000),
        )
        self._house.system.state(self._about, ())

    def take_stream(self, streams: Mapping[int, OutStream]) -> None:
        """Counts one more stream; raises ``Refused`` where those are too many here, or in all."""
        limits, here, all_here = self._house.limits, len(streams), self._house.streams
        if here >= limits.streams:
            raise Refused("limit", f"{here} streams, the limit is limits.streams={limits.streams}")
        if all_here >= limits.all_streams:
            said = f"{all_here} streams of all connections"
            raise Refused("limit", f"{said}, the limit is limits.all_streams={limits.all_streams}")
        self.account.grow(0, STREAM_BYTES)
        self.account.take("streams")
        self._house.streams += 1

    def give_streams(self, count: int = 1) -> None:
        """Counts so many streams less."""
        self.account.give("streams", count)
        self._house.streams -= count

    def leave(self, streams: int) -> None:
        """Gives back all places, those of so many streams among them."""
        self.give_streams(streams)
        if self._about:
            self.account.give("connections")
            self._house.system.state((), self._about)
            self._about = ()

    async def pace(self, packet: p.Packet) -> None:
        """Waits while the principal has sent more turns or requests than it may in a second."""
        if packet.__class__ is p.Turn:
            await self.account.pace("turns")
        elif packet.__class__ is p.Request or packet.__class__ is p.Produce:
            await self.account.pace("requests")

    async def slow_down(self, peer: str, error: ProtocolError) -> None:
        """Logs a token that is not valid, and waits before that is answered: longer each time."""
        if error.code == "unauthorized":
            logger.warning("refused a token from %s: %s", peer, error.text)
            await self.account.slow_down(self._house.limits.hello_seconds / 2)
