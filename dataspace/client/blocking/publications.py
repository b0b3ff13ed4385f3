"""Publications without ``async``; see ``dataspace.client.publications``."""

from __future__ import annotations

from collections.abc import Mapping

from dataspace.client.blocking.waiting import Blocking, Waiter, documented_by, waiting
from dataspace.client.publications import Capability, Publication
from dataspace.topics.times import Time


class BlockingPublication(Blocking[Publication]):
    """One producer of a topic; see ``Publication``."""

    def __init__(self, publication: Publication, wait: Waiter) -> None:
        self._remote = publication
        self._wait = wait

    @property
    def time(self) -> Time | None:
        """The time of the first capability; None once it is released."""
        return self._remote.time

    @property
    def topic(self) -> str:
        """The name of the topic."""
        return self._remote.topic

    @property
    def partition(self) -> int:
        """The number of its partition."""
        return self._remote.partition

    @property
    def name(self) -> str:
        """The name by which another connection, or another process, can resume the publication."""
        return self._remote.name

    @property
    def sent(self) -> Mapping[Time, int]:
        """Batches of each open epoch that were sent under this name before it was taken up."""
        return self._remote.sent

    @property
    def capabilities(self) -> list[BlockingCapability]:
        """Further capabilities of a publication that was taken up by its name, beside the first."""
        return [BlockingCapability(each, self._wait) for each in self._remote.capabilities]

    send = waiting(Publication.send)
    finish = waiting(Publication.finish)
    advance = waiting(Publication.advance)
    release = waiting(Publication.release)
    flush = waiting(Publication.flush)

    @documented_by(Publication.hold)
    def hold(self, time: Time) -> BlockingCapability:
        return BlockingCapability(self._wait(self._remote.hold, time), self._wait)

    @documented_by(Publication.crash)
    def crash(self, reason: str) -> None:
        async def leave() -> None:
            self._remote.crash(reason)

        self._wait(leave)


class BlockingCapability(Blocking[Capability]):
    """The right to send at ``time`` and later; see ``Capability``."""

    def __init__(self, capability: Capability, wait: Waiter) -> None:
        self._remote = capability
        self._wait = wait

    @property
    def time(self) -> Time | None:
        """The earliest time; None once it is released."""
        return self._remote.time

    downgrade = waiting(Capability.downgrade)
    release = waiting(Capability.release)
