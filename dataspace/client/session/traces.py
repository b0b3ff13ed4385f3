"""The trace that a program is in: read of OpenTelemetry, if the program has loaded it.

Always: OpenTelemetry is never loaded here, so a client that does not use it does not need it.
"""

from __future__ import annotations

import sys


def current_traceparent() -> str:
    """Returns the traceparent of the span that is current for OpenTelemetry; empty where there is none."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return ""
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags & 1:02x}"


def no_traceparent() -> str:
    """Returns none, for a client that was not asked to state the trace that it is in."""
    return ""
