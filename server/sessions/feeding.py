"""What a feature does for one connection: it feeds streams of its kind, and takes packets of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dataspace.wire import packets as p

if TYPE_CHECKING:
    from index.values.values import Map
    from relay.delivery.outbox import OutStream
    from server.lane import Work


class Feeder:
    """Serves one connection in one feature, which has those of these methods that it needs."""

    @property
    def is_busy(self) -> bool:
        """True while the client waits for something that is no answer to a request."""
        return False

    async def prepare_open(self, spec: Map, work: Work) -> None:
        """Does in the lane what ``open``, which follows at once, would need long for in one step."""

    def open(self, stream: OutStream, spec: Map) -> None:
        """Begins to feed a stream; raises ``Refused`` or ``UsageError`` for a spec that cannot be served, or
        not to this client."""

    def asked(self, stream: OutStream) -> None:
        """Notes that the client has asked for more of a stream."""

    async def hear(self, packet: p.Packet) -> None:
        """Acts on a packet that is the feature's own."""

    def reached(self) -> Iterable[p.Packet]:
        """Returns packets about the progress of idle streams; called in each interval of the heartbeat."""
        return ()

    def close(self, stream: OutStream) -> None:
        """Stops feeding a stream, if this feeds it."""

    async def close_feeds(self) -> None:
        """Does in the lane what ``end``, which follows, would need long for in one step."""

    def end(self, reason: str) -> None:
        """Stops feeding all streams, since the peer has ended; may be called again after a defect."""
