"""Throughs that end early or change how many values there are: take, flatten, window, batch.

Always: a stream that is ended early aborts upstream once, when it is asked for more, so that n asks cause no
more than n reads; groups and pieces keep the order.  (pull-stream's take, flatten and window.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from dataspace.errors import UsageError
from dataspace.loops.here import loop
from dataspace.streams.stages.base import LONGEST, check_stream
from dataspace.streams.stages.functions import check_sync, close_iterator, is_count, truth
from dataspace.streams.stages.protocol import End, Reason, Upstream
from dataspace.streams.throughs.base import Transform

T = TypeVar("T")


class TakeCount(Transform[T, T]):
    """Passes on so many values."""

    def __init__(self, number: int) -> None:
        super().__init__(f"take({number})")
        self._left = number
        self._enough = number == 0

    def _feed(self, value: T) -> None:
        self._held.append(value)
        self._left -= 1
        self._enough = self._left == 0

    def _appetite(self, limit: int) -> int:
        return min(limit, self._left)

    async def peek(self, source: Upstream[T]) -> bool:
        if len(self._held) <= self._given and self._given + len(self._line) >= self._left:
            return False  # upstream may have more, which is not wanted
        return await super().peek(source)


class TakeWhile(Transform[T, T]):
    """Passes on the values before the first that fails a test, and with ``last`` that one as well."""

    def __init__(self, test: Callable[[T], object], last: bool) -> None:
        super().__init__(f"take({check_sync(test, 'take')})")
        self._test = test
        self._last = last

    def _feed(self, value: T) -> None:
        passed = truth(self._test(value), self.description)
        if passed or self._last:
            self._held.append(value)
        self._enough = not passed

    def _appetite(self, limit: int) -> int:
        return 1


def take(wanted: int | Callable[[T], object], *, last: bool = False) -> Transform[T, T]:
    """Returns a through of the first ``wanted`` values, or of those before ``wanted(value)`` is false.

    With ``last``, the first value that is not true is included.  Then upstream is aborted.
    """
    if callable(wanted):
        return TakeWhile(wanted, last)
    if wanted.__class__ is not int or wanted < 0:
        raise UsageError(f"take needs a number of values (0 or more) or a test, got {wanted!r:.60}")
    return TakeCount(wanted)


class Flatten(Transform[Any, Any]):
    """The items of lists and other iterables, the values of mappings, the values of streams, in place.

    Texts, bytes and what cannot be iterated pass as they are.  Inner iterables are not taken apart ahead:
    a value is made when it is asked for.
    """

    def __init__(self) -> None:
        super().__init__("flatten")
        self._inner: Any = None
        self._iterator: Iterator[Any] | None = None

    def _feed(self, value: Any) -> None:
        if hasattr(value, "promistream_version"):
            check_stream(value, self.description)
            self._inner = value
        elif isinstance(value, Mapping):
            self._held.extend(value.values())
        elif isinstance(value, str | bytes):
            self._held.append(value)
        elif isinstance(value, Collection):
            self._held.extend(value)
        elif isinstance(value, Iterable):  # it may be long, or have no end
            self._iterator = iter(value)
        else:
            self._held.append(value)

    def _appetite(self, limit: int) -> int:
        return 1

    async def read(self, source: Upstream[Any]) -> Any:
        return (await self.read_some(1, source))[0]

    async def _feed_some(self, limit: int, source: Upstream[Any]) -> None:
        if self._iterator is not None:
            await self._feed_items(self._iterator, limit, source)
        elif self._inner is not None:
            await self._feed_inner(limit, source)
        else:
            await super()._feed_some(limit, source)

    async def _feed_items(self, items: Iterator[Any], limit: int, source: Upstream[Any]) -> None:
        """Reads some more of an iterator, which may be long or have no end; runs other tasks from time to
        time."""
        await self._rest(limit)
        some: list[Any] = []
        try:
            some.extend(islice(items, min(limit, LONGEST)))
        except Exception as error:  # noqa: BLE001  # fails this stream; what came before is given first
            self._held.extend(some)
            await self._fail(error, source)
            return
        except BaseException:
            self._interrupt(source)
            raise
        if self._end is not None:  # the iterator itself has ended this stream
            close_iterator(items)
        elif some:
            self._held.extend(some)
        else:
            self._iterator = None

    async def _feed_inner(self, limit: int, source: Upstream[Any]) -> None:
        """Reads one more answer of the stream that is being flattened; its error fails the whole."""
        try:
            values = await _some_of(self._inner, limit)
        except Exception as error:  # noqa: BLE001  # its end is a step of ours, its error is ours
            self._inner = None
            end = End.met(error)
            if end.reason is not None and self._end is None:
                await self._stop_with(end, source)
            return
        if self._end is None:
            self._held.extend(values)

    async def _pass_on(self, reason: Reason, source: Upstream[Any] | None) -> None:
        inner, self._inner = self._inner, None
        try:
            if inner is not None:
                await inner.abort(reason)
        finally:
            await super()._pass_on(reason, source)

    def _close(self, reason: Reason | None) -> None:
        iterator, self._iterator = self._iterator, None
        try:
            if iterator is not None and not getattr(iterator, "gi_running", False):
                close_iterator(iterator)
        finally:
            if self._inner is not None:
                self._inner.abort_nowait(True if reason is None else reason)


async def _some_of(stream: Any, limit: int) -> Sequence[Any]:
    some = getattr(stream, "read_some", None)
    return [await stream.read()] if some is None else await some(limit)


def flatten() -> Transform[Any, Any]:
    """Returns a through that passes on what lists, mappings, iterators and streams among the values hold."""
    return Flatten()


class WindowThrough(Transform[T, tuple[T, ...]]):
    """Makes groups of so many values, or of those within so many seconds."""

    def __init__(self, size: int | None, seconds: float | None) -> None:
        super().__init__("window")
        self._size = size
        self._seconds = seconds
        self._open: deque[T] = deque()
        self._deadline = 0.0

    def _feed(self, value: T) -> None:
        if not self._open and self._seconds is not None:
            self._deadline = loop().current_time() + self._seconds
        self._open.append(value)
        if len(self._open) == self._size:
            self._flush()

    def _flush(self) -> None:
        if self._open:
            self._held.append(tuple(self._open))
            self._open.clear()

    def _appetite(self, limit: int) -> int:
        return 1 if self._size is None else max(1, self._size - len(self._open))

    async def read(self, source: Upstream[T]) -> tuple[T, ...]:
        return (await self.read_some(1, source))[0]

    async def _feed_some(self, limit: int, source: Upstream[T]) -> None:
        if self._seconds is None or not self._open:
            await super()._feed_some(limit, source)
            return
        with loop().move_on_at(self._deadline) as scope:  # a read that is withdrawn has taken nothing
            await super()._feed_some(limit, source)
        if scope.cancelled_caught and self._end is None:
            self._flush()

    def _drop(self) -> None:
        super()._drop()
        self._open.clear()


def window(size: int | None = None, *, seconds: float | None = None) -> Transform[Any, tuple[Any, ...]]:
    """Returns a through of groups of ``size`` values, or of those within ``seconds`` of the first.

    A group ends by whichever comes first; at the end of the stream, the last group has the values that are
    left.
    """
    is_bounded = size is not None or seconds is not None
    if not is_bounded or not (size is None or is_count(size)) or not (seconds is None or seconds > 0):
        raise UsageError(
            f"window needs a size (1 or more) or seconds above 0, got {size!r} and {seconds!r} s"
        )
    return WindowThrough(size, seconds)


class BatchThrough(Transform[T, list[T]]):
    """Makes lists of the values that are at hand."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"batch({limit})")
        self._limit = limit

    def _feed(self, value: T) -> None:
        self._held.append([value])

    async def read(self, source: Upstream[T]) -> list[T]:
        return (await self.read_some(1, source))[0]

    async def _feed_some(self, limit: int, source: Upstream[T]) -> None:
        try:
            values = await source.read_some(self._limit)
        except Exception as error:  # noqa: BLE001  # upstream has ended, which the loop of the caller handles
            self._meet(error)
            return
        if self._end is None:
            self._held.append(list(values))


def batch(limit: int) -> Transform[Any, list[Any]]:
    """Returns a through that passes on lists of 1 to ``limit`` values: the values at hand."""
    if not is_count(limit):
        raise UsageError(f"a batch holds at least one value, limit {limit}")
    return BatchThrough(limit)
