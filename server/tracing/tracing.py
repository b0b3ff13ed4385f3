"""Tracing: everything that a daemon needs to trace turns, in one object; None where it does not.

Always: nothing of OpenTelemetry is loaded unless the configuration names a collector.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import trio

from dataspace.errors import UsageError
from server.tracing.commits import TracedCommits
from server.tracing.flushing import TracedFlushing
from server.tracing.peers import TracedPeer
from server.tracing.publications import traced_publish
from server.tracing.recorder import SPANS, Recorder
from server.tracing.watch import TracedWatch

if TYPE_CHECKING:
    from dataspace.kernel.space import Space
    from relay.log.writer import GroupCommit
    from server.config.model import Slow, Traces
    from server.connections.acting import ActingPeer
    from server.sessions.counts import Counts
    from server.sessions.requests import Verb
    from server.tracing.exporting import Spans

PACKAGES: Final = ("opentelemetry", "google", "requests")


class TracedSpace(Protocol):
    """A space of the daemon."""

    @property
    def space(self) -> Space: ...
    @property
    def commits(self) -> GroupCommit: ...


class Tracing:
    """The tracing of one daemon."""

    def __init__(self, spans: Spans, ratio: float) -> None:
        self._spans: Final = spans
        self._recorder: Final = Recorder(spans, ratio)
        self.writer: Final = partial(TracedCommits, recorder=self._recorder)
        """Makes what feeds the log of a space."""
        self.flushing: Final = TracedFlushing(self._recorder)
        """The queues that have something to send."""
        self.run: Final = self._recorder.run
        """Ends in time what does not end by itself, until cancelled."""

    @property
    def sent(self) -> int:
        """Spans that the collector has taken."""
        return self._spans.sent

    @property
    def dropped(self) -> int:
        """The approximate number of spans that it has not taken, or that were not made because too many
        waited."""
        return self._spans.dropped + SPANS * self._recorder.left_out

    def watch(self, counts: Counts, slow: Slow) -> TracedWatch:
        """Returns the reports of all connections."""
        return TracedWatch(counts, slow)

    def peer(self, connection: ActingPeer) -> TracedPeer:
        """Returns what acts on the packets of a connection."""
        return TracedPeer(connection, self._recorder)

    def begin(self, spaces: Iterable[TracedSpace], verbs: dict[str, Verb]) -> None:
        """Traces the turns of these spaces, and the request that publishes, from now on."""
        for each in spaces:
            assert isinstance(each.commits, TracedCommits)  # as ``writer`` has made it
            each.commits.interests = each.space.interests
        verbs["publish"] = traced_publish(verbs["publish"], self._recorder)

    async def close(self) -> None:
        """Sends the spans of all turns that were begun; takes a few seconds at most."""
        with trio.CancelScope(shield=True):
            self._recorder.end()
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
