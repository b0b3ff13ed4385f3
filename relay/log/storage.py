"""Storage: a SQLite file that either has a transaction whole and on disk, or says why not.

What the log and the staging area share: how a file is opened so that ``COMMIT`` means *on disk*, how a
transaction ends, how readers get connections of their own, and how SQLite's errors become ours.  It is
apart from both because neither the format of the log nor that of staged batches is SQLite's business.

Always: after a failed transaction nothing of it is in the file; one thread at a time writes; readers never
wait for the writer, nor it for them.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from dataspace.errors import DataspaceError

CHECKPOINT_PAGES: Final = 4096
"""Pages in the write-ahead log before it is copied into the file: 16 MiB."""

KEPT_WAL_BYTES: Final = 64 << 20
"""What the write-ahead log may keep of the disk after it was copied."""


class LogFailed(DataspaceError):
    """The disk refused; nothing of what was being written is there.

    ``full`` says that there was no room, in which case a later attempt may succeed.
    """

    def __init__(self, text: str, *, full: bool = False) -> None:
        super().__init__(text)
        self.full = full


class LogDamaged(DataspaceError):
    """The file does not hold what was written to it; the message says what is missing or altered."""


class Storage:
    """One SQLite file with one writing connection and as many reading ones as there are readers at once."""

    def __init__(self, path: Path, schema: str | None = None) -> None:
        """Opens the file, makes the tables of ``schema`` if they are missing; without one, only to read.

        Raises ``LogFailed`` if the disk refuses and ``LogDamaged`` if the file is no database.
        """
        self.path = path
        self._lock = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        self._mode = "ro" if schema is None else "rwc"
        self._writer: Final = self._connect()
        if schema is None:
            return
        with self._translated("open"):
            for pragma in _PRAGMAS:
                self._writer.execute(f"PRAGMA {pragma}")
            self._writer.executescript(schema)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction that is on disk when the block ends, or undone if it raises.

        For one thread at a time; others wait.  Raises ``LogFailed`` or ``LogDamaged``.
        """
        with self._lock, self._translated("write"):
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer
                self._writer.execute("COMMIT")
            except BaseException:
                self._undo()
                raise

    def rows(self, question: str, *values: object) -> list[Any]:
        """All rows of a short answer, as they were at the last commit."""
        with self.reading() as connection:
            return connection.execute(question, values).fetchall()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection for a reader, which must be done with it soon: it keeps the log from shrinking."""
        with self._translated("read"):
            connection = self._idle.pop() if self._idle else self._connect()
            yield connection
        self._idle.append(connection)

    def size(self) -> int:
        """Bytes on disk, the write-ahead log included."""
        files = [self.path, self.path.with_name(self.path.name + "-wal")]
        return sum(file.stat().st_size for file in files if file.exists())

    def used(self) -> int:
        """Bytes of the file that are in use: what was deleted is used again before the file grows."""
        pages, free, size = (
            self.rows(f"PRAGMA {each}")[0][0] for each in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    def close(self) -> None:
        """Closes all connections; the write-ahead log is copied into the file and goes."""
        with self._lock, self._translated("close"):
            while self._idle:
                self._idle.pop().close()
            self._writer.close()

    def _connect(self) -> sqlite3.Connection:
        with self._translated("open"):
            return sqlite3.connect(
                f"{self.path.absolute().as_uri()}?mode={self._mode}",
                uri=True,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=32,
            )

    def _undo(self) -> None:
        if self._writer.in_transaction:
            try:
                self._writer.execute("ROLLBACK")
            except sqlite3.Error:
                pass  # the error that brought us here says more than this one

    @contextmanager
    def _translated(self, verb: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            full = _code(error) == sqlite3.SQLITE_FULL
            text = "the disk is full" if full else str(error)
            raise LogFailed(f"cannot {verb} {self.path}: {text}", full=full) from error
        except sqlite3.ProgrammingError:
            raise  # this program's own mistake, such as reading what it has closed
        except sqlite3.DatabaseError as error:
            raise LogDamaged(f"cannot {verb} {self.path}: {error}") from error


_PRAGMAS: Final[Sequence[str]] = (
    "journal_mode=WAL",
    "synchronous=FULL",
    "fullfsync=1",
    f"wal_autocheckpoint={CHECKPOINT_PAGES}",
    f"journal_size_limit={KEPT_WAL_BYTES}",
)


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
