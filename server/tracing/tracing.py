"""Tracing: everything that a daemon needs to trace turns, in one object; None where it does not.

Always: nothing of OpenTelemetry is loaded unless the configuration names a collector.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import time_ns
from typing import TYPE_CHECKING, Final

import trio

from dataspace.errors import Refused, UsageError
from server.parts import PartKey
from server.spaces.traces import SPANS, Recorder

if TYPE_CHECKING:
    from index.values.values import Map, Value
    from server.config.model import Traces
    from server.sessions.peer import Peer
    from server.sessions.requests import Unread, Unwritten
    from server.tracing.exporting import Spans

PACKAGES: Final = ("opentelemetry", "google", "requests")


class Tracing:
    """The tracing of one daemon."""

    def __init__(self, spans: Spans, ratio: float) -> None:
        self._spans: Final = spans
        self.recorder: Final = Recorder(spans, ratio)
        """Where turns are traced."""

    @property
    def sent(self) -> int:
        """Spans that the collector has taken."""
        return self._spans.sent

    @property
    def dropped(self) -> int:
        """The approximate number of spans that it has not taken, or that were not made because too many
        waited."""
        return self._spans.dropped + SPANS * self.recorder.left_out

    async def close(self) -> None:
        """Sends the spans of all turns that were begun; takes a few seconds at most."""
        with trio.CancelScope(shield=True):
            self.recorder.end()
            await self._spans.close()


@asynccontextmanager
async def tracing_by(traces: Traces) -> AsyncIterator[Tracing | None]:
    """Opens what the settings ask for, for the block; at its end what waits is sent.

    Raises ``UsageError`` where the extra ``otel`` is not installed.
    """
    tracing = open_tracing(traces)
    try:
        yield tracing
    finally:
        if tracing is not None:
            await tracing.close()


def open_tracing(traces: Traces) -> Tracing | None:
    """Returns what the settings ask for; None if they name no collector.  Raises as ``tracing_by`` does."""
    if traces.to is None:
        return None
    try:
        from server.tracing.exporting import Spans  # only where traces are asked for
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in PACKAGES:
            raise
        raise UsageError(
            "traces need the packages opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http: "
            "pip install 'dataspace-server[otel]', or start without traces"
        ) from None
    return Tracing(Spans(traces.to), traces.ratio)


def traced_publish(publish: Unread, recorder: Recorder) -> Unread:
    """Returns the request ``publish``, which is a turn, of HTTP and of bulk writers, with its trace."""

    async def traced(peer: Peer, arguments: Map) -> Value | Unwritten:
        parent, keys = arguments.get("traceparent"), arguments.get("keys")
        size = len(keys) if isinstance(keys, tuple) else 0
        traceparent = parent if isinstance(parent, str) else ""
        with recorder.acting("publish", peer, size, traceparent, time_ns()) as trace:
            try:
                answer = await publish(peer, arguments)
            except Refused as refusal:
                if trace is not None and not trace.epoch:
                    recorder.refused(trace, refusal.code)
                raise
        if trace is not None and trace.epoch:
            recorder.answered(trace)
        elif trace is not None:
            recorder.refused(trace, "")
        return answer

    return traced


TRACING: Final = PartKey[Tracing]("tracing")
"""There where traces are exported."""
