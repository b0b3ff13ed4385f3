"""The way of spans to a collector: the batch processor of OpenTelemetry's SDK, and its exporter over HTTP.

They work in a thread of their own.  A collector that is down or slow costs the daemon nothing but the spans:
waiting spans are bounded, and further spans are not even made.

Always: one line of the log when the collector stops to take spans, one when it takes them again; between them
one in each ``REMINDER``; spans are counted as sent or as dropped.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING, Final

import trio
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    set_span_in_context,
)

from dataspace.version import __version__
from server.spaces.traces import SPANS

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue

    from dataspace.wire.traceparents import Parent
    from server.spaces.traces import Trace


logger = logging.getLogger("dataspace")

WAITING: Final = 4096
"""Spans that may wait for the collector."""

BATCH: Final = 512
BATCH_SECONDS: Final = 1.0
"""Spans of one request to the collector, and the seconds after which fewer are sent."""

EXPORT_SECONDS: Final = 10.0
"""Seconds in which a collector must take a batch, all attempts included."""

REMINDER: Final = 600.0
"""Seconds between two lines about a collector that takes no spans."""

FLUSH_SECONDS: Final = 3.0
"""Seconds that the end of the daemon waits for the collector."""


class Spans:
    """Makes spans of turns, and sends them; an ``Outlet`` of the recorder."""

    def __init__(self, to: str) -> None:
        """``to`` is the URL of a collector.

        The environment of OpenTelemetry says the rest: ``OTEL_EXPORTER_OTLP_HEADERS``, ``OTEL_SERVICE_NAME``,
        ``OTEL_RESOURCE_ATTRIBUTES`` and their like.
        """
        self._quiet: Final = _Quiet()
        self._collector: Final = _Collector(to, self._quiet)
        self._processor: Final = BatchSpanProcessor(
            self._collector,
            max_queue_size=WAITING,
            schedule_delay_millis=BATCH_SECONDS * 1000,
            max_export_batch_size=BATCH,
        )
        named = Resource({"service.name": "dataspace", "service.version": __version__})
        provider = TracerProvider(ALWAYS_ON, named.merge(_environment()), shutdown_on_exit=False)
        provider.add_span_processor(self._processor)
        self._tracer: Final = provider.get_tracer("dataspace", __version__)
        self._made = self._unmade = 0

    @property
    def is_full(self) -> bool:
        """True while as many spans wait as may."""
        return self._made - self._collector.taken > WAITING - SPANS

    @property
    def sent(self) -> int:
        """Spans that the collector has taken."""
        return self._collector.sent

    @property
    def dropped(self) -> int:
        """The approximate number of spans that it has not taken, or that were not made because too many
        waited."""
        return self._collector.dropped + self._unmade

    def write(self, trace: Trace) -> None:
        """Makes the spans of a turn that is over; drops it if they would be too many."""
        if self.is_full:
            self._unmade += SPANS
        else:
            self._made += write_spans(self._tracer, trace)

    async def close(self) -> None:
        """Sends what waits, within ``FLUSH_SECONDS``, and ends the thread."""
        with trio.move_on_after(FLUSH_SECONDS):
            await trio.to_thread.run_sync(self._processor.force_flush, abandon_on_cancel=True)
        self._collector.close()
        threading.Thread(target=self._processor.shutdown, name="the end of traces", daemon=True).start()
        self._quiet.end()


class _Collector(SpanExporter):
    """The exporter, and the counts of what became of its spans; runs in the thread of the processor."""

    def __init__(self, to: str, quiet: _Quiet) -> None:
        self.taken = self.sent = self.dropped = 0
        self._to = to
        self._quiet = quiet
        self._exporter = OTLPSpanExporter(endpoint=to, timeout=EXPORT_SECONDS)
        self._silent_until = 0.0
        """When the next line about a collector that takes no spans is due; 0 while it takes them."""
        self._lost = 0
        self._closed = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Sends a batch; whatever becomes of it, it waits no longer."""
        self.taken += len(spans)
        if self._closed:
            self.dropped += len(spans)
            return SpanExportResult.FAILURE
        self._quiet.said = ""
        result = self._exporter.export(spans)
        if result is SpanExportResult.SUCCESS:
            self.sent += len(spans)
            if self._silent_until:
                logger.warning("traces: %s takes spans again; %d were dropped", self._to, self._lost)
            self._silent_until, self._lost = 0.0, 0
        else:
            self._note_lost(len(spans))
        return result

    def _note_lost(self, count: int) -> None:
        self.dropped += count
        self._lost += count
        if monotonic() >= self._silent_until:
            self._silent_until = monotonic() + REMINDER
            said = self._quiet.said or "it did not answer"
            logger.warning("traces: %s takes no spans, which are dropped: %s", self._to, said)

    def close(self) -> None:
        """Ends an attempt that is under way; what still comes is dropped."""
        self._closed = True
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # of the library

    def shutdown(self) -> None:
        """Does nothing more than ``close``, which came before."""

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Returns True: nothing waits here."""
        return True


class _Quiet(logging.Handler):
    """Takes the lines of OpenTelemetry from the log, and keeps the first of an attempt as its reason."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said = ""
        self._logger = logging.getLogger("opentelemetry")
        self._before = self._logger.propagate
        self._logger.propagate = False
        self._logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps the first line."""
        self.said = self.said or record.getMessage()[:300]

    def end(self) -> None:
        """Leaves these lines to the log again."""
        self._logger.removeHandler(self)
        self._logger.propagate = self._before


def _environment() -> Resource:
    """Returns what the environment says of this service; the SDK's default would call it unknown."""
    return OTELResourceDetector().detect()


# -- Spans of a turn -------------------------------------------------------------------------------
# ``turn`` (or ``publish``) is from the arrival of its bytes to the moment in which its answer was
# written to the socket. Below it are ``commit``, ``disk`` and ``deliver``. Spans that are made
# afterwards cost less than context managers around each step, and say the same.
#
# Always: attributes are numbers and the daemon's own words; no fact, no pattern and no text of a
# client.


SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)


def write_spans(tracer: Tracer, trace: Trace) -> int:
    """Makes the spans of a turn, and returns how many."""
    end = max(trace.ended, trace.durable, trace.committed, trace.began)
    root = tracer.start_span(
        trace.kind,
        _context_of(trace.parent),
        kind=SpanKind.SERVER,
        attributes=_attributes(trace),
        start_time=trace.arrived,
    )
    within = set_span_in_context(root, Context())
    attributes: dict[str, AttributeValue] = {"dataspace.actions": trace.actions}
    committed = trace.committed or end
    _span(tracer, within, "commit", trace.began, committed, attributes)
    count = 2
    if trace.durable:
        attributes = {
            "dataspace.group.epochs": trace.group,
            "dataspace.group.wait": max(0, trace.group_began - committed) / 1e9,
        }
        _span(tracer, within, "disk", committed, trace.durable, attributes)
        count += 1
    if trace.observers:
        attributes = {
            "dataspace.observers": trace.observers,
            "dataspace.observers.followed": trace.following,
            "dataspace.observers.late": trace.late,
        }
        if trace.first:
            attributes["dataspace.first"] = (trace.first - committed) / 1e9
        _span(tracer, within, "deliver", committed, max(trace.last, committed), attributes)
        count += 1
    if trace.code:
        root.set_status(Status(StatusCode.ERROR, trace.code))
    root.end(end)
    return count


def _span(
    tracer: Tracer, within: Context, name: str, begin: int, end: int, attributes: dict[str, AttributeValue]
) -> None:
    tracer.start_span(name, within, attributes=attributes, start_time=begin).end(end)


def _attributes(trace: Trace) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {
        "dataspace.space": trace.peer.hosted.name,
        "dataspace.connection": trace.peer.number,
        "dataspace.principal": str(trace.peer.principal),
        "dataspace.outcome": trace.outcome,
    }
    if trace.epoch:
        attributes["dataspace.epoch"] = trace.epoch
    if trace.code:
        attributes["dataspace.code"] = trace.code
    return attributes


def _context_of(parent: Parent | None) -> Context:
    """Returns the context of the parent that a client has stated: an empty one makes a trace of its own."""
    if parent is None:
        return Context()
    caused = SpanContext(parent.trace, parent.span, is_remote=True, trace_flags=SAMPLED)
    return set_span_in_context(NonRecordingSpan(caused), Context())
