"""Sinks that write: values to a file as lines, values to a channel.

Files are written in threads, a portion at a time, so that a slow disk delays no other task.

Always: a sink writes its values before it takes more; the file is closed at the end of the stream, whichever
it is; a cancelled sink goes on with the values that it had taken.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, Generic, TypeVar

import trio

from dataspace.kernel.epoch_changes import Change, EpochChanges
from dataspace.loops.here import loop
from dataspace.streams.sinks.base import Sink
from dataspace.streams.stages.functions import check_plain, check_sync
from dataspace.streams.stages.marks import Reason
from dataspace.streams.stages.protocol import Upstream
from dataspace.streams.stages.threads import Threads
from index.values.jsons import captures_json

T = TypeVar("T")


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
