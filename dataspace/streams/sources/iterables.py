"""Sources of values that are at hand: of a sequence, a mapping, a count, a function, a file, of nothing.

Always: nothing is computed before it is requested; ``None``, ``False`` and ``0`` are values like any other.
A file is closed at the end of its stream, whatever ends it.  (pull-stream's sources; where those give values
after their end, these do not.)
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count as counter
from pathlib import Path
from typing import Any, Final, TextIO, TypeVar

from dataspace.errors import UsageError
from dataspace.streams.sources.base import Iterated, Source
from dataspace.streams.stages.functions import check_plain, check_sync, close_iterator
from dataspace.streams.stages.marks import SIGNALS, End, EndOfStream, Reason, check_reason
from dataspace.streams.stages.threads import Threads

K = TypeVar("K")
T = TypeVar("T")


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
