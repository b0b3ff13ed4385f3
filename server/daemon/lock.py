"""The lock on a data directory: one daemon, backup or restore at a time writes a log."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dataspace.errors import DataspaceError
from relay.store.private import DIRECTORY_MODE, FILE_MODE, close_to_others


class DataUnusable(DataspaceError):
    """The data directory cannot be made or written."""


class DataInUse(DataspaceError):
    """Another process holds the directory."""


@contextmanager
def locked(directory: Path, *, wait: bool = False) -> Iterator[None]:
    """Holds the directory for this process; made, for this user alone, if it is not there.

    With ``wait`` it blocks until no other process holds it, else it raises ``DataInUse`` with the holder's
    process number.  Raises ``DataUnusable`` with the system's reason.
    The kernel drops the lock with the process, so nothing has to be cleaned up after a crash.
    """
    try:
        directory.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
        close_to_others(directory / "lock")
        descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, FILE_MODE)
    except OSError as error:
        raise DataUnusable(f"cannot keep data in {directory}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            raise DataInUse(
                f"{directory} is in use by process {holder}; give another directory, or stop that process"
            ) from None
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            raise DataUnusable(f"cannot keep data in {directory}: {error.strerror}") from error
        yield
    finally:
        os.close(descriptor)
