"""Errors of the store: it refused a write, or does not hold what was written to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, Protocol

from dataspace.errors import DataspaceError

DISK_FAILED: Final = "disk-failed"


class LogFailed(DataspaceError):
    """The disk refused; nothing of the write is there.

    ``full`` says that a later attempt may succeed: there was no room, or another program held the file.
    """

    def __init__(self, text: str, *, full: bool = False) -> None:
        super().__init__(text)
        self.full = full

    @property
    def code(self) -> str:
        """Returns the code of the error for clients."""
        return "disk-full" if self.full else DISK_FAILED


class LogAway(LogFailed):
    """The database of the store is not reached; a later attempt may succeed.

    ``is_refusal`` if the database, or TLS, has refused the connection: a start does not wait for that.
    """

    def __init__(self, text: str, *, is_refusal: bool = False) -> None:
        super().__init__(text, full=True)
        self.is_refusal = is_refusal

    @property
    def code(self) -> str:
        return "store-away"


class LogFenced(LogFailed):
    """Another daemon leads the space by now; nothing of the write is there, nor will be."""

    @property
    def code(self) -> str:
        return "moved"


class LogDamaged(DataspaceError):
    """The file does not hold what was written to it; the message says what is missing or altered."""

    code: Final = "log-damaged"


class Closes(Protocol):
    """An object that holds a file open."""

    def close(self) -> None:
        """Closes the file."""


@contextmanager
def closed_on_failure(opened: Closes) -> Iterator[None]:
    """Closes what was just opened if the block that goes on with it fails."""
    try:
        yield
    except BaseException:
        with suppress(LogFailed, LogDamaged):  # the first failure is the one to report
            opened.close()
        raise
