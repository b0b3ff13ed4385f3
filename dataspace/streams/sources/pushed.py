"""Sources whose values come from elsewhere: pushable, defer, channels, asynchronous iterables.

Always: a reader that is cancelled while it waits has taken nothing; an abort wakes it.  (pull-pushable and
pull-defer; where the first loses a concurrent request, this one does not.)
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterable, Callable
from typing import Any, ClassVar, Final, TypeVar

import trio

from dataspace.errors import Closed, UsageError
from dataspace.loops.here import cancellations, loop, parking_lot
from dataspace.loops.primitives import Scope, Waker
from dataspace.streams.sources.pulled import Source
from dataspace.streams.stages.base import check_stream
from dataspace.streams.stages.functions import check_plain, check_sync, is_count
from dataspace.streams.stages.protocol import SIGNALS, Aborted, EndOfStream, Reason, Upstream, own_error

T = TypeVar("T")


class Pushable(Source[T]):
    """A source that is filled by calls.  Holds up to ``limit`` values that were not read."""

    def __init__(self, limit: int | None, on_end: Callable[[Reason | None], object] | None) -> None:
        super().__init__("pushable")
        if limit is not None and not is_count(limit):
            raise UsageError(f"a pushable holds at least one value, limit {limit}")
        if on_end is not None:
            check_sync(on_end, "pushable")
        self._limit = limit
        self._on_end = on_end
        self._senders: Final[dict[Waker, T]] = {}
        """Tasks that wait for capacity and their values, in order; empty while there is capacity."""
        self._granted: Final[dict[Waker, T]] = {}
        """The same for wakers that were woken to add their value, and have not run yet."""
        self._refused: Final[set[Waker]] = set()
        self._finished = False
        self._failure: Exception | None = None
        self._change: Final = parking_lot()
        self._room: Final = parking_lot()

    @property
    def is_full(self) -> bool:
        """True if ``limit`` values wait, so that none can be pushed."""
        return self._limit is not None and len(self._held) + len(self._granted) >= self._limit

    async def wait_room(self) -> None:
        """Waits until a value can be pushed; ``Closed`` after the end."""
        await loop().checkpoint()
        while self.is_full:
            self._check_open()
            await self._room.park()

    def push(self, value: T) -> None:
        """Adds a value; raises ``trio.WouldBlock`` if ``limit`` values wait, ``Closed`` after the end."""
        self._check_open()
        if self.is_full:
            raise trio.WouldBlock
        self._give(value)
        self._change.unpark_all()

    async def send(self, value: T) -> None:
        """Adds a value, waiting for capacity; values of several tasks come in the order of the calls."""
        await loop().checkpoint_if_cancelled()
        if self.is_full and not self._is_over():
            await self._wait_sent(value)
        else:
            self.push(value)
            await loop().cancel_shielded_checkpoint()

    async def _wait_sent(self, value: T) -> None:
        """Returns when a reader has made room and the value was added; when cancelled, it was not."""
        waker = loop().waker()
        self._senders[waker] = value
        await waker.wait(lambda: self._withdraw(waker), lambda: self._pass_room(waker))
        if waker in self._refused:
            self._refused.discard(waker)
            raise self._over()
        while waker in self._granted:  # after those before it, which may run later
            self._give(self._granted.pop(next(iter(self._granted))))
        self._change.unpark_all()

    def _withdraw(self, waker: Waker) -> None:
        del self._senders[waker]

    def _pass_room(self, waker: Waker) -> None:
        """Gives the room of a task that does not use it to the next."""
        self._refused.discard(waker)
        self._granted.pop(waker, None)
        self._took(0)

    def _took(self, count: int) -> None:
        senders = self._senders
        while senders and not self.is_full:
            waker = next(iter(senders))
            self._granted[waker] = senders.pop(waker)
            waker.wake()
        if self._room and not self.is_full:
            self._room.unpark_all()

    def _refuse_senders(self) -> None:
        self._room.unpark_all()
        senders = list(self._senders)
        self._refused.update(senders, self._granted)
        self._senders.clear()
        self._granted.clear()
        for waker in senders:
            waker.wake()

    def _is_over(self) -> bool:
        return self._finished or self._end is not None

    def end(self, reason: Exception | None = None) -> None:
        """Ends the source: readers get the values that wait, then the end or the error."""
        self._check_open()
        if isinstance(reason, SIGNALS) or not isinstance(reason, Exception | None):
            raise UsageError(f"a pushable ends with None or an error, not with {reason!r:.80}")
        self._finished, self._failure = True, reason
        self._refuse_senders()
        self._change.unpark_all()

    def _check_open(self) -> None:
        if self._is_over():
            raise self._over()

    @staticmethod
    def _over() -> Closed:
        return Closed("this pushable has ended")

    async def _fetch(self) -> None:
        before = self._given
        while self._given == before:
            if self._finished:
                raise self._failure or EndOfStream
            await self._change.park()
            self.pace.begin()

    def _close(self, reason: Reason | None) -> None:
        self._refuse_senders()
        self._change.unpark_all()
        if self._on_end is not None:
            check_plain(self._on_end(reason), self.description)


def pushable(
    limit: int | None = None, *, on_end: Callable[[Reason | None], object] | None = None
) -> Pushable[Any]:
    """Returns a source to push values into, which holds at most ``limit`` of them.

    ``on_end`` is called once: with None when all was read, else with the reason of the abort or the error.
    """
    return Pushable(limit, on_end)


class Deferred(Source[T]):
    """A source whose stream is set later."""

    def __init__(self, description: str = "defer") -> None:
        super().__init__(description)
        self._stream: Upstream[T] | None = None
        self._resolved: Final = parking_lot()

    def resolve(self, stream: Upstream[T]) -> None:
        """Sets the stream; raises ``UsageError`` if it was set before.  Aborts the stream if this was
        aborted."""
        if self._stream is not None:
            raise UsageError(f"{self.description} has been resolved already")
        check_stream(stream, self.description)
        if stream is self:
            raise UsageError(f"{self.description} cannot be resolved with itself")
        self._stream = stream
        self._resolved.unpark_all()
        if self._end is not None:
            stream.abort_nowait(True if self._end.reason is None else self._end.reason)

    async def _fetch(self) -> None:
        while self._stream is None:
            await self._resolved.park()
        self._held.append(await self._stream.read())

    async def _teardown(self, reason: Reason) -> None:
        if self._stream is not None:
            await self._stream.abort(reason)

    def _indicate(self, reason: Reason) -> None:
        if self._stream is not None:
            self._stream.abort_nowait(reason)


def defer() -> Deferred[Any]:
    """Returns a source for a pipe that is made now; reads wait until ``resolve(stream)`` is called."""
    return Deferred()


class FromChannel(Source[T]):
    """Gives the values of a trio channel."""

    def __init__(self, channel: trio.abc.ReceiveChannel[T]) -> None:
        super().__init__("from_channel")
        self._channel = channel

    async def _fetch(self) -> None:
        try:
            self._held.append(await self._channel.receive())
        except trio.EndOfChannel:
            raise EndOfStream from None

    async def _teardown(self, reason: Reason) -> None:
        await self._channel.aclose()

    def _close(self, reason: Reason | None) -> None:
        if isinstance(self._channel, trio.MemoryReceiveChannel):
            self._channel.close()


def from_channel(channel: trio.abc.ReceiveChannel[T]) -> FromChannel[T]:
    """Returns a source of what a channel receives; closes the channel at the end.

    Its ``receive`` must lose nothing when it is cancelled; trio's channels lose nothing.
    """
    return FromChannel(channel)


class FromAsync(Source[T]):
    """Gives the items of an asynchronous iterable, taken in a task of its own.

    An asynchronous generator does not survive a cancelled ``__anext__``, so the cancellation of a reader must
    not reach it.
    """

    needs_tasks: ClassVar[bool] = True

    def __init__(self, items: AsyncIterable[T]) -> None:
        super().__init__("from_async_iterable")
        self._items = items
        self._asked = self._running = self._started = False
        self._failure: Exception | None = None
        self._unclosed: Exception | None = None
        self._scope: Scope | None = None
        self._change: Final = parking_lot()
        self._room: Final = parking_lot()

    async def _fetch(self) -> None:
        if not self._started:
            self._started = self._running = True
            self._scope = loop().scope()
            self._tasks().start_soon(self._pump, name=self.description)
        before = self._given
        while self._given == before:
            if self._failure is not None and not self._running:
                self._unclosed = None
                raise self._failure
            self._asked = True
            self._change.unpark_all()
            await self._change.park()

    async def _pump(self) -> None:
        items: Any = self._items
        try:
            items = aiter(items)
            assert self._scope is not None  # made before this task was started
            with self._scope:
                while True:
                    while not self._asked:
                        await self._change.park()
                    self._asked = False
                    self._give(await anext(items))
                    self._change.unpark_all()
        except StopAsyncIteration:
            self._failure = EndOfStream()
        except Aborted as error:  # the items of a stream
            self._failure = error
        except cancellations():
            raise
        except Exception as error:  # noqa: BLE001  # the next read raises it
            self._failure = own_error(error, self.description)
        except BaseException:
            self._interrupt(None)
            raise
        finally:
            await self._close_items(items)
            self._running = False
            self._change.unpark_all()

    async def _close_items(self, items: Any) -> None:
        aclose = getattr(items, "aclose", None)
        if aclose is not None:
            try:
                with loop().move_on_after(math.inf, shield=True):
                    await aclose()
            except Exception as error:  # noqa: BLE001  # raised by the abort, or by the read that met the end
                self._unclosed = own_error(error, self.description)
                if self._failure is None or isinstance(self._failure, EndOfStream):
                    self._failure = self._unclosed

    def _close(self, reason: Reason | None) -> None:
        if self._scope is not None:
            self._scope.cancel()

    async def _teardown(self, reason: Reason) -> None:
        while self._running:
            await self._change.park()
        unclosed, self._unclosed = self._unclosed, None
        if unclosed is not None:
            raise unclosed


def from_async_iterable(items: AsyncIterable[T]) -> FromAsync[T]:
    """Returns a source of the items of an asynchronous iterable, one for each read; closes it at the end."""
    return FromAsync(items)
