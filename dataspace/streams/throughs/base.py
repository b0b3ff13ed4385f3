"""The middle of a pipe: how a through turns the values of upstream into its own.

A subclass defines the results of one value (``_feed``); reading upstream, buffers, ends, concurrent reads and
peeking are here.  It reads upstream only for a request and when it holds nothing, and one read at a time:
other requests queue.  Only ``MapThrough`` lets reads pass side by side.

Always: the results of a value are given before the results of the next one; a mark or an error from upstream
comes after held results, an abort from downstream drops them; when its own code raises, upstream is failed
first.  (Promistream, "Ordering considerations" and "Streams that buffer"; pull-stream, transformers.)
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from types import CoroutineType
from typing import Any, ClassVar, Final, Generic, TypeVar

from dataspace.streams.stages.base import Base, Kind, Pace
from dataspace.streams.stages.functions import check_plain
from dataspace.streams.stages.protocol import End, EndOfStream, Reason, Upstream, own_error

T = TypeVar("T")
U = TypeVar("U")


class Transform(Base, Generic[T, U]):
    """A through that reads upstream one request at a time.  Subclasses write ``_feed``."""

    kind: ClassVar[Kind] = Kind.THROUGH

    def __init__(self, description: str) -> None:
        super().__init__(description)
        self._held: Final[deque[U]] = deque()
        self._enough = False
        self._given = 0
        self._promised = 0
        self._pace: Final = Pace()

    # -- hooks ----------------------------------------------------------------------------------------

    @abstractmethod
    def _feed(self, value: T) -> None:
        """Puts the results of a value into ``_held``; sets ``_enough`` to end the stream after that."""

    def _flush(self) -> None:
        """Puts the rest into ``_held``: upstream has ended."""

    def _appetite(self, limit: int) -> int:
        """Returns how many values to read at once, for an answer of ``limit``."""
        return limit

    # -- the protocol ---------------------------------------------------------------------------------

    async def read(self, source: Upstream[T]) -> U:
        line, held = self._line, self._held
        self._given = self._given - 1 if self._given else 0
        ticket = line.entered
        line.entered = ticket + 1
        if line.left != ticket:
            await line.wait_turn(ticket)
        try:
            if held:
                await self._rest(1)
            while not held:
                if self._end is not None:
                    raise self._end.next()
                if self._enough:
                    await self._stop(source)
                    continue
                if self._promised:
                    self._promised -= 1
                try:
                    value = await source.read()
                except Exception as error:  # noqa: BLE001  # upstream has ended, which the loop handles
                    self._meet(error)
                    continue
                if self._end is None:  # else it was aborted meanwhile
                    try:
                        self._feed(value)
                    except Exception as error:  # noqa: BLE001  # fails this stream, which the loop handles
                        await self._fail(error, source)
                    except BaseException:
                        self._interrupt(source)
                        raise
            return held.popleft()
        finally:
            line.leave(ticket)

    async def read_some(self, limit: int, source: Upstream[T]) -> list[U]:
        line, held = self._line, self._held
        self._given = self._given - 1 if self._given else 0
        ticket = line.join()
        if line.left != ticket:
            await line.wait_turn(ticket)
        try:
            if held:
                await self._rest(min(limit, len(held)))
            while not held:
                if self._end is not None:
                    raise self._end.next()
                if self._enough:
                    await self._stop(source)
                    continue
                await self._feed_some(limit, source)
            return [held.popleft() for _ in range(min(limit, len(held)))]
        finally:
            line.leave(ticket)

    async def peek(self, source: Upstream[T]) -> bool:
        if len(self._held) <= self._given:
            if self._end is not None or self._enough:
                return False
            if self._promised <= self._given + len(self._line):
                if not await source.peek():
                    return False
                self._promised += 1
        if self._end is not None and self._end.dropped:
            return False
        self._given += 1
        return True

    async def abort(self, reason: Reason, source: Upstream[T]) -> None:
        await self._end_by_abort(reason, source)

    def abort_nowait(self, reason: Reason, source: Upstream[T]) -> None:
        self._end_by_indication(reason, source)

    # -- the parts of a read --------------------------------------------------------------------------

    async def _rest(self, count: int) -> None:
        """Runs other tasks in time: values that are held are given without a read of upstream, so their pace
        is kept here."""
        self._pace.passed += count
        if self._pace.passed >= self._pace.run:
            await self._pace.rest()

    async def _feed_some(self, limit: int, source: Upstream[T]) -> None:
        try:
            values = await source.read_some(self._appetite(limit))
        except Exception as error:  # noqa: BLE001  # upstream has ended, which the loop handles
            self._meet(error)
            return
        self._promised = max(0, self._promised - len(values))
        if self._end is not None:
            return
        try:
            for value in values:
                self._feed(value)
        except Exception as error:  # noqa: BLE001  # fails this stream; what came before is given first
            await self._fail(error, source)
        except BaseException:
            self._interrupt(source)
            raise

    async def _stop(self, source: Upstream[T]) -> None:
        """Ends the stage by itself: upstream is aborted first, then the read gets the end."""
        await self._stop_with(End(None), source)

    async def _stop_with(self, end: End, source: Upstream[T]) -> None:
        if self._finish(end):
            try:
                await self._pass_on(True, source)
            except Exception as error:  # noqa: BLE001  # the read that stopped raises it
                self._end = End(error, owed=True)

    def _meet(self, error: Exception) -> None:
        """Handles an error of a read of upstream: held results come first, then the error."""
        if self._end is not None:
            return
        self._end = End.met(error)
        try:
            self._flush()
            self._close_once()
        except Exception as own:  # noqa: BLE001  # upstream has ended already and needs no abort
            self._end = End(own_error(own, self.description), owed=True)
        except BaseException:
            self._end = End(True)
            self._close_once()
            raise

    def _drop(self) -> None:
        self._held.clear()
        self._given = 0


class EarlyAnswer(Generic[T]):
    """The answer of upstream to a request that could not wait for its turn: values, or an error."""

    __slots__ = ("error", "ticket", "values")

    def __init__(self, ticket: int, values: Sequence[T], error: Exception | None) -> None:
        self.ticket = ticket
        self.values = deque(values)
        self.error = error


class Abreast(Base, Generic[T]):
    """A through that lets requests pass side by side and puts the answers into the order of the requests.

    A request that is withdrawn when it has its answer leaves it behind: such answers are given before others,
    in the order of their requests, and upstream is not read while there are any.
    """

    kind: ClassVar[Kind] = Kind.THROUGH

    def __init__(self, description: str) -> None:
        super().__init__(description)
        self._left_behind: Final[deque[EarlyAnswer[T]]] = deque()
        self._reserved_here = 0

    async def _left(self, ticket: int, limit: int) -> list[T] | None:
        """Returns the answer left behind for a request that has yet to read upstream; None if it must read
        after all."""
        await self._line.wait_turn(ticket)
        return self._take_left(limit) if self._left_behind else None

    async def _in_turn(
        self, ticket: int, limit: int, values: Sequence[T], error: Exception | None
    ) -> list[T]:
        """Returns the answer for a request in its turn, its own or an earlier remainder; raises the end."""
        own = EarlyAnswer(ticket, values, error)
        await self._line.wait_exit(ticket, lambda: self._leave_behind(own))
        if self._left_behind and self._left_behind[0].ticket < ticket:
            self._leave_behind(own)
            return self._take_left(limit)
        if error is not None:
            raise self._met(error)
        if self._end is not None:
            raise self._end.next()
        return list(values)

    def _leave_behind(self, answer: EarlyAnswer[T]) -> None:
        if self._end is not None:
            return
        at = len(self._left_behind)
        while at and self._left_behind[at - 1].ticket > answer.ticket:
            at -= 1
        self._left_behind.insert(at, answer)

    def _take_left(self, limit: int) -> list[T]:
        """Returns values of the first answer that was left; raises what it holds instead."""
        if self._end is not None:
            raise self._end.next()
        answer = self._left_behind[0]
        if answer.error is not None:
            self._left_behind.popleft()
            raise self._met(answer.error)
        values = [answer.values.popleft() for _ in range(min(limit, len(answer.values)))]
        if not answer.values:
            self._left_behind.popleft()
        self._reserved_here = max(0, self._reserved_here - len(values))
        return values

    def _met(self, error: Exception) -> Exception:
        """Returns the exception to raise for one of upstream: the same, unless this stage had ended
        before."""
        if self._end is not None:
            return self._end.next()
        self._end = End.met(error)
        try:
            self._close_once()
        except Exception as own:  # noqa: BLE001  # upstream has ended already, so the read raises it
            self._end = End(own, owed=True)
        else:
            if isinstance(error, EndOfStream):
                return error
        return self._end.next()

    async def peek(self, source: Upstream[T]) -> bool:
        if self._end is None and self._left_behind:
            held = sum(len(answer.values) for answer in self._left_behind)
            if self._reserved_here < held:
                self._reserved_here += 1
                return True
        return self._end is None and await source.peek() and self._end is None

    async def abort(self, reason: Reason, source: Upstream[T]) -> None:
        await self._end_by_abort(reason, source)

    def abort_nowait(self, reason: Reason, source: Upstream[T]) -> None:
        self._end_by_indication(reason, source)

    def _drop(self) -> None:
        self._left_behind.clear()


class MapThrough(Abreast[T], Generic[T, U]):
    """A through that makes one value of each, and lets reads pass side by side."""

    def __init__(self, fn: Callable[[T], U], description: str) -> None:
        super().__init__(description)
        self.fn: Final = fn

    async def read(self, source: Upstream[T]) -> U:
        line = self._line
        ticket = line.entered
        after = line.entered = ticket + 1
        try:
            if self._end is not None:
                await line.wait_turn(ticket)
                raise self._end.next()
            left = await self._left(ticket, 1) if self._left_behind else None
            if left is not None:
                value = left[0]
            else:
                try:
                    value = await source.read()
                except Exception as error:  # noqa: BLE001  # it is passed on, in its turn
                    value = (await self._in_turn(ticket, 1, (), error))[0]
                else:
                    if line.left != ticket or self._left_behind:
                        value = (await self._in_turn(ticket, 1, (value,), None))[0]
            if self._end is not None:
                raise self._end.next()
            try:
                result = self.fn(value)
                if type(result) is CoroutineType:
                    check_plain(result, self.description)
                return result
            except Exception as error:  # noqa: BLE001  # whatever it is, upstream is failed first
                await self._fail(error, source)
            except BaseException:
                self._interrupt(source)
                raise
            raise self._ended()
        finally:
            if line.left == ticket and line.entered == after:
                line.left = after
            else:
                line.leave(ticket)

    async def read_some(self, limit: int, source: Upstream[T]) -> list[U]:
        line = self._line
        ticket = line.join()
        try:
            if self._end is not None:
                await line.wait_turn(ticket)
                raise self._end.next()
            values: Sequence[T] | None = await self._left(ticket, limit) if self._left_behind else None
            if values is None:
                try:
                    values = await source.read_some(limit)
                except Exception as error:  # noqa: BLE001  # it is passed on, in its turn
                    values = await self._in_turn(ticket, limit, (), error)
                else:
                    if line.left != ticket or self._left_behind:
                        values = await self._in_turn(ticket, limit, values, None)
            if self._end is not None:
                raise self._end.next()
            return await self._mapped(values, source)
        finally:
            line.leave(ticket)

    async def _mapped(self, values: Sequence[T], source: Upstream[Any]) -> list[U]:
        mapped: list[U] = []
        try:
            mapped.extend(map(self.fn, values))
            self._check_mapped(mapped, len(values))
        except Exception as error:  # noqa: BLE001  # what came before is given first, then this is raised
            await self._fail(error, source)
        except BaseException:
            self._interrupt(source)
            raise
        if not mapped:
            raise self._ended()
        return mapped

    def _check_mapped(self, mapped: list[Any], count: int) -> None:
        """Raises for what ``map`` does not see: a function that raised ``StopIteration`` or makes coroutines.

        Only the ends of a portion are looked at for these: a look at each value would cost 30 ns, a tenth of
        the whole.  What slips through is a value like any other, and seen by whatever calls or tests it.
        """
        if len(mapped) < count:
            raise StopIteration
        if mapped[0].__class__ is CoroutineType or mapped[-1].__class__ is CoroutineType:
            at = next(at for at, made in enumerate(mapped) if isinstance(made, CoroutineType))
            unawaited = [made for made in mapped[at:] if isinstance(made, CoroutineType)]
            del mapped[at:]
            for made in unawaited[1:]:
                made.close()
            check_plain(unawaited[0], self.description)
