"""Backing up a data directory or a store, of running daemons or of stopped ones, from a process of its own.

The order of copying: staged batches, durable topics, then the log of each space.  Each is of one moment by
itself, the logs the latest: a batch that was published between two copies is in the copied log as an epoch,
and perhaps staged as well, where it expires.

Always: a new backup appears under its name when it is whole and verified; an earlier one is whole at any
moment while it is brought up to date.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dataspace.errors import UsageError
from dataspace.faults import reach
from relay.backup.copies import CopyPace, LogSource, Moments, put_mark, replace, settle
from relay.backup.logs import NEW, CopiedLog, copy_log
from relay.backup.manifest import BackedUp, Manifest, is_backup
from relay.journal.reader import JournalReader, verify_topics
from relay.journal.rows import SCHEMA as TOPICS_SCHEMA
from relay.journal.upgrading import upgrade
from relay.log.reader import LogReader, verify
from relay.space_registers import space_registers
from relay.store.errors import LogDamaged
from relay.store.ports import AcknowledgedMark
from relay.store.private import DIRECTORY_MODE, make_anew
from relay.store.sqlite.failures import translated
from relay.store.sqlite.storage import Storage, flush

MAIN: Final = "main"
SPACES: Final = "spaces"
PARTIAL: Final = ".partial"
"""What the name of a directory ends with until it is whole."""


@dataclass(frozen=True, slots=True)
class BackupSource:
    """Data to be backed up.  ``topics`` and ``staged`` copy into a directory and return the copied bytes."""

    place: str
    spaces: Sequence[str]
    log: Callable[[str], AbstractContextManager[Moments]]
    topics: Callable[[Path, CopyPace], int]
    staged: Callable[[str, Path, CopyPace], int]


@dataclass(frozen=True, slots=True)
class BackupDone:
    """What a backup did: the logs by space, the bytes of topics and staged batches, bytes copied in all."""

    logs: dict[str, CopiedLog]
    topics: int
    staged: int
    bytes: int


def spaces_of(data: Path) -> dict[str, Path]:
    """Returns the directories of the logs in a data directory, by the names of their spaces."""
    others = sorted((data / SPACES).iterdir()) if (data / SPACES).is_dir() else []
    found = {each.name: each for each in others if (each / LogReader.FILE).exists()}
    return ({MAIN: data} if (data / LogReader.FILE).exists() else {}) | found


def of_directory(data: Path) -> BackupSource:
    """Returns a data directory as the source of a backup; ``UsageError`` where there is none."""
    found = spaces_of(data)
    if MAIN not in found:
        raise UsageError(f"there is no log in {data}; give the daemon's directory with --data")

    @contextmanager
    def log(space: str) -> Iterator[Moments]:
        with closing(LogSource(found[space])) as opened:
            yield opened.moment

    return BackupSource(
        str(data),
        list(found),
        log,
        lambda target, pace: copy_topics(data, target, pace, "topics"),
        lambda space, target, pace: copy_staged(found[space], target, pace, f"staged {space}"),
    )


def identity_of(source: BackupSource) -> str:
    """Returns the identity of the log of ``main``."""
    with source.log(MAIN) as moment, moment() as now:
        return now.identity


def working_directory(target: Path) -> Path:
    """Returns where a backup is made: in place if it goes on with an earlier one, else beside.

    Raises ``UsageError`` for a directory with something else in it.
    """
    if is_backup(target):
        return target
    if target.is_dir() and not any(target.iterdir()):
        return beside(target)
    if target.exists():
        raise UsageError(
            f"{target} is not empty and no backup; give a directory that is empty, new, or an earlier backup"
        )
    return beside(target)


def beside(target: Path) -> Path:
    """Returns the directory in which another one is made until it is whole.

    Raises ``UsageError`` for a symbolic link, as a directory cannot take its place.
    """
    target = target.absolute()
    if target.is_symlink():
        raise UsageError(f"{target} is a symbolic link; give the directory itself, or a new one")
    return target.with_name(target.name + PARTIAL)


def back_up(source: BackupSource, target: Path, pace: CopyPace) -> BackupDone:
    """Makes or continues a backup in ``target``, which must be its working directory; does not rename it.

    Raises ``NotThisLog``, ``LogDamaged`` or ``LogFailed``; then it can be continued by another call.
    """
    with translated("write", target):
        for each in source.spaces:
            _place(target, each).mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
    staged = sum([source.staged(each, _place(target, each), pace) for each in source.spaces])
    topics = source.topics(target, pace)
    logs: dict[str, CopiedLog] = {}
    noted: list[BackedUp] = []
    for name in source.spaces:
        now = time.time_ns() // 1000  # not later than the moment that is copied
        with source.log(name) as moment:
            logs[name] = log = copy_log(moment, _place(target, name), pace, f"space {name}")
        noted.append(BackedUp(name, log.identity, log.oldest, log.epoch, log.time, log.reserved, now))
    for damage in damages(target):
        raise LogDamaged(f"the backup is not whole, and is not to be used: {damage}")
    _forget_parts(target)
    Manifest(tuple(noted)).write(target)
    return BackupDone(logs, topics, staged, pace.copied)


def publish(path: Path, target: Path) -> None:
    """Gives a directory that is whole its name, on disk when it returns."""
    if path == target:
        return
    with translated("rename", path):
        os.rename(path, target)
    flush(target.absolute().parent)


def damages(directory: Path) -> Iterator[str]:
    """Yields what ``log verify`` finds wrong in any space or topic of a directory."""
    for name, each in spaces_of(directory).items():
        for damage in verify(each, space_registers).damages:
            yield f"space {name}: {damage}"
    topics = verify_topics(directory)
    yield from topics.damages if topics else ()


def _place(target: Path, space: str) -> Path:
    return target if space == MAIN else target / SPACES / space


def _forget_parts(target: Path) -> None:
    """Deletes what an interrupted copy left that was begun anew since."""
    for each in spaces_of(target).values():
        (each / NEW).unlink(missing_ok=True)


# -- Whole SQLite files ----------------------------------------------------------------------------
# A read transaction on the source makes it one moment, so SQLite's backup does not begin anew
# whenever the daemon has committed; it may be paced as one likes. The write-ahead log of the source
# cannot be used again meanwhile.
#
# Always: the copy is whole, or the one before it is still there.


PAGES: Final = 256
"""Pages, of 4 KiB, that are copied between two pauses."""

STAGED: Final = "staged.sqlite"


def copy_staged(source: Path, target: Path, pace: CopyPace, what: str) -> int:
    """Copies what is staged in a data directory, if there is such a file; returns its bytes."""
    copied, _ = _copy(source / STAGED, target / STAGED, pace, what, "SELECT count(*) FROM staged")
    return copied


def copy_topics(source: Path, target: Path, pace: CopyPace, what: str) -> int:
    """Copies the durable topics of a data directory, if there are any, and their mark; returns bytes.

    The copy has the format of today.
    """
    name = JournalReader.FILE
    question = "SELECT ifnull(max(value), 0) FROM meta WHERE name = 'steps'"
    copied, steps = _copy(source / name, target / name, pace, what, question)
    if copied:
        upgrade(target / name)
        Storage(target / name, TOPICS_SCHEMA).close()
        settle(target / name)
        put_mark(target, AcknowledgedMark(steps), JournalReader.MARK)  # never ahead of the file
    return copied


def _copy(source: Path, target: Path, pace: CopyPace, what: str, question: str) -> tuple[int, int]:
    """Returns the bytes of the copy, and a number that the source held at its moment."""
    if not source.exists():
        return 0, 0
    new = target.with_name(f"{target.name}.new")
    with translated("write", new):
        make_anew(new)
    storage = Storage(source)
    try:
        with storage.reading() as connection:
            connection.execute("BEGIN")
            try:
                number = int(connection.execute(question).fetchone()[0])
                _copy_pages(connection, new, pace, what)
            finally:
                connection.execute("ROLLBACK")
    finally:
        storage.close()
    settle(new)
    size = new.stat().st_size
    replace(new, target)
    return size, number


def _copy_pages(source: sqlite3.Connection, new: Path, pace: CopyPace, what: str) -> None:
    page = source.execute("PRAGMA page_size").fetchone()[0]
    left = source.execute("PRAGMA page_count").fetchone()[0]

    def progress(_status: int, remaining: int, _total: int) -> None:
        nonlocal left
        copied, left = left - remaining, remaining
        pace.spent(what, copied * page)
        reach("backup-pages")

    with translated("write", new), closing(sqlite3.connect(new, isolation_level=None)) as copy:
        source.backup(copy, pages=PAGES, progress=progress, sleep=0)
