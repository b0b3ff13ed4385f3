"""Publishers: which client publishes under a writer, because two of them would undo each other's work."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from dataspace.errors import Refused
from server.owners.bearers import stated

WRITERS: Final = 65_536
"""Owners whose publisher is remembered; beyond that the least recently published ones are forgotten."""


class Publishers:
    """The latest publisher of each writer since the daemon started.

    A query that numbers its batches relies on its writer's claims: the facts that it replaces, and the facts
    of a key.  Two of them under one writer would undo each other's work without an error.  So the writer
    belongs to the publisher that began last, as with fenced producers in other systems: the one before is
    refused from then on, with the name of the new one.  A new checkpoint takes over from an old one in the
    same way.

    Always: only a client that has published before is refused, never a client that begins; published facts
    stay.
    """

    __slots__ = ("_latest", "_most")

    def __init__(self, most: int = WRITERS) -> None:
        self._most = most
        self._latest: OrderedDict[str, tuple[str, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._latest)

    def check(self, owner: str, client: str, *, began: bool) -> None:
        """Refuses a client that has begun to publish, if another one has taken the writer since."""
        latest, epoch = self._latest.get(owner, (client, 0))
        if began and latest != client:
            writer, mine, other = (stated(each) for each in (owner, client, latest))
            raise Refused(
                "writer-taken",
                f"writer {writer!r} has been written to by {other} since epoch {epoch}: two queries with one "
                f"writer undo each other's work, so give {mine} a writer of its own, or a new checkpoint "
                f"with which to take this one over",
            )

    def published(self, owner: str, client: str, epoch: int) -> None:
        """Notes the client that has the writer from now on."""
        latest = self._latest.get(owner)
        if latest is None or latest[0] != client:
            self._latest[owner] = (client, epoch)
        self._latest.move_to_end(owner)
        if len(self._latest) > self._most:
            self._latest.popitem(last=False)
