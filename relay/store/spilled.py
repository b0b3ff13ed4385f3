"""Bytes and sorted rows that are too many for memory, in temporary files.

A state of a gigabyte that readers take in hundreds of parts must be prepared once, and may not take that much
memory, neither while it is sorted nor meanwhile.  A file has no name: it ends with the process, or with its
last reader, and only this process can read it.  Files lie where temporary files do (``TMPDIR``).

Always: any thread reads the bytes that were added; a failed write raises and leaves no file behind.
"""

from __future__ import annotations

import errno
import os
import tempfile
import weakref
from array import array
from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import pairwise
from typing import Any, Final

from dataspace.codec import pack, unpack_own
from relay.store.errors import LogFailed

HELD_BYTES: Final = 16 << 20
"""Bytes that are held in memory at most."""

RUNS: Final = 64
"""Runs that are merged at once, each with a file and a block in memory."""

BLOCK_BYTES: Final = 64 << 10
"""Bytes of a run that are read at once, unless one row is larger."""

ENTRY_BYTES: Final = 200
"""About the bytes that an entry takes in memory beside its key."""

_WRITTEN: Final = 1 << 20
"""Bytes that are written at a time."""

_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class SpilledBytes:
    """Bytes that are added at the end by one thread, and read by any."""

    __slots__ = ("__weakref__", "_descriptor", "_held", "_most", "_written")

    def __init__(self, most: int | None = None) -> None:
        """Holds ``most`` bytes in memory before there is a file, by default ``HELD_BYTES``."""
        self._most = HELD_BYTES if most is None else most
        self._held = bytearray()
        self._written = 0
        self._descriptor = -1

    def __len__(self) -> int:
        return self._written + len(self._held)

    @property
    def spilled(self) -> int:
        """Returns how many bytes are in the file."""
        return self._written

    @property
    def held(self) -> int:
        """Returns how many bytes are in memory."""
        return len(self._held)

    def add(self, some: bytes) -> None:
        """Adds bytes at the end; raises ``LogFailed`` if they do not fit in memory and cannot be written."""
        self._held += some
        if len(self._held) >= (_WRITTEN if self._written else self._most):
            self.flush()

    def part(self, start: int, end: int) -> bytes:
        """Returns the bytes from one place to before another."""
        found = self._read(start, min(end, self._written)) if start < self._written else b""
        if end > self._written:
            found += self._held[max(0, start - self._written) : end - self._written]
        return found

    def flush(self) -> None:
        """Writes what is held in memory to the file; raises ``LogFailed`` where that fails."""
        try:
            if self._descriptor < 0:
                self._descriptor = _unnamed()
                weakref.finalize(self, os.close, self._descriptor)
            at = 0
            with memoryview(self._held) as held:
                while at < len(held):
                    at += os.pwrite(self._descriptor, held[at:], self._written + at)
        except OSError as error:
            place = f" in {tempfile.tempdir}" if tempfile.tempdir else ""  # none was found to write to
            raise LogFailed(
                f"cannot write a temporary file of {len(self)} bytes{place}: {error.strerror or error};"
                " states are sorted there: free some space, or set TMPDIR to a directory that has it",
                full=error.errno in _ROOM,
            ) from error
        self._written += len(self._held)
        self._held = bytearray()

    def _read(self, start: int, end: int) -> bytes:
        parts: list[bytes] = []
        while start < end:
            some = os.pread(self._descriptor, end - start, start)
            if not some:
                raise LogFailed(f"a temporary file ends at {start}, {end} bytes were written")
            parts.append(some)
            start += len(some)
        return b"".join(parts)


def _unnamed() -> int:
    """Returns the descriptor of a new file whose name is gone already."""
    descriptor, name = tempfile.mkstemp(prefix="dataspace-")
    os.unlink(name)
    return descriptor


class SortedRuns:
    """Runs of sorted tuples in files, and all of them in order: an external merge sort.

    The second part of each tuple is bytes, and most of its size.

    Always: of entries that compare as equal all are there; memory is one block for each of ``RUNS`` runs.
    """

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: list[_Run] = []

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, entries: Iterable[tuple[Any, ...]]) -> None:
        """Writes entries that are in order.  Raises ``LogFailed`` where there is no room for them."""
        self._runs.append(_Run(entries))
        if len(self._runs) >= RUNS:
            self._runs = [_Run(self.merged())]

    def merged(self, *others: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        """Yields all entries, and those of ``others``, in order; 0.4 µs each."""
        return merge(*self._runs, *others)


class _Run:
    __slots__ = ("_bytes", "_ends")

    def __init__(self, entries: Iterable[tuple[Any, ...]]) -> None:
        self._bytes, self._ends = SpilledBytes(0), array("Q", [0])
        block: list[tuple[Any, ...]] = []
        size = 0
        for each in entries:
            block.append(each)
            size += len(each[1]) + ENTRY_BYTES
            if size >= BLOCK_BYTES:
                self._write(block)
                block, size = [], 0
        if block:
            self._write(block)
        self._bytes.flush()

    def _write(self, block: list[tuple[Any, ...]]) -> None:
        self._bytes.add(pack(block))
        self._ends.append(len(self._bytes))

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for start, end in pairwise(self._ends):
            yield from unpack_own(self._bytes.part(start, end))  # type: ignore[misc]  # as it was packed
