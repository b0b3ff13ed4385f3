"""Owners of facts: the request that shows them, for bearers that may inspect.

The daemon chooses what the name of an owner ends with (``bearers``), so the bearer and the stamp that it
shows are not what a client said of itself, and no other bearer can have them.

Always: an asker sees owners only of facts that it may observe itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from dataspace.codec import pack
from dataspace.errors import Refused
from dataspace.kernel.space import Space
from dataspace.steps import Steps
from dataspace.wire.arguments import number
from index.patterns.patterns import matcher
from index.values.values import Map, Value
from server.owners.bearers import parted
from server.owners.looking import look
from server.sessions.peer import Peer

MOST: Final = 10_000
"""Claims in one answer."""

SIZE: Final = 1 << 20
"""Bytes of facts in one answer, about."""


async def _owners(peer: Peer, arguments: Map) -> Value:
    """Returns the claims on facts that match a pattern, with the owner, the bearer and the stamp of each.

    O(claims), in slices of the lane; at most ``most`` claims, and about a mebibyte of facts.  Nothing is
    copied before the request has its turn.
    """
    pattern, most = arguments.get("pattern"), number(arguments, "most", 1_000)
    if not 1 <= most <= MOST:
        raise Refused("bad-request", f"most must be a number from 1 to {MOST}, got {most}")
    permit = peer.bearer.permit
    permit.check_inspect("the owners of facts")
    permit.check_observe(pattern)
    return await peer.work().do(_claims(peer.home.space, pattern, most))


def _claims(space: Space, pattern: Value, most: int) -> Steps[Value]:
    """Returns claims on facts that match, in steps; owners that come meanwhile are left out."""
    matches, found, size = matcher(pattern), list[Value](), 0
    for owner in space.owners():
        for each in look(space, owner, matches):
            if each is None:
                yield
                continue
            found.append(Map({"fact": each.value, **said_of(owner)}))
            size += len(pack(each.value))
            if len(found) >= most or size >= SIZE:
                return tuple(found)
    return tuple(found)


def said_of(owner: str) -> dict[str, Value]:
    """Returns what the name of an owner says: the name that was stated, the bearer, and its stamp.

    >>> said_of("session:1.2 @ token:gateway/kitchen by=sensor-7")["stamp"]
    Map((('by', 'sensor-7'),))
    """
    own, end = parted(owner)
    bearer, *stamps = end.split(" ")
    stamp = Map(dict([each.split("=", 1) for each in stamps]))
    return {"owner": own, "bearer": bearer, "stamp": stamp}


VERBS: Final[Mapping[str, Callable[[Peer, Map], Awaitable[Value]]]] = {"owners": _owners}
