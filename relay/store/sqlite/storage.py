"""Storage: a SQLite file that either has a transaction whole and on disk, or says why not.

What the log, the journal and the staging area share: how a file is opened so that ``COMMIT`` means *on
disk*, how a transaction ends, and how readers get connections of their own.  It is apart from them because
their formats are not SQLite's business.

Always: after a failed transaction nothing of it is in the file; after a failed flush nothing is written; one
thread at a time writes; readers never wait for the writer, nor it for them.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from relay.store.errors import LogDamaged, LogFailed, closed_on_failure
from relay.store.header import check_format
from relay.store.private import close_to_others, make_private
from relay.store.sqlite.failures import translated

logger = logging.getLogger("dataspace")

CHECKPOINT_PAGES: Final = 4096
"""Pages in the write-ahead log before it is copied into the file: 16 MiB."""

KEPT_WAL_BYTES: Final = 64 << 20
"""What the write-ahead log may keep of the disk after it was copied."""


class Schema(NamedTuple):
    """The tables of a file, and their version."""

    tables: str
    format: int | None = None
    """As the table ``meta`` says it; None for a file that has none."""
    earlier: tuple[int, ...] = ()
    """Versions that may be opened as well."""


class Storage:
    """One SQLite file with one writing connection and as many reading ones as there are readers at once."""

    def __init__(self, path: Path, schema: Schema | None = None) -> None:
        """Opens the file, makes the tables of ``schema`` if they are missing; without one, only to read.

        Raises ``LogFailed`` if the disk refuses and ``LogDamaged`` if the file is no database, or if it is of
        another format: nothing of it is changed then.
        """
        self.path = path
        self._lock = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        self._failure = ""
        self._how = "mode=rwc" if schema is not None else _how_to_read(path)
        if schema is not None:
            self._log_torn_write()
            make_private(path)  # before SQLite makes it; its other files get the rights of this one
            for beside in ("-wal", "-shm"):
                close_to_others(path.with_name(f"{path.name}{beside}"))
        self._closed = False
        self._writer: Final = self._connect()
        if schema is not None:
            with closed_on_failure(self), translated("open", self.path):
                self._prepare(schema)

    def _prepare(self, schema: Schema) -> None:
        ask = self._writer.execute
        if schema.format is not None and ask("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchall():
            names = dict(ask("SELECT name, value FROM meta").fetchall())
            check_format(str(self.path), names, schema.format, schema.earlier)
        for pragma in _PRAGMAS:
            self._writer.execute(f"PRAGMA {pragma}")
        # In one transaction: who follows from now on meets all of them or none.
        self._writer.executescript(f"BEGIN; {schema.tables}; COMMIT")

    def _log_torn_write(self) -> None:
        with translated("open", self.path):
            size = torn(self.path.with_name(f"{self.path.name}-wal"))
        if size:
            logger.warning("%s: %d bytes of a write that was never accepted are cut off", self.path, size)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Begins a transaction that is on disk when the block ends, or undone if it raises.

        For one thread at a time; others wait.  Raises ``LogFailed`` or ``LogDamaged``; after a failure
        without a second try, such as a failed flush, nothing is written any more.
        """
        with self._lock:
            if self._failure:
                raise LogFailed(self._failure)
            try:
                with translated("write", self.path):
                    yield from self._transaction()
            except LogFailed as failure:
                self._failure = "" if failure.full else str(failure)
                raise

    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            yield self._writer
            self._writer.execute("COMMIT")
        except BaseException:
            self._undo()
            raise

    def version(self) -> int:
        """Returns a number that differs once another process has written; O(1)."""
        with self._lock, translated("read", self.path):
            found: int = self._writer.execute("PRAGMA data_version").fetchone()[0]
        return found

    def vacuum(self) -> None:
        """Writes the file anew without holes; no other process may have it open.  O(file)."""
        with self._lock, translated("write", self.path):
            self._writer.execute("VACUUM")

    def rows(self, question: str, *values: object) -> list[Any]:
        """Returns all rows of a short answer, as they were at the last commit."""
        with self.reading() as connection:
            return connection.execute(question, values).fetchall()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Lends a connection to a reader, briefly: meanwhile the write-ahead log cannot shrink."""
        with translated("read", self.path):
            connection = self._idle.pop() if self._idle else self._connect()
            try:
                yield connection
            except BaseException:
                connection.close()
                raise
        if self._closed:  # while this one was away
            connection.close()
        else:
            self._idle.append(connection)

    def size(self) -> int:
        """Returns the bytes on disk, the write-ahead log included."""
        files = [self.path, self.path.with_name(self.path.name + "-wal")]
        return sum(map(file_bytes, files))

    def used(self) -> int:
        """Returns the bytes of the file in use: deleted pages are used again before the file grows."""
        pages, free, size = (
            self.rows(f"PRAGMA {each}")[0][0] for each in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    def close(self) -> None:
        """Closes all connections; the write-ahead log is copied into the file and goes."""
        self._closed = True
        with self._lock, translated("close", self.path):
            while self._idle:
                self._idle.pop().close()
            self._writer.close()

    def _connect(self) -> sqlite3.Connection:
        with translated("open", self.path):
            return sqlite3.connect(
                f"{self.path.absolute().as_uri()}?{self._how}",
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
                pass  # the first error is the one to report


def has_tables(path: Path) -> bool:
    """True if a file is there and has its tables, which are made later than the file; changes nothing."""
    if not path.exists():
        return False
    try:
        with closing(Storage(path)) as storage:
            return bool(storage.rows("SELECT 1 FROM sqlite_master LIMIT 1"))
    except (LogFailed, LogDamaged):
        return True  # whoever opens it says what is wrong with it


def flush(path: Path) -> None:
    """Flushes a file to the disk; for a directory, the names of the files in it.  Raises ``LogFailed``."""
    with translated("flush", path):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _how_to_read(path: Path) -> str:
    """Returns the mode of a URI to read a file with; a read-only medium needs no shared memory file."""
    log = path.with_name(f"{path.name}-wal")
    writable = os.access(path.parent, os.W_OK)
    return "mode=ro" if writable or log.exists() else "mode=ro&immutable=1"


_PRAGMAS: Final[Sequence[str]] = (
    "journal_mode=WAL",
    "synchronous=FULL",
    "fullfsync=1",
    f"wal_autocheckpoint={CHECKPOINT_PAGES}",
    f"journal_size_limit={KEPT_WAL_BYTES}",
)


def file_bytes(path: Path) -> int:
    """Returns the bytes of a file; 0 for a directory or a file that was just deleted."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


# -- torn files ------------------------------------------------------------------------------------
#
# SQLite skips a torn frame of its write-ahead log silently when it opens the file, since nothing in it was
# acknowledged. It is looked for beforehand, so that it can be logged. The form is described in
# <https://sqlite.org/fileformat2.html#walformat>. Nothing is changed; an acknowledged write is never torn
# (the acknowledged mark shows if one is missing).


_FILE: Final = struct.Struct(">8I")
_FRAME: Final = struct.Struct(">6I")
_MAGIC: Final = 0x377F0682
_WORD: Final = 0xFFFFFFFF


class _Frame(NamedTuple):
    """The head of a frame: ``pages`` is not 0 where a transaction ends with it."""

    page: int
    pages: int
    salt: int
    more_salt: int
    first: int
    second: int


def torn(log: Path) -> int:
    """Returns the bytes behind the last whole transaction of a write-ahead log.  O(file).

    Frames of an earlier round through the file do not count.
    """
    try:
        with log.open("rb") as file:
            return _torn(file, log.stat().st_size)
    except FileNotFoundError:
        return 0


def _torn(file: BinaryIO, size: int) -> int:
    head = file.read(_FILE.size)
    if len(head) < _FILE.size:
        return 0
    magic, _, page, _, *salts, first, second = _FILE.unpack(head)
    if magic & ~1 != _MAGIC:
        return 0
    ends, seals = [_FILE.size], [(first, second)]  # of transactions, the beginning of the file included
    at = _FILE.size
    while at + _FRAME.size <= size:
        file.seek(at)
        frame = _Frame(*_FRAME.unpack(file.read(_FRAME.size)))
        if [frame.salt, frame.more_salt] != salts:
            break  # of an earlier round
        at += _FRAME.size + page
        if frame.pages:
            ends.append(at)
            seals.append((frame.first, frame.second))
    if len(ends) > 1 and not _is_sealed(
        file, range(ends[-2], ends[-1], _FRAME.size + page), page, magic, seals[-2]
    ):
        ends.pop()
    return max(0, min(at, size) - ends[-1])


def _is_sealed(file: BinaryIO, frames: range, page: int, magic: int, seal: tuple[int, int]) -> bool:
    """True if these frames have their stated checksums, after a frame that ends with ``seal``."""
    order = ">" if magic & 1 else "<"
    for at in frames:
        file.seek(at)
        head, body = file.read(_FRAME.size), file.read(page)
        if len(body) < page:
            return False
        seal = _sum(head[:8] + body, order, *seal)
        if seal != _FRAME.unpack(head)[4:]:
            return False
    return True


def _sum(body: bytes, order: str, first: int, second: int) -> tuple[int, int]:
    words = struct.unpack(f"{order}{len(body) // 4}I", body)
    for one, other in zip(words[::2], words[1::2], strict=True):
        first = (first + one + second) & _WORD
        second = (second + other + first) & _WORD
    return first, second
