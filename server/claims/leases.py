"""Requests about leases: begin, renew, release."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from dataspace.wire.arguments import text
from index.values.values import Map, Value
from server.sessions.peer import Peer


async def _lease(holder: Peer, arguments: Map) -> Value:
    """Grants or renews a lease; the answer is whether it is a new one, without facts."""
    owner = holder.bearer.lease(text(arguments, "owner"))
    return Map({"fresh": holder.home.leases.grant(owner, holder.account)})


async def _renew(holder: Peer, arguments: Map) -> Value:
    """Renews a lease; denied if it has ended."""
    holder.home.leases.renew(holder.bearer.own(text(arguments, "owner")))
    return None


async def _release(holder: Peer, arguments: Map) -> Value:
    """Ends a lease and retracts what it owned."""
    holder.home.leases.release(holder.bearer.own(text(arguments, "owner")))
    return None


VERBS: Final[Mapping[str, Callable[[Peer, Map], Awaitable[Value]]]] = {
    "lease": _lease,
    "renew": _renew,
    "release": _release,
}
