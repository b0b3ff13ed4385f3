"""Forking streams: one stream as several; fork_mirror, fork_round_robin.

There is no task: any fork that needs a value which is not there reads the stream for all, and when its reader
is cancelled, another one's takes over.

Always: an aborted fork leaves, and its share with it; the last one aborts the stream, with the first error
among the reasons; the end and an error come to every fork after its own values.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, Final, Generic, TypeVar

from dataspace.errors import UsageError
from dataspace.loops.here import parking_lot
from dataspace.streams.pipes.pipes import Pipe, pipe
from dataspace.streams.sources.base import Source
from dataspace.streams.stages.base import check_stream, deeper
from dataspace.streams.stages.functions import is_count
from dataspace.streams.stages.marks import End, Reason
from dataspace.streams.stages.protocol import Upstream

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
