"""Publishers: who publishes in the name of a durable owner, so that two who share one by mistake are told.

A query that numbers its batches keeps account of what its writer claims: what it replaces, and what a key
stands for.  Two of them under one writer undo each other's work without ever failing.  So the one that began
last has the writer, as producers of other systems fence each other off: whoever had it before is refused from
then on, and told who took it.  A new checkpoint takes over from an old one in the same way.

Always: whoever is refused has published before, so nobody who begins is; what was published is not touched.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from dataspace.errors import Refused

KNOWN: Final = 65_536
"""Publishers that are remembered; of further ones those are forgotten that did not publish for longest."""


class Publishers:
    """The latest publisher of each writer since the daemon started."""

    __slots__ = ("_latest",)

    def __init__(self) -> None:
        self._latest: OrderedDict[str, tuple[str, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._latest)

    def check(self, owner: str, client: str, *, began: bool) -> None:
        """Refuses a client that has begun to publish, if another one has taken the writer since."""
        latest, epoch = self._latest.get(owner, (client, 0))
        if began and latest != client:
            raise Refused(
                "writer-taken",
                f"writer {owner!r} has been written to by {latest} since epoch {epoch}: two queries with one "
                f"writer undo each other's work, so give {client} a writer of its own, or a new checkpoint "
                f"with which to take this one over",
            )

    def published(self, owner: str, client: str, epoch: int) -> None:
        """Notes who has the writer from now on."""
        latest = self._latest.get(owner)
        if latest is None or latest[0] != client:
            self._latest[owner] = (client, epoch)
        self._latest.move_to_end(owner)
        if len(self._latest) > KNOWN:
            self._latest.popitem(last=False)
