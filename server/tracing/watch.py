"""The reports of connections in a daemon that traces: a refusal is noted in the trace of its turn, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.monitoring.watch import Watch
from server.tracing.traces import TRACED

if TYPE_CHECKING:
    from server.monitoring.watch import Peer


class TracedWatch(Watch):
    """The reports of all connections of one daemon."""

    def refused(self, peer: Peer, code: str, text: str) -> None:
        """Notes that a turn, a request or a stream was refused."""
        super().refused(peer, code, text)
        if (trace := TRACED.get()) is not None:
            trace.code = code
