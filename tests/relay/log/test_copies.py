"""A copy of a log that is being written is whole if SQLite makes it, and not if its files are copied."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path

import pytest

from index.values.values import Record
from relay.log.log import Log
from relay.log.reader import verify
from relay.store.errors import LogDamaged, LogFailed
from relay.store.sqlite.storage import CHECKPOINT_PAGES
from tests.relay.log.histories import append, epoch, flight, plain
from tests.relay.store.memory import FILES

COPIES = 4


@contextmanager
def written(log: Log) -> Iterator[list[int]]:
    """A thread appends epochs; the list has the newest number that was accepted."""
    newest, stopping = [0], threading.Event()

    def write() -> None:
        for number in count(1):
            if stopping.is_set():
                return
            append(log, epoch(number, flight(number)))
            newest[0] = number

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        yield newest
    finally:
        stopping.set()
        writer.join()


@FILES
@pytest.mark.slow
def test_copies_that_sqlite_makes_are_whole_logs_with_all_that_was_accepted(log: Log, tmp_path: Path) -> None:
    """As LOG.md says: the mark first, then each file by a backup."""
    accepted = []
    with written(log) as newest:
        for each in range(COPIES):
            copy = tmp_path / f"copy{each}"
            copy.mkdir()
            while newest[0] < (each + 1) * 50:
                pass
            shutil.copy(tmp_path / "acknowledged", copy)
            accepted.append(newest[0])
            with (
                closing(sqlite3.connect(tmp_path / "log.sqlite")) as source,
                closing(sqlite3.connect(copy / "log.sqlite")) as target,
            ):
                source.backup(target)
    whole = plain(log.read(0))
    for each, least in enumerate(accepted):
        copy = tmp_path / f"copy{each}"
        found = verify(copy)
        assert not found.damages and found.statistics.last >= least
        with closing(Log.open(copy)) as opened:
            assert plain(opened.read(0)) == whole[: found.statistics.last]


@FILES
@pytest.mark.slow
def test_files_that_are_copied_one_after_the_other_are_not_a_whole_log(log: Log, tmp_path: Path) -> None:
    """What LOG.md warns of: a checkpoint comes in between."""
    copy = tmp_path / "copy"
    copy.mkdir()
    append(log, *[epoch(number, flight(number)) for number in range(1, 10)])
    shutil.copy(tmp_path / "acknowledged", copy)
    shutil.copy(tmp_path / "log.sqlite", copy)
    for number in range(10, 10 + CHECKPOINT_PAGES // 20):  # each writes more than twenty pages
        append(log, epoch(number, Record("photo", number, bytes(100_000))))
    shutil.copy(tmp_path / "log.sqlite-wal", copy)
    with pytest.raises((LogDamaged, LogFailed)):
        for damage in verify(copy).damages:
            raise LogDamaged(damage)
