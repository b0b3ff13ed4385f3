"""The locks on a data directory: one daemon, backup or restore at a time writes a log, and who reads it.

``lock`` is for what writes.  Followers share ``readers``, which is held alone by what rewrites a log in
place: a follower would read on in a file that is no longer the log.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from dataspace.errors import DataspaceError
from relay.store.private import DIRECTORY_MODE, open_private, private_directory

READERS: Final = "readers"
"""The name of the file whose lock followers share."""


class DataUnusable(DataspaceError):
    """The data directory cannot be made or written."""


class DataInUse(DataspaceError):
    """Another process holds the directory."""


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Holds the directory for this process; made, for this user alone, if it is not there.

    Raises ``DataInUse``, with the holder's process number, and ``DataUnusable`` with the system's reason.
    The kernel drops the lock with the process, so nothing has to be cleaned up after a crash.
    """
    with _held(directory, "lock", fcntl.LOCK_EX | fcntl.LOCK_NB, _by_whom) as descriptor:
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            raise DataUnusable(f"cannot keep data in {directory}: {error.strerror}") from error
        yield


@contextmanager
def working(directory: Path) -> Iterator[None]:
    """Holds a directory whose name this program chose, as ``locked``.

    Raises ``DataUnusable`` if a link, or the directory of another user, is there.
    """
    try:
        private_directory(directory)
    except OSError as error:
        raise DataUnusable(f"cannot work in {directory}: {error.strerror}") from error
    with locked(directory):
        yield


def _by_whom(descriptor: int) -> str:
    holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
    return f" by process {holder}; give another directory, or stop that process"


@contextmanager
def followed(directory: Path) -> Iterator[None]:
    """Keeps the log in a directory from being rewritten; any number of processes may.

    Raises ``DataInUse`` while it is rewritten, and ``DataUnusable`` with the system's reason.
    """
    why = ": its log is being rewritten; try again when that has ended"
    with _held(directory, READERS, fcntl.LOCK_SH | fcntl.LOCK_NB, lambda _: why):
        yield


@contextmanager
def unfollowed(directory: Path) -> Iterator[None]:
    """Keeps followers away from a directory.  Raises ``DataInUse`` if there is one, and ``DataUnusable``."""
    why = ": followers read it; end them first (dataspace serve --follow)"
    with _held(directory, READERS, fcntl.LOCK_EX | fcntl.LOCK_NB, lambda _: why):
        yield


@contextmanager
def _held(directory: Path, name: str, operation: int, why: Callable[[int], str]) -> Iterator[int]:
    """Holds the lock of a file, whose descriptor it yields; ``why`` returns what ``DataInUse`` says."""
    descriptor = _opened(directory, name)
    try:
        try:
            fcntl.flock(descriptor, operation)
        except BlockingIOError:
            raise DataInUse(f"{directory} is in use{why(descriptor)}") from None
        yield descriptor
    finally:
        os.close(descriptor)


def _opened(directory: Path, name: str) -> int:
    """Returns the descriptor of a file in a directory, both made, for this user alone, if not there."""
    try:
        directory.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
        return open_private(directory / name)
    except OSError as error:
        raise DataUnusable(f"cannot keep data in {directory}: {error.strerror}") from error
