"""Pulled sources, the beginnings of pipes: how a source gives values to its readers.

A subclass defines how values come: ``_next`` for values at hand, or ``_fetch`` for values that must be waited
for.  The rest, concurrent reads, peeking, ends and fairness, is here.

Always: values are given in order, each once; a value that came after its reader was cancelled stays for the
next one; after the end there is none.  (Promistream, "Source streams"; pull-stream, layer 1.)
"""

from __future__ import annotations

import os
import random
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count as counter, islice
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, TextIO, TypeVar

from dataspace.errors import UsageError
from dataspace.loops.here import cancellations, loop, parking_lot
from dataspace.loops.primitives import Scope
from dataspace.streams.stages.base import Base, Kind, Pace
from dataspace.streams.stages.functions import Threads, check_plain, check_sync, close_iterator
from dataspace.streams.stages.protocol import SIGNALS, End, EndOfStream, Mark, Reason, check_reason, own_error

T = TypeVar("T")


class Source(Base, Generic[T]):
    """A source whose values are waited for, one reader at a time.  Subclasses write ``_fetch``."""

    kind: ClassVar[Kind] = Kind.SOURCE

    def __init__(self, description: str, *, pace: Pace | None = None) -> None:
        super().__init__(description)
        self._held: Final[deque[T]] = deque()
        self._given = 0
        self._reserved = 0
        self._waiting: Scope | None = None
        self._fetching = False
        self._fetched: Final = parking_lot()
        self.pace: Final = pace or Pace()
        """Given by a reader that is itself a source with a pace, which both then share."""

    @abstractmethod
    async def _fetch(self) -> None:
        """Puts one or more values into ``_held``, or raises ``EndOfStream`` or an error.

        It must be cancel-safe: when cancelled, it has taken nothing that is not in ``_held``.
        """

    def _wanted(self, readers: int) -> None:
        """Called before a value is fetched, when a reader is about to wait, with the number of waiting
        readers."""

    def _took(self, count: int) -> None:
        """Called when so many values were given; the first was waited for if necessary."""

    def _give(self, value: T) -> None:
        """Puts a value into ``_held`` and counts it, for readers that wait for one more than there are."""
        self._held.append(value)
        self._given += 1

    # -- the protocol ---------------------------------------------------------------------------------

    async def read(self, source: object = None) -> T:
        line, pace = self._line, self.pace
        if self._held and line.entered == line.left and pace.passed + 1 < pace.run:
            pace.passed += 1
            if self._reserved:
                self._reserved -= 1
            value = self._held.popleft()
            self._took(1)
            return value
        return (await self._read_in_turn(1))[0]

    async def read_some(self, limit: int, source: object = None) -> list[T]:
        return await self._read_in_turn(limit)

    async def peek(self, source: object = None) -> bool:
        while len(self._held) <= self._reserved + len(self._line):
            if self._end is not None:
                return False
            await self._fetch_once()
        if self._end is not None and self._end.dropped:
            return False
        self._reserved += 1
        return True

    async def abort(self, reason: Reason = True, source: object = None) -> None:
        await self._end_by_abort(reason, None)

    def abort_nowait(self, reason: Reason = True, source: object = None) -> None:
        self._end_by_indication(reason, None)

    # -- how values come ------------------------------------------------------------------------------

    async def _read_in_turn(self, limit: int) -> list[T]:
        self._reserved = max(0, self._reserved - 1)
        self._wanted(len(self._line) + 1)
        ticket = self._line.join()
        if self._line.left != ticket:
            await self._line.wait_turn(ticket)
        try:
            await self._fill()
            held = self._held
            taken = [held.popleft() for _ in range(min(limit, len(held)))]
            self._count(len(taken) - 1)
        finally:
            self._line.leave(ticket)
        self._took(len(taken))
        return taken

    async def _fill(self) -> None:
        """Returns when a value is held; raises the end."""
        pace = self.pace
        pace.passed += 1
        if pace.passed >= pace.run:
            await pace.rest()
        while not self._held:
            if self._end is not None:
                raise self._end.next()
            await self._fetch_once()

    def _count(self, further: int) -> None:
        """Notes that one request took more than one value."""
        self._reserved = max(0, self._reserved - further)
        self.pace.passed += further

    async def _fetch_once(self) -> None:
        """Fetches unless a fetch is under way: a reader and a peeker may both be waiting."""
        if self._fetching:
            await self._fetched.park()
            self.pace.begin()
            return
        self._fetching = True
        try:
            with loop().scope() as self._waiting:
                await self._fetch()
        except Mark as mark:
            self._finish(End.met(mark))
        except SIGNALS as signal:  # Python's, which a source has no use for
            self._finish(End(own_error(signal, self.description), owed=True))
        except Exception as error:  # noqa: BLE001  # what the source has to say; a read will raise it
            self._finish(End(error, owed=True))
        except cancellations():
            raise
        except BaseException:
            self._interrupt(None)
            raise
        finally:
            self._waiting = None
            self._fetching = False
            self._fetched.unpark_all()
            self._settle()

    def _settle(self) -> None:
        """After an end: drops values that came too late, and releases what the source holds."""
        if self._end is not None:
            if self._end.dropped:
                self._held.clear()
            try:
                self._close_once()
            except Exception as error:
                if self._end.dropped:
                    raise  # the caller that ended it is not here, so the reader gets the error
                self._end = End(error, owed=True)

    def _drop(self) -> None:
        self._held.clear()
        if self._waiting is not None:
            self._waiting.cancel()


class Iterated(Source[T]):
    """A source of values that are at hand: reading it waits only for its turn among tasks.

    The iterator is closed at the end, if it can be, as ``yield from`` does.
    """

    def __init__(self, description: str, values: Iterator[T]) -> None:
        super().__init__(description)
        self._values = values
        self._unclosed: Iterator[T] | None = None

    async def read(self, source: object = None) -> T:
        pace, line = self.pace, self._line
        if pace.passed + 1 >= pace.run or line.entered != line.left or self._held:
            return await super().read()
        pace.passed += 1
        if self._reserved:
            self._reserved -= 1
        try:
            for value in self._values:  # of nothing after the end
                if self._end is not None:
                    break  # the iterator itself has ended this stream
                return value
        except Exception as error:  # noqa: BLE001  # raised below, as it is
            self._fail_own(error)
        except BaseException:
            self._interrupt(None)
            raise
        else:
            self._finish(End(None))
            self._settle()
        self._close_late()
        raise self._ended()

    async def read_some(self, limit: int, source: object = None) -> list[T]:
        taken = await super().read_some(limit)
        before = len(taken)
        try:
            taken.extend(islice(self._values, max(0, min(limit, self.pace.run) - before)))
        except Exception as error:  # noqa: BLE001  # the next read raises it; what came before is kept
            self._fail_own(error)
        except BaseException:
            self._interrupt(None)
            raise
        self._close_late()
        if self._end is not None and self._end.dropped:
            raise self._ended()
        self._count(len(taken) - before)
        return taken

    async def _fetch(self) -> None:
        try:
            for value in self._values:
                self._held.append(value)
                return
        except SIGNALS as signal:
            raise own_error(signal, self.description) from signal
        finally:
            self._close_late()
        raise EndOfStream

    def _fail_own(self, error: Exception) -> None:
        self._finish(End(own_error(error, self.description), owed=True))
        self._settle()

    def _close(self, reason: Reason | None) -> None:
        values, self._values = self._values, iter(())
        if getattr(values, "gi_running", False):
            self._unclosed = values  # it has ended this stream from within
        else:
            close_iterator(values)

    def _close_late(self) -> None:
        unclosed, self._unclosed = self._unclosed, None
        if unclosed is not None:
            close_iterator(unclosed)


# -- Sources of values at hand ---------------------------------------------------------------------
# Always: nothing is computed before it is requested; ``None``, ``False`` and ``0`` are values like
# any other. A file is closed at the end of its stream, whatever ends it. (pull-stream's sources;
# where those give values after their end, these do not.)


K = TypeVar("K")


def from_iterable(items: Iterable[T]) -> Iterated[T]:
    """Returns a source of the items of an iterable; closes the iterator at the end."""
    return Iterated("from_iterable", iter(items))


def values(items: Iterable[T] | Mapping[Any, T]) -> Iterated[T]:
    """Returns the same as ``from_iterable``, and for a mapping a source of its values."""
    return Iterated("values", iter(items.values() if isinstance(items, Mapping) else items))


def keys(items: Mapping[K, Any] | Iterable[Any]) -> Iterated[K | int]:
    """Returns a source of the keys of a mapping, or of the positions in an iterable."""
    if isinstance(items, Mapping):
        return Iterated("keys", iter(items))
    return Iterated("keys", _positions(iter(items)))


def _positions(items: Iterator[Any]) -> Iterator[int]:
    try:
        for at, _ in enumerate(items):
            yield at
    finally:
        close_iterator(items)


def count(last: int | None = None) -> Iterated[int]:
    """Returns a source of 0, 1, 2, … up to and including ``last``, or without end."""
    return Iterated("count", iter(range(last + 1)) if last is not None else counter())


def infinite(make: Callable[[], T] = random.random) -> Iterated[T]:  # type: ignore[assignment]  # T is float then
    """Returns a source that calls ``make()`` for each value, without end."""
    check_sync(make, "infinite")
    return Iterated("infinite", _made(make))


def _made(make: Callable[[], T]) -> Iterator[T]:
    while True:
        value = make()
        check_plain(value, "infinite")
        yield value


def once(value: T) -> Iterated[T]:
    """Returns a source of one value."""
    return Iterated("once", iter((value,)))


def empty() -> Iterated[Any]:
    """Returns a source that ends at once."""
    return Iterated("empty", iter(()))


def error(reason: Exception) -> Iterated[Any]:
    """Returns a source that has failed: the first read raises ``reason``, later ones ``Aborted``."""
    check_reason(reason)
    if isinstance(reason, SIGNALS):
        raise UsageError(f"error() needs an error, got {reason!r:.80}; empty() is a stream that just ends")
    failed = Iterated[Any]("error", _none())
    failed._end = End(reason, owed=True)
    return failed


def _none() -> Iterator[Any]:
    return iter(())


# -- files -----------------------------------------------------------------------------------------
#
# Files are read in threads, a portion at a time, so that a slow disk delays no other task.


CHUNK: Final = 64 << 10
"""Characters of lines that are read at once."""


class FileLines(Source[str]):
    """Reads the lines of a file."""

    def __init__(self, path: Path, encoding: str) -> None:
        super().__init__(f"file_lines({path.name})")
        self._path = path
        self._encoding = encoding
        self._file: TextIO | None = None
        self._lines: list[str] | None = None
        """Lines that were read for a reader; the next one finds them, if that was cancelled."""
        self._threads: Final = Threads(self._close_file)

    async def _fetch(self) -> None:
        if self._lines is None:
            await self._threads.call(self._read)
        lines, self._lines = self._lines, None
        if not lines:
            raise EndOfStream
        self._held.extend(line.rstrip("\r\n") for line in lines)

    def _read(self) -> None:
        if self._file is None:
            self._file = self._path.open(encoding=self._encoding, newline="\n")
        self._lines = self._file.readlines(CHUNK)

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()

    def _close(self, reason: Reason | None) -> None:
        self._threads.close()

    async def _teardown(self, reason: Reason) -> None:
        await self._threads.wait_idle()


def file_lines(path: str | os.PathLike[str], *, encoding: str = "utf-8") -> FileLines:
    """Returns a source of the lines of a text file, without their ends; the first read opens the file."""
    return FileLines(Path(path), encoding)
