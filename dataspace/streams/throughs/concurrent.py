"""Throughs that work ahead in tasks of their own: async_map, parallelize, buffer.

A reader that is cancelled must not lose a value that was already taken from upstream.  So what waits after it
has taken a value does so in the nursery of the pipe, and readers only wait for results.

A *slot* is one request that is under way, with its result; slots are answered in the order of the requests.

Always: at most ``width`` slots; upstream is not read before the first read; after an own error upstream is
failed before a read raises it, and slots before it keep their values.  (Promistream, ``parallelize`` and the
rationale of ``peek``; pull-paramap, which reads ahead without a bound by default.)
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Final, Generic, TypeVar

from dataspace.errors import UsageError
from dataspace.loops.here import cancellations, loop, parking_lot
from dataspace.loops.primitives import Scope, Waker
from dataspace.streams.stages.base import Base, Kind
from dataspace.streams.stages.functions import is_count, name_of
from dataspace.streams.stages.protocol import End, Reason, Upstream, own_error
from dataspace.streams.throughs.base import Abreast, Transform

T = TypeVar("T")
U = TypeVar("U")


class Slot(Generic[U]):
    """One request and its answer: a value, or what was raised."""

    __slots__ = ("done", "error", "scope", "value")

    def __init__(self) -> None:
        self.done = False
        self.value: U
        self.error: Exception | None = None
        self.scope: Scope | None = None


class Ahead(Base, Generic[T, U]):
    """A through whose slots are filled by workers.  Subclasses define when a worker may start, and its
    work."""

    kind: ClassVar[Kind] = Kind.THROUGH
    needs_tasks: ClassVar[bool] = True

    def __init__(self, description: str) -> None:
        super().__init__(description)
        self._slots: Final[deque[Slot[U]]] = deque()
        self._workers = self._idle = self._starting = self._given = 0
        self._stopped = self._told = False
        self._room: Final = parking_lot()
        self._arrival: Final = parking_lot()

    @abstractmethod
    def _wanted(self) -> int:
        """Returns how many more slots may be started now."""

    @abstractmethod
    async def _fill(self, source: Upstream[T]) -> None:
        """Starts one slot, reads upstream, and settles it."""

    # -- the protocol ---------------------------------------------------------------------------------

    async def read(self, source: Upstream[T]) -> U:
        self._given = max(0, self._given - 1)
        ticket = self._line.join()
        if self._line.left != ticket:
            self._start(source)
            await self._line.wait_turn(ticket)
        try:
            while self._end is None and not (self._slots and self._slots[0].done):
                self._start(source)
                await self._arrival.park()
            return self._take(source)
        finally:
            self._line.leave(ticket)

    async def peek(self, source: Upstream[T]) -> bool:
        at = self._given + len(self._line)
        while self._end is None and at < len(self._slots):
            if self._slots[at].done:
                self._given += self._slots[at].error is None
                return self._slots[at].error is None
            await self._arrival.park()
        return self._end is None and not self._stopped and await source.peek()

    async def abort(self, reason: Reason, source: Upstream[T]) -> None:
        await self._end_by_abort(reason, source)

    def abort_nowait(self, reason: Reason, source: Upstream[T]) -> None:
        self._end_by_indication(reason, None if self._told or self._stopped else source)

    # -- readers --------------------------------------------------------------------------------------

    def _take(self, source: Upstream[T]) -> U:
        if self._end is not None:
            raise self._end.next()
        slot = self._slots.popleft()
        if slot.error is None:
            self._start(source)
            return slot.value
        self._stopped = True
        self._finish(End.met(slot.error))
        self._drop()
        self._close_once()
        raise self._ended()

    def _start(self, source: Upstream[T]) -> None:
        """Wakes or makes as many workers as are wanted."""
        while not self._stopped and self._starting < self._wanted():
            self._starting += 1
            if self._idle:
                self._idle -= 1
                self._room.unpark()
            else:
                self._tasks().start_soon(self._work, source, name=self.description)
                self._workers += 1

    def _drop(self) -> None:
        """Ends what is under way; workers that read upstream are woken by upstream."""
        self._stopped = True
        for slot in self._slots:
            if slot.scope is not None:
                slot.scope.cancel()
        self._slots.clear()
        self._arrival.unpark_all()
        self._room.unpark_all()

    async def _pass_on(self, reason: Reason, source: Upstream[Any] | None) -> None:
        told, self._told = self._told, True
        await super()._pass_on(reason, None if told else source)

    async def _teardown(self, reason: Reason) -> None:
        while self._workers:  # each wakes this task when it ends
            await self._arrival.park()

    # -- workers --------------------------------------------------------------------------------------

    async def _work(self, source: Upstream[T]) -> None:
        try:
            while not self._is_over():
                self._starting -= 1
                await self._fill(source)
                self._arrival.unpark_all()
                if self._is_over():
                    return
                if self._starting < self._wanted():
                    self._starting += 1
                    continue
                self._idle += 1
                await self._room.park()
        except cancellations():
            raise
        except BaseException:
            self._interrupt(source)  # readers may be in tasks that do not end with this one
            raise
        finally:
            self._workers -= 1
            self._arrival.unpark_all()

    def _is_over(self) -> bool:
        return self._stopped

    async def _ask(self, slot: Slot[U], source: Upstream[Any]) -> Any:
        """Returns the answer of upstream to the newest slot; an end goes into the slot."""
        try:
            return await source.read()
        except Exception as error:  # noqa: BLE001  # it is the answer of this slot
            self._stopped = self._told = True
            slot.error, slot.done = error, True
            return None


class AsyncMap(Ahead[T, U]):
    """Calls an asynchronous function with each value."""

    def __init__(self, fn: Callable[[T], Awaitable[U]], width: int | None) -> None:
        super().__init__(f"async_map({name_of(fn)})")
        self._fn = fn
        self._width = width

    def _wanted(self) -> int:
        goal = len(self._line) if self._width is None else self._width
        return goal - len(self._slots)

    async def _fill(self, source: Upstream[T]) -> None:
        slot = Slot[U]()
        self._slots.append(slot)
        value = await self._ask(slot, source)
        if slot.done or self._stopped_at(slot):
            return
        try:
            with loop().scope() as slot.scope:
                slot.value = await self._awaitable(self._fn(value))
                slot.done = True
        except Exception as error:  # noqa: BLE001  # upstream is failed first, then the read raises it
            await self._be_failed_by(own_error(error, self.description), slot, source)

    def _awaitable(self, answer: Awaitable[U]) -> Awaitable[U]:
        if not hasattr(answer, "__await__"):
            raise UsageError(
                f"{self.description} awaits what its function returns, and that was {answer!r:.80}; use map"
            )
        return answer

    def _stopped_at(self, slot: Slot[U]) -> bool:
        return self._end is not None or slot not in self._slots

    async def _be_failed_by(self, error: Exception, slot: Slot[U], source: Upstream[T]) -> None:
        """Keeps the answers of earlier requests, and drops the answers of later ones."""
        if self._stopped_at(slot):
            return
        self._stopped = True
        while self._slots[-1] is not slot:
            later = self._slots.pop()
            if later.scope is not None:
                later.scope.cancel()
        if not self._told:
            self._told = True
            try:
                await source.abort(error)
            except Exception as further:  # noqa: BLE001  # the first error is the one to raise
                error.add_note(f"and ending what is before {self.description} failed as well: {further!r}")
        slot.error, slot.done = error, True


def async_map(fn: Callable[[T], Awaitable[U]], *, width: int | None = None) -> AsyncMap[T, U]:
    """Returns a through that passes on ``await fn(value)`` for each value, in order.

    Without ``width`` as many run as reads are waiting; with it, so many values are processed ahead.
    """
    _check_width(width)
    if not callable(fn):
        raise UsageError(f"async_map needs a function, got {fn!r:.80}")
    return AsyncMap(fn, width)


class Parallelize(Ahead[T, T]):
    """Makes several reads of upstream at once, each only when peeking has promised a value."""

    def __init__(self, width: int | None) -> None:
        super().__init__(f"parallelize({'∞' if width is None else width})")
        self._width = width
        self._peeking = False

    def _wanted(self) -> int:
        room = self._width is None or len(self._slots) < self._width
        return int(room and not self._peeking)

    async def _fill(self, source: Upstream[T]) -> None:
        if not self._wanted():
            return
        self._peeking = True
        try:
            promised = await source.peek()
        finally:
            self._peeking = False
        if self._is_over():
            return
        slot = Slot[T]()
        self._slots.append(slot)
        self._peeking = not promised  # then this read is for the end, and no other may be beside it
        self._start(source)
        value = await self._ask(slot, source)
        if not promised:
            self._peeking = False
        if not slot.done:
            slot.value, slot.done = value, True


def parallelize(width: int | None = None) -> Parallelize[Any]:
    """Returns a through that keeps up to ``width`` reads of upstream under way (None: as many as it has
    values ready).

    Of use behind stages that work while they are read, one task for each read.  Answers are in order.
    """
    _check_width(width)
    return Parallelize(width)


class Buffer(Transform[T, T]):
    """Reads values ahead."""

    needs_tasks: ClassVar[bool] = True

    def __init__(self, size: int) -> None:
        super().__init__(f"buffer({size})")
        self._size = size
        self._started = False
        self._change: Final = parking_lot()

    def _feed(self, value: T) -> None:
        self._held.append(value)

    async def read(self, source: Upstream[T]) -> T:
        return (await self.read_some(1, source))[0]

    async def read_some(self, limit: int, source: Upstream[T]) -> list[T]:
        if not self._started and self._end is None:
            self._started = True
            self._tasks().start_soon(self._read_ahead, source, name=self.description)
        try:
            return await super().read_some(limit, source)
        finally:
            self._change.unpark_all()

    async def _feed_some(self, limit: int, source: Upstream[T]) -> None:
        await self._change.park()

    async def _read_ahead(self, source: Upstream[T]) -> None:
        try:
            while self._end is None:
                room = self._size - len(self._held)
                if room > 0:
                    await Transform._feed_some(self, room, source)
                    self._change.unpark_all()
                else:
                    await self._change.park()
        except cancellations():
            raise
        except BaseException:
            self._interrupt(source)  # readers may be in tasks that do not end with this one
            raise

    def _drop(self) -> None:
        super()._drop()
        self._change.unpark_all()


def buffer(size: int) -> Buffer[Any]:
    """Returns a through that reads up to ``size`` values ahead, from the first read on."""
    if not is_count(size):
        raise UsageError(f"a buffer holds at least one value, size {size}")
    return Buffer(size)


def _check_width(width: int | None) -> None:
    if width is not None and not is_count(width):
        raise UsageError(f"at least one at a time, width {width}")


# -- Throughs that hold reads back -----------------------------------------------------------------
# Values pass as they are. Only the *request* is held back: nothing has been taken from upstream
# while it waits, so a reader that is cancelled loses nothing.
#
# Always: requests go upstream in the order in which they came.


class Limit(Abreast[T]):
    """Allows at most so many reads at once; the others wait here."""

    def __init__(self, number: int, description: str) -> None:
        super().__init__(description)
        self._number = number
        self._inside = 0
        self._gate: Final[deque[Waker]] = deque()

    async def read(self, source: Upstream[T]) -> T:
        ticket = self._line.join()
        try:
            if self._end is not None:
                await self._line.wait_turn(ticket)
                raise self._end.next()
            left = await self._left(ticket, 1) if self._left_behind else None
            return (left or await self._read_inside(ticket, source))[0]
        finally:
            self._line.leave(ticket)

    async def read_some(self, limit: int, source: Upstream[T]) -> list[T]:
        return [await self.read(source)]

    async def _read_inside(self, ticket: int, source: Upstream[T]) -> list[T]:
        await self._pass_gate()
        values: tuple[T, ...] = ()
        error: Exception | None = None
        try:
            if self._end is None:
                values = (await source.read(),)
        except Exception as raised:  # noqa: BLE001  # passed on, in its turn
            error = raised
        finally:
            self._leave_gate()
        return await self._in_turn(ticket, 1, values, error)

    async def _pass_gate(self) -> None:
        if self._inside < self._number:
            self._inside += 1
            return
        waker = loop().waker()
        self._gate.append(waker)
        await waker.wait(lambda: self._gate.remove(waker), self._leave_gate)

    def _leave_gate(self) -> None:
        """Gives the place of a request to the request that has waited longest."""
        if self._gate:
            self._gate.popleft().wake()
        else:
            self._inside -= 1

    def _drop(self) -> None:
        super()._drop()
        self._inside += len(self._gate)
        while self._gate:
            self._gate.popleft().wake()


def limit(number: int) -> Limit[Any]:
    """Returns a through that makes at most ``number`` reads of upstream at once; others wait in order."""
    if not is_count(number):
        raise UsageError(f"at least one read must pass, limit {number}")
    return Limit(number, f"limit({number})")


def sequentialize() -> Limit[Any]:
    """Returns a through that makes one read of upstream at a time, for stages that cannot work on several."""
    return Limit(1, "sequentialize")


class RateLimit(Transform[T, T]):
    """Allows so many values in a time, in bursts of so many at the most."""

    def __init__(self, number: int, seconds: float) -> None:
        super().__init__(f"rate_limit({number} in {seconds} s)")
        self._number = number
        self._seconds = seconds
        self._began = -1.0
        self._passed = 0
        self._sleeping: Scope | None = None

    def _feed(self, value: T) -> None:
        self._held.append(value)
        self._passed += 1

    def _appetite(self, limit: int) -> int:
        return min(limit, self._number - self._passed)

    async def read(self, source: Upstream[T]) -> T:
        return (await self.read_some(1, source))[0]

    async def _feed_some(self, limit: int, source: Upstream[T]) -> None:
        await self._wait_allowed()
        if self._end is None:
            await super()._feed_some(limit, source)

    async def _wait_allowed(self) -> None:
        """Sleeps to the end of a period that is used up; an abort wakes it."""
        if self._passed >= self._number:
            with loop().scope() as self._sleeping:
                await loop().sleep(max(0.0, self._began + self._seconds - loop().current_time()))
            self._sleeping = None
        now = loop().current_time()
        if self._began < 0 or now >= self._began + self._seconds:
            self._began, self._passed = now, 0

    def _drop(self) -> None:
        super()._drop()
        if self._sleeping is not None:
            self._sleeping.cancel()


def rate_limit(number: int, seconds: float = 1.0) -> RateLimit[Any]:
    """Returns a through that passes on at most ``number`` values in ``seconds`` and reads none earlier."""
    if not is_count(number) or not seconds > 0:
        raise UsageError(f"rate_limit needs a number and a time above 0, got {number} in {seconds} s")
    return RateLimit(number, seconds)
