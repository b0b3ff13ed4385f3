"""Requests about leases: begin, renew, release."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

from dataspace.wire.arguments import text
from index.values.values import Map, Value
from server.owners.accounts import Account
from server.owners.bearers import Bearer
from server.owners.leases import Leases


class LeaseSpace(Protocol):
    """A space that has leases."""

    @property
    def leases(self) -> Leases:
        """The leases of the space."""


class LeasePeer(Protocol):
    """The connection that requests leases."""

    @property
    def account(self) -> Account:
        """What the principal of the client has."""

    @property
    def home(self) -> LeaseSpace:
        """The space that the session is about."""

    @property
    def bearer(self) -> Bearer:
        """The client's identity and its rights."""


async def _lease(holder: LeasePeer, arguments: Map) -> Value:
    """Grants or renews a lease; the answer is whether it is a new one, without facts."""
    owner = holder.bearer.lease(text(arguments, "owner"))
    return Map({"fresh": holder.home.leases.grant(owner, holder.account)})


async def _renew(holder: LeasePeer, arguments: Map) -> Value:
    """Renews a lease; denied if it has ended."""
    holder.home.leases.renew(holder.bearer.own(text(arguments, "owner")))
    return None


async def _release(holder: LeasePeer, arguments: Map) -> Value:
    """Ends a lease and retracts what it owned."""
    holder.home.leases.release(holder.bearer.own(text(arguments, "owner")))
    return None


VERBS: Final[Mapping[str, Callable[[LeasePeer, Map], Awaitable[Value]]]] = {
    "lease": _lease,
    "renew": _renew,
    "release": _release,
}
