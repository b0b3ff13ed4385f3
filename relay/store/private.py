"""Private files: what holds facts can be read by the user that the daemon runs as, and by no other.

A name that the program chose, such as ``DIR.partial``, can be guessed.  In a directory that others may write
it may be there already, as a link to a place of another user.  ``private_directory``, ``open_private`` and
``make_anew`` open such names, and follow no link.

Always: what these three return is a directory or a plain file at exactly this name; anything else raises
``Planted``, and stays as it was.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700
OTHERS: Final = 0o077


class Planted(OSError):
    """A name that the program chose has something there that the program did not make."""

    def __init__(self, path: Path, found: str, advice: str) -> None:
        super().__init__(errno.EEXIST, f"{path} is {found}; {advice}")


def private_directory(path: Path) -> None:
    """Makes a directory for this user alone; keeps a directory of this user that is there.

    Raises ``Planted`` for a link, anything but a directory, and a directory of another user.  The owner of
    the directory above may own it too, as that user can replace it anyway.
    """
    path.parent.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        path.mkdir(DIRECTORY_MODE)
        return
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise Planted(path, _kind(found.st_mode), "delete it, or give another name")
    if found.st_uid not in (os.geteuid(), path.parent.stat().st_uid):
        raise Planted(path, f"a directory of user {found.st_uid}", "delete it, or give another name")
    close_to_others(path)


def open_private(path: Path) -> int:
    """Returns the descriptor of a plain file, to read and write; made for this user alone if not there.

    Raises ``Planted`` for a link and anything else that is no plain file; never waits for one.
    """
    descriptor = _plain(path, os.O_RDWR | os.O_CREAT)
    found = os.fstat(descriptor)
    if found.st_mode & OTHERS and found.st_uid == os.geteuid():
        with suppress(OSError):  # some file systems have no rights
            os.fchmod(descriptor, stat.S_IMODE(found.st_mode) & ~OTHERS)
    return descriptor


def open_plain(path: Path) -> int:
    """Returns the descriptor of a plain file, to read; raises as ``open_private``, and if none is there."""
    return _plain(path, os.O_RDONLY)


def _plain(path: Path, flags: int) -> int:
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, FILE_MODE)
    except OSError as error:
        with suppress(FileNotFoundError):
            if error.errno in _NO_FILES and not stat.S_ISREG(mode := path.lstat().st_mode):
                raise Planted(path, _kind(mode), "delete it") from None
        raise
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise Planted(path, _kind(mode), "delete it")
    return descriptor


_NO_FILES: Final = (errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.EMLINK)
"""The system's codes for links, directories and sockets that are opened as files."""


def make_anew(path: Path) -> None:
    """Makes an empty file for this user alone in place of what an earlier run left under its name.

    What SQLite kept beside that file goes too, as it would be taken for the new file's.  Deletes a link or a
    pipe, not what it leads to; raises ``Planted`` for a directory.
    """
    for beside in ("", "-wal", "-shm", "-journal"):
        old = path.with_name(f"{path.name}{beside}")
        with suppress(FileNotFoundError):
            if stat.S_ISDIR(old.lstat().st_mode):
                raise Planted(old, "a directory", "delete it")
            old.unlink()
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE))


def _kind(mode: int) -> str:
    """Returns what is there, in words."""
    kinds = {stat.S_IFLNK: "a symbolic link", stat.S_IFDIR: "a directory", stat.S_IFREG: "a file"}
    kinds |= {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def make_private(path: Path) -> None:
    """Makes a file that only its owner can read and write; takes the rights of others from an existing file.

    Does nothing where the file system refuses: the next to open the file gets the error.
    """
    with suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE))
        return
    close_to_others(path)


def close_to_others(path: Path) -> None:
    """Takes the rights of others from a file of this user, if there is one."""
    with suppress(OSError):
        found = path.stat()
        mode = stat.S_IMODE(found.st_mode)
        if mode & OTHERS and found.st_uid == os.geteuid():
            path.chmod(mode & ~OTHERS)
