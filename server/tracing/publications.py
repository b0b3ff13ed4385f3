"""Publications in a daemon that traces: the request ``publish`` is a turn, of HTTP and of bulk writers."""

from __future__ import annotations

from time import time_ns
from typing import TYPE_CHECKING

from dataspace.errors import Refused
from dataspace.wire.traceparents import read_traceparent
from server.tracing.traces import TRACED

if TYPE_CHECKING:
    from index.values.values import Map, Value
    from server.sessions.peer import Peer
    from server.sessions.requests import Verb
    from server.tracing.recorder import Recorder


def traced_publish(publish: Verb, recorder: Recorder) -> Verb:
    """Returns the request ``publish``, which is traced as its ``traceparent`` or chance decide."""

    async def traced(connection: Peer, arguments: Map) -> Value:
        said = arguments.get("traceparent")
        parent = read_traceparent(said) if isinstance(said, str) else None
        keys = arguments.get("keys")
        trace = None
        if recorder.wants(parent):
            size = len(keys) if isinstance(keys, tuple) else 0
            trace = recorder.begin("publish", connection, size, parent, time_ns())
        if trace is None:
            return await publish(connection, arguments)
        token = TRACED.set(trace)
        try:
            answer = await publish(connection, arguments)
        except Refused as refusal:
            if not trace.epoch:
                recorder.refused(trace, refusal.code)
            raise
        finally:
            TRACED.reset(token)
        if trace.epoch:
            recorder.answered(trace)
        else:
            recorder.refused(trace, "")
        return answer

    return traced
