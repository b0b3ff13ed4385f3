"""Sinks, the ends of pipes: a sink reads until the end and returns one result.

A subclass defines what happens to values (``_take`` or ``_deliver``) and what the result is (``_result``);
running the pipe and failing it are here.

Always: the first read of a sink settles with a result or an error; any error is passed upstream and raised
once as it is, and afterwards as ``Aborted``; a read that is cancelled has kept what it had taken, and the
next one goes on.  (Promistream, "Sink streams".)
"""

from __future__ import annotations

import json
import logging
import math
import os
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import reduce as fold
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Final, Generic, TypeVar

import trio

from dataspace.kernel.changes import Change, EpochChanges
from dataspace.loops.here import cancellations, loop
from dataspace.streams.stages.base import LONGEST, Base, Kind
from dataspace.streams.stages.functions import Threads, check_plain, check_sync, truth
from dataspace.streams.stages.protocol import End, EndOfStream, Reason, Upstream
from index.values.jsons import captures_json

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
        """Handles values, for sinks that wait.  A cancelled call must keep the values."""
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


# -- Sinks that collect ----------------------------------------------------------------------------
# Always: a sink that wants no more aborts upstream before it answers. (pull-stream's sinks.)


logger = logging.getLogger(__name__)

NONE: Final[Any] = object()


class Drain(Sink[T, int], Generic[T]):
    """Takes values, calls a function with each and counts them; the function ends it by returning False."""

    def __init__(self, show: Callable[[T], object] | None, description: str = "drain") -> None:
        super().__init__(description)
        if show is not None:
            check_sync(show, description)
        self._show = show
        self._count = 0
        if show is not None:
            self.portion = 1  # type: ignore[misc]  # it may not want all of them

    def _take(self, values: Sequence[T]) -> None:
        self._count += len(values)
        if self._show is not None:
            for value in values:
                answer = self._show(value)
                if answer is not None:
                    check_plain(answer, self.description)
                    self._enough = answer is False

    def _result(self) -> int:
        return self._count


def drain(show: Callable[[T], object] | None = None) -> Drain[T]:
    """Returns a sink whose result is the number of values.

    It calls ``show(value)`` for each, and ends the stream when that returns False.
    """
    return Drain(show)


class ReduceSink(Sink[T, R], Generic[T, R]):
    """Folds the values into one."""

    def __init__(self, fn: Callable[[R, T], R], start: R) -> None:
        super().__init__("reduce")
        check_sync(fn, "reduce")
        self._fn = fn
        self._sum = start

    def _take(self, values: Sequence[T]) -> None:
        if self._sum is NONE:
            self._sum, values = values[0], values[1:]  # type: ignore[assignment]  # R is T then
        self._sum = fold(self._fn, values, self._sum)
        check_plain(self._sum, self.description)

    def _result(self) -> R:
        if self._sum is NONE:
            raise ValueError("reduce of an empty stream without a value to start from")
        return self._sum


def reduce(fn: Callable[[R, T], R], start: R = NONE) -> ReduceSink[T, R]:
    """Returns a sink whose result is ``fn(…fn(fn(start, v1), v2)…)``; by default v1 is the start."""
    return ReduceSink(fn, start)


class Collect(Sink[T, list[T]], Generic[T]):
    """Collects all values in a list."""

    def __init__(self) -> None:
        super().__init__("collect")
        self._all: list[T] = []

    def _take(self, values: Sequence[T]) -> None:
        self._all.extend(values)

    def _result(self) -> list[T]:
        return self._all


def collect() -> Collect[Any]:
    """Returns a sink whose result is a list of all values."""
    return Collect()


class Concat(Sink[Any, Any]):
    """Joins all texts, or all bytes."""

    def __init__(self, empty: str | bytes) -> None:
        super().__init__("concat")
        self._empty = empty
        self._all: list[Any] = []

    def _take(self, values: Sequence[Any]) -> None:
        self._all.extend(values)

    def _result(self) -> Any:
        return type(self._all[0] if self._all else self._empty)().join(self._all)


def concat(empty: str | bytes = "") -> Concat:
    """Returns a sink that joins texts or bytes; its result is ``empty`` if there are none."""
    return Concat(empty)


class Find(Sink[T, T | None], Generic[T]):
    """Finds the first value that passes a test."""

    portion: ClassVar[int] = 1

    def __init__(self, test: Callable[[T], object]) -> None:
        super().__init__("find")
        check_sync(test, "find")
        self._test = test
        self._found: T | None = None

    def _take(self, values: Sequence[T]) -> None:
        for value in values:
            if truth(self._test(value), self.description):
                self._found = value
                self._enough = True

    def _result(self) -> T | None:
        return self._found


def find(test: Callable[[T], object]) -> Find[T]:
    """Returns a sink whose result is the first value with ``test(value)``, or None; it reads no further."""
    return Find(test)


class OnEnd(Drain[Any]):
    """Takes all values and calls a function at the end."""

    def __init__(self, tell: Callable[[Reason | None], object]) -> None:
        super().__init__(None, "on_end")
        check_sync(tell, "on_end")
        self._tell = tell

    def _close(self, reason: Reason | None) -> None:
        check_plain(self._tell(reason), self.description)


def on_end(tell: Callable[[Reason | None], object]) -> OnEnd:
    """Returns a sink that calls ``tell`` once, with None at the end, else with the reason.

    Its result is the number of values.
    """
    return OnEnd(tell)


def log(prefix: str = "", *, level: int = logging.INFO) -> Drain[Any]:
    """Returns a sink that logs each value with this module's logger; its result is the number of values."""

    def show(value: object) -> None:
        logger.log(level, "%s%r", prefix, value)

    return Drain(show, "log")


# -- Sinks that write ------------------------------------------------------------------------------
# Files are written in threads, a portion at a time, so that a slow disk delays no other task.
#
# Always: a sink writes its values before it takes more; the file is closed at the end of the
# stream, whichever it is; a cancelled sink goes on with the values that it had taken.


def line_of(value: object) -> str:
    """Returns the line that ``to_file`` writes for a value: a text as it is, changes and other things as
    JSON.

    >>> line_of("as it is"), line_of({"a": [1, None]})
    ('as it is', '{"a": [1, null]}')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, EpochChanges):
        return "\n".join(map(line_of, value))
    if isinstance(value, Change):
        captures = captures_json(tuple(value.named), value.captures)
        time = value.time.isoformat().replace("+00:00", "Z")
        return json.dumps(
            {"epoch": value.epoch, "time": time, "change": value.kind, "captures": captures},
            ensure_ascii=False,
        )
    return json.dumps(value, ensure_ascii=False)


class ToFile(Sink[Any, int]):
    """Writes one line for each value; the result is the number of values."""

    def __init__(self, path: Path, encode: Callable[[Any], str], append: bool, sync: bool) -> None:
        super().__init__(f"to_file({path.name})")
        self._path = path
        self._encode = encode
        self._mode: Final = "ab" if append else "wb"
        self._sync = sync
        self._file: BinaryIO | None = None
        self._count = 0
        self._threads: Final = Threads(self._close_file)
        check_sync(encode, self.description)

    async def _deliver(self, values: Sequence[Any]) -> None:
        lines = [self._encode(value) for value in values]
        for line in lines:
            check_plain(line, self.description)
        data = "".join([line + "\n" for line in lines if line]).encode()
        await self._in_thread(self._write, data, len(values))

    def _write(self, data: bytes, count: int) -> None:
        if self._file is None:
            self._file = self._path.open(self._mode)
        assert self._file is not None  # just opened
        self._file.write(data)
        self._file.flush()
        self._count += count

    async def _conclude(self) -> None:
        await self._in_thread(self._write, b"", 0)
        if self._sync and self._file is not None:
            await self._in_thread(os.fsync, self._file.fileno())

    async def _in_thread(self, fn: Callable[..., Any], *args: Any) -> None:
        """Runs a blocking call to its end: values taken from upstream must not be lost half way."""
        with loop().move_on_after(math.inf, shield=True):
            await self._threads.call(fn, *args)

    def _take(self, values: Sequence[Any]) -> None:
        raise AssertionError("values are delivered")

    def _result(self) -> int:
        return self._count

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()

    def _close(self, reason: Reason | None) -> None:
        self._threads.close()

    async def _teardown(self, reason: Reason) -> None:
        await self._threads.wait_idle()


def to_file(
    path: str | os.PathLike[str],
    *,
    encode: Callable[[Any], str] = line_of,
    append: bool = False,
    sync: bool = False,
) -> ToFile:
    """Returns a sink that writes ``encode(value)`` and a newline for each value; its result is their number.

    Lines are in the file as soon as they are written, in UTF-8; ``sync`` waits for the disk at the end.
    An ``OSError`` (a full disk) fails the stream.
    """
    return ToFile(Path(path), encode, append, sync)


class ToChannel(Sink[T, int], Generic[T]):
    """Sends values over a trio channel and closes it at the end; the result is their number."""

    portion = 1

    def __init__(self, channel: trio.abc.SendChannel[T]) -> None:
        super().__init__("to_channel")
        self._channel = channel
        self._unsent: list[T] = []
        self._count = 0

    async def _deliver(self, values: Sequence[T]) -> None:
        self._unsent.extend(values)
        await self._send_all()

    async def _drive(self, source: Upstream[T]) -> Exception | None:
        await self._send_all()  # what a cancelled read had taken
        return await super()._drive(source)

    async def _send_all(self) -> None:
        while self._unsent:
            await self._channel.send(self._unsent[0])
            del self._unsent[0]
            self._count += 1

    async def _conclude(self) -> None:
        await self._channel.aclose()

    async def _teardown(self, reason: Reason) -> None:
        await self._channel.aclose()

    def _indicate(self, reason: Reason) -> None:
        if isinstance(self._channel, trio.MemorySendChannel):
            self._channel.close()

    def _take(self, values: Sequence[T]) -> None:
        raise AssertionError("values are delivered")

    def _result(self) -> int:
        return self._count


def to_channel(channel: trio.abc.SendChannel[T]) -> ToChannel[T]:
    """Returns a sink that sends each value over a channel and closes it; its result is the number of values.

    A closed receiver fails the stream.
    """
    return ToChannel(channel)
