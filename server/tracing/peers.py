"""The peer of a connection as a daemon that traces acts on its packets: it chooses turns, and times them.

It stands between the bundles of packets and the connection, so that neither does anything for traces.

Always: a turn is carried out by the connection, as it would be without traces, whatever becomes of its trace.
"""

from __future__ import annotations

from contextlib import contextmanager
from time import time_ns
from typing import TYPE_CHECKING

from dataspace.wire import packets as p
from dataspace.wire.traceparents import Parent, read_traceparent
from server.tracing.traces import TRACED, Trace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from server.connections.acting import ActingPeer
    from server.lane import Work
    from server.sessions.shared import Shared
    from server.sessions.watch import Who
    from server.streams.observations import Observations
    from server.tracing.recorder import Recorder


class TracedPeer:
    """Acts on the packets of one connection; a ``BundlePeer``."""

    __slots__ = ("_arrived", "_connection", "_kept", "_recorder", "flush", "may_wait")

    def __init__(self, connection: ActingPeer, recorder: Recorder) -> None:
        self._connection = connection
        self._recorder = recorder
        self._arrived = 0
        self._kept: Trace | None = None
        """A trace for the turn that could not be carried out at once, until it is."""
        self.may_wait = connection.may_wait
        self.flush = connection.flush

    # -- as the connection ------------------------------------------------------------------------------

    @property
    def shared(self) -> Shared:
        """The daemon."""
        return self._connection.shared

    @property
    def parted(self) -> bool:
        """True once nothing more is to be acted on."""
        return self._connection.parted

    @property
    def observations(self) -> Observations:
        """The streams of the connection."""
        return self._connection.observations

    @property
    def who(self) -> Who:
        """The client, for the log of slow turns."""
        return self._connection.who

    def work(self) -> Work:
        """Returns a piece of background work; called with each chunk, so it is when its packets arrived."""
        self._arrived = time_ns()
        return self._connection.work()

    # -- turns ------------------------------------------------------------------------------------------

    def commit_at_once(self, turn: p.Turn) -> bool:
        """Acts on a turn; returns False, and has done nothing, if that may take waiting."""
        self._kept = None
        parent = read_traceparent(turn.traceparent) if turn.traceparent else None
        if not self._recorder.wants(parent) or (trace := self._begin(turn, parent)) is None:
            return self._connection.commit_at_once(turn)
        is_new = self._is_new(turn)
        with _tracing(trace):
            done = self._connection.commit_at_once(turn)
        if done:
            self._acted(trace, is_new=is_new)
        else:
            self._kept = trace
        return done

    async def act(self, packet: p.Packet) -> None:
        """Acts on one packet."""
        trace, self._kept = self._kept, None
        if trace is None or not isinstance(packet, p.Turn):
            await self._connection.act(packet)
            return
        is_new = self._is_new(packet)
        with _tracing(trace):
            await self._connection.act(packet)
        self._acted(trace, is_new=is_new)

    def _begin(self, turn: p.Turn, parent: Parent | None) -> Trace | None:
        actions = len(turn.actions) + sum([len(each) for _, each in turn.others])
        return self._recorder.begin("turn", self._connection, actions, parent, self._arrived)

    def _is_new(self, turn: p.Turn) -> bool:
        return turn.sequence > self._connection.own.client.sequence

    def _acted(self, trace: Trace, *, is_new: bool) -> None:
        """Ends the trace of a turn that was not committed."""
        if not trace.epoch:
            code = trace.code or ("expectation" if is_new else "")  # which no refusal reports
            self._recorder.refused(trace, code)


@contextmanager
def _tracing(trace: Trace) -> Iterator[None]:
    """Carries out what is in the block as the turn of a trace."""
    token = TRACED.set(trace)
    try:
        yield
    finally:
        TRACED.reset(token)
