"""Private files: what holds facts can be read by the user that the daemon runs as, and by no other."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700
OTHERS: Final = 0o077


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
