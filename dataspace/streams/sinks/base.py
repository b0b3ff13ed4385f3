"""The end of a pipe: a sink reads until the end and returns one result.

A subclass defines what happens to values (``_take`` or ``_deliver``) and what the result is (``_result``);
running the pipe and failing it are here.

Always: the first read of a sink settles with a result or an error; any error is passed upstream and raised
once as it is, and afterwards as ``Aborted``; a read that is cancelled has kept what it had taken, and the
next one goes on.  (Promistream, "Sink streams".)
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar

from dataspace.loops.here import cancellations
from dataspace.streams.stages.base import LONGEST, Base, Kind
from dataspace.streams.stages.marks import End, EndOfStream, Reason
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
        """Handles values; sets ``_enough`` to want no more."""

    @abstractmethod
    def _result(self) -> R:
        """Returns the result."""

    async def _deliver(self, values: Sequence[T]) -> None:
        """Handles values, for sinks that wait.  When cancelled, it must keep what it was given."""
        self._take(values)

    async def _conclude(self) -> None:
        """Does what must be done after the last value and before the result."""

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
            met = await self._drive(source)
            if met is None or isinstance(met, EndOfStream):
                if self._end is None:
                    await self._conclude()
                    result = self._result()
                    if self._finish(End(None)):
                        self._close_once()
                        return result
            elif self._end is None:
                await self._meet(met, source)
        except cancellations():
            raise
        except Exception as error:  # noqa: BLE001  # raised below, after upstream was aborted
            if self._end is not None and self._end.reason is None:
                self._end = End(error, owed=True)  # closing has failed
            await self._fail(error, source)
        except BaseException:
            self._interrupt(source)
            raise
        self._close_once()
        raise self._ended()

    async def _drive(self, source: Upstream[T]) -> Exception | None:
        """Reads until upstream ends and returns its error, or until the sink has enough and returns None."""
        while not self._enough:
            try:
                values = await source.read_some(self.portion)
            except Exception as error:  # noqa: BLE001  # the end of upstream, as distinct from what _deliver raises
                return error
            await self._deliver(values)
        await source.abort(True)
        return None

    async def _meet(self, error: Exception, source: Upstream[T]) -> None:
        """Handles an end of upstream: an error is passed upstream and kept for the read."""
        end = End.met(error)
        if isinstance(end.reason, Exception):
            await self._fail(end.reason, source)
        else:
            self._finish(end)

    def _end_for(self, reason: Reason) -> End:
        """Returns the end for a reason: a sink raises a bare error first, also where it was aborted with
        it."""
        return End(reason, dropped=True, owed=True)

    async def peek(self, source: Upstream[T]) -> bool:
        return self._end is None and await source.peek()

    async def abort(self, reason: Reason, source: Upstream[T]) -> None:
        await self._end_by_abort(reason, source)

    def abort_nowait(self, reason: Reason, source: Upstream[T]) -> None:
        self._end_by_indication(reason, source)
