"""Whoever opens a file that is damaged, or reads in vain, is left holding nothing of it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from relay.journal.journal import Journal
from relay.journal.reader import JournalReader
from relay.log.log import Log
from relay.log.reader import LogReader
from relay.store.errors import LogDamaged, LogFailed
from relay.store.sqlite.acknowledged import AcknowledgedFile
from relay.store.sqlite.staged import SqliteStaged
from relay.store.sqlite.storage import Schema, Storage
from relay.store.staging import Staging

HELD = Path("/dev/fd")
"""A directory with an entry for each open file of this process; not every system has one."""

pytestmark = pytest.mark.skipif(not HELD.exists(), reason="nothing here tells which files are open")


def held() -> int:
    return len(os.listdir(HELD))


def rubbish(file: Path) -> None:
    """A file that is no database any more."""
    file.write_bytes(b"rubbish" * 4096)


def another_format(file: Path) -> None:
    """A file of a version to come."""
    other = sqlite3.connect(file)
    other.execute("INSERT OR REPLACE INTO meta VALUES ('format', 99)")
    other.commit()
    other.close()


def less_than_acknowledged(file: Path) -> None:
    """A file that is gone."""
    file.unlink()


@pytest.mark.parametrize("harm", [rubbish, another_format, less_than_acknowledged])
@pytest.mark.parametrize(
    ("file", "make", "read"),
    [("log.sqlite", Log.open, LogReader.open), ("topics.sqlite", Journal.open, JournalReader.open)],
    ids=["log", "journal"],
)
def test_what_cannot_be_opened_is_closed(
    file: str,
    make: Callable[[Path], Log | Journal],
    read: Callable[[Path], LogReader | JournalReader],
    harm: Callable[[Path], None],
    tmp_path: Path,
) -> None:
    make(tmp_path).close()
    harm(tmp_path / file)
    if harm is less_than_acknowledged:
        mark = "acknowledged" if file == "log.sqlite" else "topics-acknowledged"
        kept = AcknowledgedFile(tmp_path / mark)
        kept.write(replace(kept.mark, epoch=5, segment=1))
        kept.close()
    for opening in (read, make):
        before = held()
        with pytest.raises((LogDamaged, LogFailed)) as raised:
            opening(tmp_path)
        assert held() == before, f"with {raised.value!r} at hand, which holds on to all that was on its way"


def test_a_staging_area_that_is_none_is_closed(tmp_path: Path) -> None:
    Staging(SqliteStaged.open(tmp_path)).close()
    rubbish(tmp_path / "staged.sqlite")
    before = held()
    with pytest.raises((LogDamaged, LogFailed)) as raised:
        Staging(SqliteStaged.open(tmp_path))
    assert held() == before, f"{raised.value}"


def test_a_reader_that_fails_or_comes_back_late_holds_nothing(tmp_path: Path) -> None:
    before = held()
    storage = Storage(tmp_path / "file.sqlite", Schema("CREATE TABLE IF NOT EXISTS t (n)"))
    with pytest.raises((LogDamaged, LogFailed)) as raised, storage.reading() as connection:
        connection.execute("SELECT * FROM nowhere")
    with storage.reading() as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchall() == [(0,)]
        storage.close()
    assert held() == before, f"with {raised.value!r} at hand"
