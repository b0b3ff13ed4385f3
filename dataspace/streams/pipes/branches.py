"""Branches: one stream as several, and several streams as one.

Forks have no task: any fork that needs a value which is not there reads the stream for all, and when its
reader is cancelled, another one's takes over.

Always: an aborted fork leaves, and its share with it; the last one aborts the stream, with the first error
among the reasons; the end and an error come to every fork after its own values.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Final, Generic, TypeVar

from dataspace.errors import Closed, UsageError
from dataspace.loops.here import cancellations, parking_lot
from dataspace.streams.pipes.pipes import Pipe, pipe
from dataspace.streams.sources.pulled import Source
from dataspace.streams.stages.base import check_stream, check_streams, deeper
from dataspace.streams.stages.functions import check_plain, check_sync, is_count
from dataspace.streams.stages.protocol import SIGNALS, End, EndOfStream, Reason, Upstream, own_error

T = TypeVar("T")

AHEAD: Final = 16
"""Values that wait for one fork, at the most, before the others wait for it."""


class Fork(Source[T]):
    """One of the streams that a stream was forked into."""

    def __init__(self, group: _Forks[T], description: str) -> None:
        super().__init__(description)
        self._group = group
        self.frames: Final = group.frames

    async def _fetch(self) -> None:
        await self._group.fetch(self)

    def _took(self, count: int) -> None:
        self._group.taken.unpark_all()

    def _close(self, reason: Reason | None) -> None:
        self._group.leave(self, reason)

    async def _teardown(self, reason: Reason) -> None:
        await self._group.end_if_last()

    def _indicate(self, reason: Reason) -> None:
        self._group.indicate_if_last()


class _Forks(Generic[T]):
    """The common state of the forks of one stream: the stream, the forks that remain, and the limit between
    them."""

    def __init__(self, stream: Upstream[T], number: int, ahead: int, name: str) -> None:
        check_stream(stream, name)
        if not is_count(number) or not is_count(ahead):
            raise UsageError(f"at least one fork and one value ahead, got {number} forks, {ahead} ahead")
        self.frames: Final = deeper([stream], name)
        self._stream = stream
        self._ahead = ahead
        self._end: End | None = None
        self._reason: Reason = True
        self._reading = False
        self.taken: Final = parking_lot()
        self.forks: Final = [Fork(self, f"{name} {at}") for at in range(number)]
        self._left: Final = list(self.forks)

    @abstractmethod
    def _deal(self, value: T) -> None:
        """Gives a value to the forks that are to get it."""

    async def fetch(self, fork: Fork[T]) -> None:
        """Returns when a fork has a value; raises the end when it has none left."""
        before = fork._given
        while fork._given == before:
            if self._end is not None:
                raise End(self._end.reason, owed=True).next()
            if self._reading or any(len(other._held) >= self._ahead for other in self._left):
                await self.taken.park()
            else:
                await self._read()

    async def _read(self) -> None:
        self._reading = True
        try:
            self._deal(await self._stream.read())
        except Exception as error:  # noqa: BLE001  # every fork raises it, after its own values
            self._end = End.met(error)
        finally:
            self._reading = False
            self.taken.unpark_all()

    def leave(self, fork: Fork[T], reason: Reason | None) -> None:
        """Removes a fork that has ended: it gets no more values."""
        if fork in self._left:
            self._left.remove(fork)
        if isinstance(reason, Exception) and self._reason is True:
            self._reason = reason
        self.taken.unpark_all()

    async def end_if_last(self) -> None:
        if self._ends():
            try:
                await self._stream.abort(self._reason)
            except Exception:
                raise
            except BaseException:  # also when cancelled
                self._stream.abort_nowait(self._reason)
                raise

    def indicate_if_last(self) -> None:
        if self._ends():
            self._stream.abort_nowait(self._reason)

    def _ends(self) -> bool:
        """True if no fork is left to read a stream that goes on."""
        last = not self._left and self._end is None
        if last:
            self._end = End(self._reason)
        return last


class _Mirror(_Forks[T]):
    def _deal(self, value: T) -> None:
        for fork in self._left:
            fork._give(value)


class _RoundRobin(_Forks[T]):
    _at = 0

    def _deal(self, value: T) -> None:
        for _ in self.forks:
            fork = self.forks[self._at]
            self._at = (self._at + 1) % len(self.forks)
            if fork in self._left:
                fork._give(value)
                return


def fork_mirror(stream: Upstream[T], number: int = 2, *, ahead: int = AHEAD) -> tuple[Pipe[T], ...]:
    """Returns ``number`` streams of the same values; none gets more than ``ahead`` values before another."""
    return tuple(_piped(_Mirror(stream, number, ahead, "fork_mirror")))


def fork_round_robin(stream: Upstream[T], number: int = 2, *, ahead: int = AHEAD) -> tuple[Pipe[T], ...]:
    """Returns ``number`` streams that get a value in turn; the share of an aborted one goes to the others."""
    return tuple(_piped(_RoundRobin(stream, number, ahead, "fork_round_robin")))


def _piped(group: _Forks[Any]) -> Iterator[Pipe[Any]]:
    return (pipe(fork) for fork in group.forks)


# -- Converging streams ----------------------------------------------------------------------------
# The inputs are streams that are bound already (pipes with a source, forks).
#
# Always: a failure of one input fails the others and then the reader; an abort ends all inputs and
# is answered after the last; a value that was taken from an input is given to a reader, even if
# another one was cancelled in between. (pull-cat, pull-merge, pull-many; where merge drops an equal
# key and swallows errors, this does not.)


U = TypeVar("U")


async def abort_all(streams: Iterable[Upstream[Any]], reason: Reason) -> None:
    """Aborts each stream, whatever the others raise; raises the errors when all are aborted.

    When cancelled, it indicates the abort to the remaining streams.
    """
    errors: list[Exception] = []
    left = deque(streams)
    while left:
        try:
            await left[0].abort(reason)
        except Exception as error:  # noqa: BLE001  # raised below, when all are aborted
            errors.append(error)
        except BaseException:
            indicate_all(left, reason)
            raise
        left.popleft()
    _raise_all(errors)


def indicate_all(streams: Iterable[Upstream[Any]], reason: Reason) -> None:
    """Indicates the abort to each stream, without waiting."""
    errors: list[Exception] = []
    for stream in list(streams):
        try:
            stream.abort_nowait(reason)
        except Exception as error:  # noqa: BLE001  # as above
            errors.append(error)
    _raise_all(errors)


def _raise_all(errors: list[Exception]) -> None:
    if errors:
        raise errors[0] if len(errors) == 1 else ExceptionGroup("streams could not end in order", errors)


class Joined(Source[T]):
    """A source over several inputs.  Subclasses choose the next one to read."""

    def __init__(self, description: str, inputs: Iterable[Upstream[T]]) -> None:
        super().__init__(description)
        self._inputs: Final = deque(inputs)
        """The inputs that have not ended."""
        self._failure: Exception | None = None
        check_streams(self._inputs, description)
        self.frames: Final = deeper(self._inputs, description)

    @abstractmethod
    async def _fetch_next(self) -> None:
        """Does what ``_fetch`` does."""

    async def _fetch(self) -> None:
        if self._failure is None:
            try:
                return await self._fetch_next()
            except EndOfStream:
                raise
            except Exception as error:  # noqa: BLE001  # raised below; kept, should this be cancelled on the way
                self._failure = error
        reason = End.met(self._failure).reason
        try:
            await abort_all(self._inputs, True if reason is None else reason)
        except Exception as further:  # noqa: BLE001  # the first error is the one to raise
            self._failure.add_note(
                f"and ending the other inputs of {self.description} failed as well: {further!r}"
            )
        raise self._failure

    async def _ask(self, stream: Upstream[T]) -> T:
        """Returns one value of an input; an input that has ended or failed is removed."""
        try:
            return await stream.read()
        except Exception:
            self._inputs.remove(stream)
            raise

    async def _teardown(self, reason: Reason) -> None:
        await abort_all(self._inputs, reason)

    def _indicate(self, reason: Reason) -> None:
        indicate_all(self._inputs, reason)


class Cat(Joined[T]):
    """Reads one input after the other."""

    async def _fetch_next(self) -> None:
        while self._inputs:
            try:
                self._held.append(await self._ask(self._inputs[0]))
            except EndOfStream:
                continue
            return
        raise EndOfStream


def cat(*streams: Upstream[T]) -> Cat[T]:
    """Returns a source of all values of the first stream, then the values of the second, and so on."""
    return Cat("cat", streams)


class Converge(Cat[T]):
    """Reads one value of each input in turn."""

    async def _fetch_next(self) -> None:
        await super()._fetch_next()
        self._inputs.rotate(-1)


def converge(*streams: Upstream[T]) -> Converge[T]:
    """Returns a source of one value of each stream in turn; it undoes ``fork_round_robin``."""
    return Converge("converge", streams)


class Merge(Joined[T]):
    """Merges inputs that are in the order of a key."""

    def __init__(self, inputs: Iterable[Upstream[T]], key: Callable[[T], Any] | None) -> None:
        super().__init__("merge", inputs)
        self._key = key
        self._heads: Final[dict[int, tuple[Any, T]]] = {}
        """The next value of each input, by the position of the input, with its key."""
        self._places: Final = dict(enumerate(self._inputs))
        if key is not None:
            check_sync(key, "merge")

    async def _fetch_next(self) -> None:
        for place, stream in list(self._places.items()):
            if place not in self._heads:
                try:
                    value = await self._ask(stream)
                except EndOfStream:
                    del self._places[place]
                else:
                    self._heads[place] = (self._key_of(value), value)
        if not self._heads:
            raise EndOfStream
        # the first of equals wins: the positions are in order, and min takes the first
        least = self._run_own(lambda: min(self._places, key=lambda place: self._heads[place][0]))
        self._held.append(self._heads.pop(least)[1])

    def _key_of(self, value: T) -> Any:
        fn = self._key
        if fn is None:
            return value
        key = self._run_own(lambda: fn(value))
        check_plain(key, self.description)
        return key

    def _run_own(self, fn: Callable[[], U]) -> U:
        """Calls user code, in which a mark would be taken for the end of an input."""
        try:
            return fn()
        except SIGNALS as signal:
            raise own_error(signal, self.description) from signal


def merge(*streams: Upstream[T], key: Callable[[T], Any] | None = None) -> Merge[T]:
    """Returns a source that merges streams in ascending order (of ``key(value)``) into one in that order.

    Equal values all come, values of an earlier stream first.
    """
    return Merge(streams, key)


class Many(Joined[T]):
    """Gives values as any input has them; reads each input one value ahead, in a task of its own."""

    needs_tasks: ClassVar[bool] = True

    def __init__(self, inputs: Iterable[Upstream[T]], *, capped: bool) -> None:
        super().__init__("many", inputs)
        self._capped = capped
        self._begun: set[int] = set()
        self._ready: deque[T] = deque()
        self._failed: Exception | None = None
        self._change: Final = parking_lot()
        self._taken: Final = parking_lot()

    def add(self, stream: Upstream[T]) -> None:
        """Adds an input; raises ``Closed`` after the end or ``cap()``."""
        if self._capped or self._end is not None:
            raise Closed("no stream can be added any more")
        check_streams([*self._inputs, stream], self.description)
        self._inputs.append(stream)
        self._change.unpark_all()

    def cap(self) -> None:
        """Accepts no more inputs: the stream ends with the last of them."""
        self._capped = True
        self._change.unpark_all()

    async def _fetch_next(self) -> None:
        while not self._ready:
            if self._failed is not None:
                raise self._failed
            if not self._inputs and self._capped:
                raise EndOfStream
            self._begin()
            await self._change.park()
        self._held.append(self._ready.popleft())
        self._taken.unpark()

    def _begin(self) -> None:
        for stream in self._inputs:
            if id(stream) not in self._begun:
                self._begun.add(id(stream))
                self._tasks().start_soon(self._read_all, stream, name=self.description)

    async def _read_all(self, stream: Upstream[T]) -> None:
        try:
            while self._end is None:
                self._ready.append(await stream.read())
                self._change.unpark_all()
                await self._taken.park()  # in the order of arrival, as values are taken
        except Exception as error:  # noqa: BLE001  # the reader raises it
            if self._end is None and not isinstance(error, EndOfStream) and self._failed is None:
                self._failed = error
            if stream in self._inputs:
                self._inputs.remove(stream)
        except cancellations():
            raise
        except BaseException:
            self._interrupt(None)
            raise
        self._change.unpark_all()

    def _drop(self) -> None:
        super()._drop()
        self._ready.clear()
        self._taken.unpark_all()


def many(*streams: Upstream[T], open: bool = False) -> Many[T]:
    """Returns a source of the values of all streams as they come; ``open`` allows ``add`` until ``cap()``."""
    return Many(streams, capped=not open)
