"""Traceparents: the text that names the trace of a turn, as W3C Trace Context has it.

``00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01``: a version, the trace, the span that has caused
the turn, and flags; the lowest flag says that the trace is recorded.

Always: a text that is no traceparent is None, and never an error of the turn that carries it; a later version
is read as far as this one goes.  OpenTelemetry is never loaded here, so a client that does not use it does
not need it.
"""

from __future__ import annotations

import re
import sys
from typing import Final, NamedTuple

from dataspace.errors import UsageError

MOST: Final = 512
"""Characters of a traceparent that are read, of whatever version."""

_FORM: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)


class Parent(NamedTuple):
    """The span that has caused a turn; ``sampled`` says whether its trace is recorded."""

    trace: int
    span: int
    sampled: bool


def read_traceparent(text: str) -> Parent | None:
    """Returns what a traceparent names; None for text that is none, which is to be ignored.

    >>> read_traceparent("00-000000000000000000000000000000ff-000000000000000a-01")
    Parent(trace=255, span=10, sampled=True)
    >>> read_traceparent("00-00000000000000000000000000000000-000000000000000a-01") is None
    True
    """
    found = _FORM.fullmatch(text) if len(text) <= MOST else None
    if found is None:
        return None
    version, trace, span, flags, more = found.groups()
    if version == "ff" or (version == "00" and more is not None):
        return None
    parent = Parent(int(trace, 16), int(span, 16), bool(int(flags, 16) & 1))
    return parent if parent.trace and parent.span else None


def check_traceparent(text: object) -> str:
    """Returns the traceparent that a program states; raises ``UsageError`` for a text that is none."""
    if isinstance(text, str) and (not text or read_traceparent(text) is not None):
        return text
    raise UsageError(
        f"a traceparent such as 00-{'4bf92f35' * 4}-{'00f067aa' * 2}-01 is needed, not {text!r:.80}"
    )


# -- the trace of a client -------------------------------------------------------------------------


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
