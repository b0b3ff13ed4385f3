"""A pair: a sink and a source; values that reach the sink are read from the source (pull-pair).

Always: a failure passes through the pair in both directions; neither end waits once the other is over.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from dataspace.loops.here import parking_lot
from dataspace.streams.sinks import Sink
from dataspace.streams.sources.pushed import Deferred
from dataspace.streams.stages.protocol import Reason, Upstream

T = TypeVar("T")


class PairSink(Sink[T, None]):
    """The sink: the end of one pipe that is the beginning of another."""

    def __init__(self, other: Deferred[T]) -> None:
        super().__init__("pair")
        self._other = other
        self._over = False
        self._change: Final = parking_lot()

    async def _drive(self, source: Upstream[T]) -> None:
        if self._other._stream is None:
            self._other.resolve(source)
        while not self._over:
            await self._change.park()
        return None

    def end(self) -> None:
        """Notes that the source has been read to its end, or that there will be none."""
        self._over = True
        self._change.unpark_all()

    def _drop(self) -> None:
        self.end()

    def _close(self, reason: Reason | None) -> None:
        if self._other._stream is None:  # no source will be resolved any more
            self._other.abort_nowait(True if reason is None else reason)

    def _take(self, values: object) -> None:
        raise AssertionError("values pass by the other end")

    def _result(self) -> None:
        reason = self._other._end.reason if self._other._end is not None else None
        if isinstance(reason, Exception):
            raise reason


class PairSource(Deferred[T]):
    """The source, which notifies the sink when it is over."""

    sink: PairSink[T]

    def _close(self, reason: Reason | None) -> None:
        self.sink.end()


def pair() -> tuple[PairSink[Any], PairSource[Any]]:
    """Returns a sink and a source: values that reach the sink are read from the source.

    Reading the sink connects them and returns when the source has been read to its end.
    """
    source: PairSource[Any] = PairSource("pair")
    source.sink = PairSink(source)
    return source.sink, source
