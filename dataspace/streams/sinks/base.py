"""The end of a pipe: a sink reads until the end and answers with one result.

A sink of its own says what it does with values (``_take`` or ``_deliver``) and what comes of it
(``_result``); driving the pipe and failing it are here.

Always: the first read of a sink settles with a result or an error; an error, whoever raised it, is told
upstream and raised once as it is, and afterwards as ``Aborted``; a read that is cancelled has kept what it
had taken, and the next one goes on.  (Promistream, "Sink streams".)
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeVar

from dataspace.streams.stages.base import Base, Kind
from dataspace.streams.stages.marks import End, EndOfStream, Reason
from dataspace.streams.stages.paces import LONGEST
from dataspace.streams.stages.protocol import Upstream

T = TypeVar("T")
R = TypeVar("R")


class Sink(Base, Generic[T, R]):
    """A sink that takes values at once.  Subclasses write ``_take`` and ``_result``."""

    kind: ClassVar[Kind] = Kind.SINK
    portion: ClassVar[int] = LONGEST
    """Values that are read at once; 1 where the sink may not want all of them."""

    def __init__(self, description: str) -> None:
        super().__init__(description)
        self._enough = False

    @abstractmethod
    def _take(self, values: Sequence[T]) -> None:
        """Does what the sink does; sets ``_enough`` to want no more."""

    @abstractmethod
    def _result(self) -> R:
        """What came of it."""

    async def _deliver(self, values: Sequence[T]) -> None:
        """The same for sinks that wait.  Left by cancellation, it must keep what it was given."""
        self._take(values)

    async def _conclude(self) -> None:
        """All values have been taken: what is to be done before the result is."""

    async def read(self, source: Upstream[T]) -> R:
        ticket = self._line.join()
        if self._line.left != ticket:
            await self._line.wait_turn(ticket)
        try:
            if self._end is not None:
                raise self._end.next()
            return await self._run(source)
        finally:
            self._line.leave(ticket)

    async def _run(self, source: Upstream[T]) -> R:
        try:
            await self._drive(source)
            self._check_going()
            await self._conclude()
            result = self._result()
        except Exception as error:  # noqa: BLE001  # raised below, when upstream has been told
            return await self._be_failed_by(error, source)
        self._finish(End(None))
        self._close_once()
        return result

    def _check_going(self) -> None:
        """Raises the end, if somebody has ended this sink while it was at work."""
        if self._end is not None:
            raise self._end.next()

    async def _drive(self, source: Upstream[T]) -> None:
        """Reads until the end of the stream or of the sink's wishes."""
        try:
            while not self._enough:
                await self._deliver(await source.read_some(self.portion))
        except EndOfStream:
            return
        await source.abort(True)

    async def _be_failed_by(self, error: Exception, source: Upstream[T]) -> R:
        if self._end is None:
            end = End.met(error)
            if isinstance(end.reason, Exception):
                await self._fail(end.reason, source)
                raise self._ended()
            self._finish(end)
        self._close_once()
        raise error

    async def peek(self, source: Upstream[T]) -> bool:
        return self._end is None and await source.peek()

    async def abort(self, reason: Reason, source: Upstream[T]) -> None:
        await self._end_by_abort(reason, source)

    def abort_nowait(self, reason: Reason, source: Upstream[T]) -> None:
        self._end_by_indication(reason, source)


AnySink = Sink[Any, Any]
