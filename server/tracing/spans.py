"""Spans of a turn that is over, made of its times in one go.

``turn`` (or ``publish``) is from the arrival of its bytes to the moment in which its answer was written to
the socket.  Below it are ``commit``, ``disk`` and ``deliver``.  Spans that are made afterwards cost less than
context managers around each step, and say the same.

Always: attributes are numbers and the daemon's own words; no fact, no pattern and no text of a client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from opentelemetry.context import Context
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

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue

    from dataspace.wire.traceparents import Parent
    from server.spaces.traces import Trace

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
    said: dict[str, AttributeValue] = {"dataspace.actions": trace.actions}
    committed = trace.committed or end
    _span(tracer, within, "commit", trace.began, committed, said)
    count = 2
    if trace.durable:
        said = {
            "dataspace.group.epochs": trace.group,
            "dataspace.group.wait": max(0, trace.group_began - committed) / 1e9,
        }
        _span(tracer, within, "disk", committed, trace.durable, said)
        count += 1
    if trace.observers:
        said = {
            "dataspace.observers": trace.observers,
            "dataspace.observers.followed": trace.following,
            "dataspace.observers.late": trace.late,
        }
        if trace.first:
            said["dataspace.first"] = (trace.first - committed) / 1e9
        _span(tracer, within, "deliver", committed, max(trace.last, committed), said)
        count += 1
    if trace.code:
        root.set_status(Status(StatusCode.ERROR, trace.code))
    root.end(end)
    return count


def _span(
    tracer: Tracer, within: Context, name: str, begin: int, end: int, said: dict[str, AttributeValue]
) -> None:
    tracer.start_span(name, within, attributes=said, start_time=begin).end(end)


def _attributes(trace: Trace) -> dict[str, AttributeValue]:
    said: dict[str, AttributeValue] = {
        "dataspace.space": trace.peer.hosted.name,
        "dataspace.connection": trace.peer.number,
        "dataspace.principal": str(trace.peer.principal),
        "dataspace.outcome": trace.outcome,
    }
    if trace.epoch:
        said["dataspace.epoch"] = trace.epoch
    if trace.code:
        said["dataspace.code"] = trace.code
    return said


def _context_of(parent: Parent | None) -> Context:
    """Returns the context of the parent that a client has stated: an empty one makes a trace of its own."""
    if parent is None:
        return Context()
    caused = SpanContext(parent.trace, parent.span, is_remote=True, trace_flags=SAMPLED)
    return set_span_in_context(NonRecordingSpan(caused), Context())
