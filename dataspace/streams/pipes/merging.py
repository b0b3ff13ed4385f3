"""Converging streams: several streams as one; cat, converge, merge, many.

The inputs are streams that are bound already (pipes with a source, forks).

Always: a failure of one input fails the others and then the reader; an abort ends all inputs and is answered
after the last; a value that was taken from an input is given, whoever went away in between.
(pull-cat, pull-merge, pull-many; where merge drops an equal key and swallows errors, this does not.)
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Final, TypeVar

import trio

from dataspace.errors import Closed
from dataspace.streams.sources.base import Source
from dataspace.streams.stages.marks import End, EndOfStream, Reason
from dataspace.streams.stages.protocol import Upstream

T = TypeVar("T")


async def abort_all(streams: Iterable[Upstream[Any]], reason: Reason) -> None:
    """Aborts each, whatever the others say; raises what went wrong when all have been told."""
    errors: list[Exception] = []
    for stream in list(streams):
        try:
            await stream.abort(reason)
        except Exception as error:  # noqa: BLE001  # raised below, when all have been told
            errors.append(error)
    if errors:
        raise errors[0] if len(errors) == 1 else ExceptionGroup("streams could not end in order", errors)


class Joined(Source[T]):
    """A source over several inputs.  Subclasses say which is read next."""

    def __init__(self, description: str, inputs: Iterable[Upstream[T]]) -> None:
        super().__init__(description)
        self._inputs: Final = deque(inputs)
        """The inputs that have not ended."""

    @abstractmethod
    async def _fetch_next(self) -> None:
        """As ``_fetch``."""

    async def _fetch(self) -> None:
        try:
            await self._fetch_next()
        except EndOfStream:
            raise
        except Exception as error:
            end = End.met(error)
            self._forget_failed()
            await abort_all(self._inputs, True if end.reason is None else end.reason)
            raise

    def _forget_failed(self) -> None:
        """Leaves the input that has just raised out of those to be aborted."""

    async def _teardown(self, reason: Reason) -> None:
        await abort_all(self._inputs, reason)

    def _indicate(self, reason: Reason) -> None:
        for stream in list(self._inputs):
            stream.abort_nowait(reason)


class Cat(Joined[T]):
    """One after the other."""

    async def _fetch_next(self) -> None:
        while self._inputs:
            try:
                self._held.append(await self._inputs[0].read())
                return
            except EndOfStream:
                self._inputs.popleft()
        raise EndOfStream

    def _forget_failed(self) -> None:
        self._inputs.popleft()


def cat(*streams: Upstream[T]) -> Cat[T]:
    """All values of the first stream, then those of the second, and so on."""
    return Cat("cat", streams)


class Converge(Joined[T]):
    """One of each in turn."""

    async def _fetch_next(self) -> None:
        while self._inputs:
            try:
                value = await self._inputs[0].read()
            except EndOfStream:
                self._inputs.popleft()
            else:
                self._held.append(value)
                self._inputs.rotate(-1)
                return
        raise EndOfStream

    def _forget_failed(self) -> None:
        self._inputs.popleft()


def converge(*streams: Upstream[T]) -> Converge[T]:
    """One value of each stream in turn, until all have ended: the reverse of ``fork_round_robin``."""
    return Converge("converge", streams)


class Merge(Joined[T]):
    """In the order of a key, of inputs that are in that order."""

    def __init__(self, inputs: Iterable[Upstream[T]], key: Callable[[T], Any] | None) -> None:
        super().__init__("merge", inputs)
        self._key = key
        self._heads: Final[dict[int, tuple[Any, T]]] = {}
        """The next value of each input, by the input's place among those given, with its key."""
        self._places: Final = dict(enumerate(self._inputs))
        self._asked: int | None = None

    async def _fetch_next(self) -> None:
        for place, stream in list(self._places.items()):
            if place not in self._heads:
                self._asked = place
                try:
                    value = await stream.read()
                except EndOfStream:
                    self._remove(place)
                else:
                    self._heads[place] = (value if self._key is None else self._key(value), value)
        if not self._heads:
            raise EndOfStream
        # the first of equals wins: the places are in order, and min takes the first
        least = min(self._places, key=lambda place: self._heads[place][0])
        self._held.append(self._heads.pop(least)[1])

    def _remove(self, place: int) -> None:
        self._inputs.remove(self._places.pop(place))

    def _forget_failed(self) -> None:
        if self._asked in self._places and self._asked not in self._heads:
            self._remove(self._asked)


def merge(*streams: Upstream[T], key: Callable[[T], Any] | None = None) -> Merge[T]:
    """All values of streams that are in ascending order, in ascending order (of ``key(value)``).

    Equal ones all come, those of an earlier stream first.
    """
    return Merge(streams, key)


class Many(Joined[T]):
    """Whoever has a value, in turn; reads each input one value ahead, in a task of its own."""

    needs_tasks: ClassVar[bool] = True

    def __init__(self, inputs: Iterable[Upstream[T]], *, capped: bool) -> None:
        super().__init__("many", inputs)
        self._capped = capped
        self._begun: set[int] = set()
        self._ready: deque[T] = deque()
        self._failed: Exception | None = None
        self._change: Final = trio.lowlevel.ParkingLot()
        self._taken: Final = trio.lowlevel.ParkingLot()

    def add(self, stream: Upstream[T]) -> None:
        """Adds an input; ``Closed`` after the end or ``cap()``."""
        if self._capped or self._end is not None:
            raise Closed("no stream can be added any more")
        self._inputs.append(stream)
        self._change.unpark_all()

    def cap(self) -> None:
        """No more inputs: the stream ends with the last of them."""
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
        except Exception as error:  # noqa: BLE001  # the reader is told
            if self._end is None and not isinstance(error, EndOfStream) and self._failed is None:
                self._failed = error
            if stream in self._inputs:
                self._inputs.remove(stream)
        self._change.unpark_all()

    def _drop(self) -> None:
        super()._drop()
        self._ready.clear()
        self._taken.unpark_all()


def many(*streams: Upstream[T], open: bool = False) -> Many[T]:
    """The values of all streams as they come; with ``open`` more can be added until ``cap()``."""
    return Many(streams, capped=not open)
