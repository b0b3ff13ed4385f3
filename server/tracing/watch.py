"""The reports of connections in a daemon that traces: a refusal is noted in the trace of its turn, too."""

from __future__ import annotations

from server.sessions.watch import Watch, Who
from server.tracing.traces import TRACED


class TracedWatch(Watch):
    """The reports of all connections of one daemon."""

    def refused(self, who: Who, code: str, text: str) -> None:
        """Notes that a turn, a request or a stream was refused."""
        super().refused(who, code, text)
        if (trace := TRACED.get()) is not None:
            trace.code = code
