"""Bytes that grow at their end and are read by place: in memory while they are few, else in a file.

A state of a gigabyte that readers take in hundreds of parts must be prepared once, and may not take that much
memory meanwhile.  The file has no name: it ends with the process, or with the last reader, and only this
process can read it.  It lies where temporary files do (``TMPDIR``).

Always: any thread reads the bytes that were added, also where the file cannot be written: then all bytes stay
in memory.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from typing import Final

HELD_BYTES: Final = 16 << 20
"""Bytes that are held in memory at most."""

_WRITTEN: Final = 1 << 20
"""Bytes that are written at a time."""


class SpilledBytes:
    """Bytes that are added at the end by one thread, and read by any."""

    __slots__ = ("__weakref__", "_descriptor", "_held", "_may_spill", "_written")

    def __init__(self) -> None:
        self._held = bytearray()
        self._written = 0
        self._descriptor = -1
        self._may_spill = True

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
        """Adds bytes at the end."""
        self._held += some
        if self._may_spill and len(self._held) >= (_WRITTEN if self._written else HELD_BYTES):
            self._spill()

    def part(self, start: int, end: int) -> bytes:
        """Returns the bytes from one place to before another."""
        found = self._read(start, min(end, self._written)) if start < self._written else b""
        if end > self._written:
            found += self._held[max(0, start - self._written) : end - self._written]
        return found

    def _spill(self) -> None:
        """Writes what is held to the file; holds all of it from now on if that fails."""
        try:
            if self._descriptor < 0:
                self._descriptor = _unnamed()
                weakref.finalize(self, os.close, self._descriptor)
            at = 0
            while at < len(self._held):
                at += os.pwrite(self._descriptor, self._held[at:], self._written + at)
        except OSError:
            self._may_spill = False
            self._held = bytearray(self._read(0, self._written)) + self._held
            self._written = 0
            return
        self._written += len(self._held)
        self._held = bytearray()

    def _read(self, start: int, end: int) -> bytes:
        parts: list[bytes] = []
        while start < end:
            some = os.pread(self._descriptor, end - start, start)
            if not some:
                raise OSError(f"a temporary file ends at {start}, {end} bytes were written")
            parts.append(some)
            start += len(some)
        return b"".join(parts)


def _unnamed() -> int:
    """Returns the descriptor of a new file whose name is gone already."""
    descriptor, name = tempfile.mkstemp(prefix="dataspace-")
    os.unlink(name)
    return descriptor
