"""Disk errors: full, damaged or failed, in words, and whether a later attempt may succeed.

SQLite says that there is no room for a write (``SQLITE_FULL``) for one of the system's reasons only; a quota
that is used up, a limit on the size of files and a medium that is read-only are all ``disk I/O error`` to it,
and Python does not hand on what the system said.  So where SQLite does not know, the same is tried beside the
file, and the error of that is reported.

Always: ``full`` is said only where nothing was written and a later attempt may succeed; a flush that failed
is never that, since the kernel may have dropped what it could not write, and say yes the next time.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from relay.store.errors import LogDamaged, LogFailed

NO_ROOM: Final = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file may not grow any more, by the limit on the size of files",
}

PROBE_BYTES: Final = 64 << 10
"""Bytes that are written beside a file to find out why a write failed."""


@contextmanager
def translated(verb: str, path: Path) -> Iterator[None]:
    """Turns what SQLite and the system raise about a file into ``LogFailed`` or ``LogDamaged``."""
    try:
        yield
    except OSError as error:
        raise LogFailed(f"cannot {verb} {path}: {_said(error)}") from error
    except sqlite3.OperationalError as error:
        if _code(error) in _OURS:
            raise LogDamaged(f"cannot {verb} {path}: {error}") from error
        text, full = _reason(error, path)
        raise LogFailed(f"cannot {verb} {path}: {text}", full=full) from error
    except sqlite3.ProgrammingError:
        raise  # this program's own mistake, such as reading what it has closed
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # the latter in what SQLite says of it
        raise LogDamaged(f"cannot {verb} {path}: {error}") from error


def _reason(error: sqlite3.OperationalError, path: Path) -> tuple[str, bool]:
    """Returns why SQLite failed, and True if a later attempt may succeed."""
    code = _code(error)
    if code & 0xFF == sqlite3.SQLITE_FULL:
        return NO_ROOM[errno.ENOSPC], True
    if code & 0xFF == sqlite3.SQLITE_BUSY:
        return "another program has locked it", True
    if code in _FLUSHES:
        return "a flush to the disk failed, and what is there is not known", False
    if code & 0xFF in _VAGUE and code not in _READS:
        error_beside = _tried(path)
        if error_beside is not None:
            return _said(error_beside), error_beside.errno in NO_ROOM
    return f"{error} ({getattr(error, 'sqlite_errorname', 'no code')})", False


def _code(error: sqlite3.OperationalError) -> int:
    return getattr(error, "sqlite_errorcode", 0)


def _tried(path: Path) -> OSError | None:
    """Returns the error of writing beside a file, at the offset at which that ends; None if it succeeds."""
    probe = path.with_name(f"{path.name}-probe")
    try:
        end = max([each.stat().st_size for each in path.parent.glob(f"{path.name}*")], default=0)
        descriptor = os.open(probe, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            for at in range(end, end + PROBE_BYTES, 4096):
                os.pwrite(descriptor, bytes(4096), at)
            os.pwrite(descriptor, b"\0", end + PROBE_BYTES)  # else a last write that is short says nothing
        finally:
            os.close(descriptor)
            probe.unlink()
    except OSError as error:
        return error
    return None


def _said(error: OSError) -> str:
    return NO_ROOM.get(error.errno or 0) or error.strerror or str(error)


_OURS: Final = (0, sqlite3.SQLITE_ERROR)
"""The code for a question or a text that makes no sense: it does not stand for our files."""

_FLUSHES: Final = (
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_DIR_FSYNC,
    sqlite3.SQLITE_IOERR_CLOSE,
)
_READS: Final = (sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ)
_VAGUE: Final = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
