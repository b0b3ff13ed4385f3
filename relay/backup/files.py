"""Copying a whole SQLite file while another process writes it: durable topics, and staged batches.

A read transaction on the source makes it one moment, so SQLite's backup does not begin anew whenever the
daemon has committed; it may be paced as one likes.  The write-ahead log of the source cannot be used again
meanwhile.

Always: the copy is whole, or the one before it is still there.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from dataspace.faults import reach
from relay.backup.pace import CopyPace
from relay.backup.target import put_mark, replace, settle
from relay.journal.reader import JournalReader
from relay.journal.upgrade import opened
from relay.store.acknowledged import AcknowledgedMark
from relay.store.errors import translated
from relay.store.private import make_private
from relay.store.storage import Storage

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
        opened(target / name).close()
        settle(target / name)
        put_mark(target, AcknowledgedMark(steps), JournalReader.MARK)  # never ahead of the file
    return copied


def _copy(source: Path, target: Path, pace: CopyPace, what: str, question: str) -> tuple[int, int]:
    """Returns the bytes of the copy, and a number that the source held at its moment."""
    if not source.exists():
        return 0, 0
    new = target.with_name(f"{target.name}.new")
    new.unlink(missing_ok=True)
    make_private(new)
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
