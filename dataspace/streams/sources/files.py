"""Lines of a file, as a source.

Files are read in threads, a portion at a time, so that a slow disk delays no other task.

Always: the file is closed at the end of the stream, whatever ends it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, TextIO

from dataspace.streams.sources.base import Source
from dataspace.streams.stages.marks import EndOfStream, Reason
from dataspace.streams.stages.threads import Threads

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
