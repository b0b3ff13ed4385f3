"""The acknowledged mark: what the log must hold, kept outside of it.

SQLite's write-ahead log ends, for SQLite, where its first damaged frame begins: one flipped bit silently
takes along every later frame, and ``integrity_check`` finds nothing wrong.  So the newest epoch that was
acknowledged, and the checksum of its segment, are also kept in a small file beside the log.  A log that holds
less than the mark says has lost something.

The mark is written after each commit and before anything is acknowledged, and flushed to the disk once a
second and at the end.  So it catches every loss after a crash of the process, and after a power failure every
loss but the last second's; it is never ahead of the log, so it never reports a loss that did not happen.

Always: one of the two slots is whole, however a write was torn.
"""

from __future__ import annotations

import os
import struct
from hashlib import blake2b
from pathlib import Path
from time import monotonic
from typing import Final

from relay.store.ports import AcknowledgedMark
from relay.store.private import open_plain, open_private
from relay.store.sqlite.failures import translated

_FORM: Final = struct.Struct(">8sQqqq16s")
_MAGIC: Final = b"dsmark1\n"
_SLOT: Final = 512
"""Bytes between the slots: a sector each, so that a torn write spoils one of them at most."""

SYNC_SECONDS: Final = 1.0


class AcknowledgedFile:
    """The file of the mark; made if it is not there."""

    __slots__ = ("_descriptor", "_path", "_synced", "_turn", "mark")

    def __init__(self, path: Path) -> None:
        """Raises ``LogFailed`` if it cannot be opened."""
        self._path = path
        self._synced = 0.0
        with translated("open", path):
            self._descriptor = open_private(path)
            try:
                self._turn, self.mark = _newest(self._descriptor)
            except OSError:
                os.close(self._descriptor)
                raise

    @staticmethod
    def read(path: Path) -> AcknowledgedMark:
        """Returns the mark in a file that is left alone; an empty one if there is no file."""
        with translated("read", path):
            try:
                descriptor = open_plain(path)
            except FileNotFoundError:
                return AcknowledgedMark()
            try:
                return _newest(descriptor)[1]
            finally:
                os.close(descriptor)

    def write(self, mark: AcknowledgedMark, *, sync: bool = False) -> None:
        """Keeps a new mark; flushes it to the disk if asked to, or if that is a second ago.

        Raises ``LogFailed``, never with an error that is worth another try: the marked epochs are on disk.
        """
        self._turn += 1
        body = _FORM.pack(_MAGIC, self._turn, mark.epoch, mark.segment, mark.reserved, mark.checksum)
        with translated("write", self._path):
            os.pwrite(self._descriptor, body + _seal(body), self._turn % 2 * _SLOT)
            self.mark = mark
            if sync or monotonic() - self._synced >= SYNC_SECONDS:
                os.fsync(self._descriptor)
                self._synced = monotonic()

    def close(self) -> None:
        """Closes the file."""
        os.close(self._descriptor)


def _newest(descriptor: int) -> tuple[int, AcknowledgedMark]:
    found = [slot for slot in (_slot(descriptor, at) for at in (0, 1)) if slot]
    return max(found, default=(0, AcknowledgedMark()), key=lambda slot: slot[0])


def _slot(descriptor: int, at: int) -> tuple[int, AcknowledgedMark] | None:
    written = os.pread(descriptor, _FORM.size + 16, at * _SLOT)
    body, seal = written[: _FORM.size], written[_FORM.size :]
    if len(body) < _FORM.size or seal != _seal(body):
        return None
    _, turn, epoch, segment, reserved, checksum = _FORM.unpack(body)
    return turn, AcknowledgedMark(epoch, segment, reserved, checksum)


def _seal(body: bytes) -> bytes:
    return blake2b(body, digest_size=16).digest()
