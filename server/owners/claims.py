"""Who claims what: the request that shows the owners of facts, to those who may inspect.

The daemon chooses what the name of an owner ends with (``bearers``), so the bearer and the stamp that it
shows are not what a client said of itself, and no other bearer can have them.

Always: an asker sees owners only of facts that it may observe itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol

import trio

from dataspace.codec import pack
from dataspace.errors import Refused
from dataspace.wire.arguments import number
from index.patterns.patterns import matcher
from index.values.values import Map, Value
from server.owners.bearers import Bearer, parted

MOST: Final = 10_000
"""Claims in one answer."""

SIZE: Final = 1 << 20
"""Bytes of facts in one answer, about."""

LOOKED_AT: Final = 2_048
"""Claims that are compared with the pattern at once."""


class ClaimedSpace(Protocol):
    """The facts and their owners."""

    def owners(self) -> Sequence[str]:
        """Returns all who claim something."""

    def claims(self, owner: str) -> Mapping[int, Value]:
        """Returns what an owner claims, by handle."""


class ClaimsHome(Protocol):
    """The space that a session is about."""

    @property
    def space(self) -> ClaimedSpace:
        """The facts and their owners."""


class ClaimsPeer(Protocol):
    """The connection that asks."""

    @property
    def home(self) -> ClaimsHome:
        """The space that the session is about."""

    @property
    def bearer(self) -> Bearer:
        """Who the client is, and what it may do."""


async def _owners(peer: ClaimsPeer, arguments: Map) -> Value:
    """Returns the claims on facts that match a pattern, with the owner, the bearer and the stamp of each.

    O(claims), in slices; at most ``most`` claims, and about a mebibyte of facts.
    """
    pattern, most = arguments.get("pattern"), number(arguments, "most", 1_000)
    if not 1 <= most <= MOST:
        raise Refused("bad-request", f"most must be a number from 1 to {MOST}, got {most}")
    permit, space = peer.bearer.permit, peer.home.space
    permit.check_inspect("the owners of facts")
    permit.check_observe(pattern)
    matches, found, size = matcher(pattern), list[Value](), 0
    await trio.lowlevel.checkpoint()
    for owner in space.owners():
        values = list(space.claims(owner).values())
        for first in range(0, len(values), LOOKED_AT):
            for value in values[first : first + LOOKED_AT]:
                if matches(value) is not None:
                    found.append(Map({"fact": value, **said_of(owner)}))
                    size += len(pack(value))
                    if len(found) >= most or size >= SIZE:
                        return tuple(found)
            await trio.lowlevel.checkpoint()
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


VERBS: Final[Mapping[str, Callable[[ClaimsPeer, Map], Awaitable[Value]]]] = {"owners": _owners}
