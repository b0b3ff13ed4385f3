"""Who reads while the log is trimmed is told everything, or that it is gone: at whatever moment that happens.

The moments are those at which the reader looks for a place in the log, or puts a question to the file: the
trim comes before the first of them, before the second, and so on until the reader is done before it comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from sqlite3 import Connection

import pytest

from dataspace.errors import Refused
from dataspace.version import compiled_parts
from index.patterns.patterns import capture
from relay.log.columns import ColumnReplay
from relay.log.log import Log
from relay.log.replay import Replay
from relay.log.retention import Retention
from tests.relay.log.histories import append, epoch, flight
from tests.relay.store.files import storage_of

LAST = 12
AFTER = 4


def _read(log: Log) -> list[int]:
    return [each.number for each in log.read(AFTER, LAST)]


def _replay(log: Log) -> list[int]:
    return [number for number, *_ in Replay(log, capture(), AFTER).epochs(LAST)]


def _within(log: Log) -> list[int]:
    return list(range(AFTER + 1, log.within(AFTER, LAST, 1000) + 1))


def _columns(log: Log) -> list[int]:
    count = sum([len(block) for block in ColumnReplay(log, capture(), AFTER).blocks(LAST)])
    return list(range(AFTER + 1, AFTER + 1 + count))


def _filled(place: Path) -> Log:
    """A segment for each epoch, and a snapshot that has taken in all of them."""
    log = Log.open(place)
    for number in range(1, LAST + 1):
        append(log, epoch(number, flight(number)))
    log.close()
    log = Log.open(place)
    log.recover(snapshot=True)
    return log


class _Trimming:
    """Has the log trimmed at the ``moment``-th of these moments."""

    def __init__(self, log: Log, moment: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked, self.happened = 0, False
        self._really: Callable[[], AbstractContextManager[Connection]] = storage_of(log).reading
        self._beyond = log._chain.beyond
        self._log, self._moment = log, moment
        monkeypatch.setattr(storage_of(log), "reading", self.reading)
        monkeypatch.setattr(log._chain, "beyond", self.beyond)

    def pass_moment(self) -> None:
        self.asked += 1
        if self.asked == self._moment:
            self.happened = True
            assert self._log.trim(Retention(age=0.0), 1 << 60).oldest == LAST

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        self.pass_moment()
        with self._really() as connection:
            yield connection

    def beyond(self, epoch: int) -> int:
        self.pass_moment()
        return self._beyond(epoch)


@pytest.mark.slow
@pytest.mark.skipif("log" in compiled_parts(), reason="methods of machine code cannot be replaced")
@pytest.mark.parametrize("read", [_read, _replay, _within, _columns])
def test_all_of_it_or_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[Log], list[int]]
) -> None:
    refused = whole = 0
    for moment in range(1, 200):
        log = _filled(tmp_path / str(moment))
        trimming = _Trimming(log, moment, monkeypatch)
        try:
            assert read(log) == list(range(AFTER + 1, LAST + 1)), f"trimmed before question {moment}"
            whole += 1
        except Refused as refusal:
            assert refusal.code == "epoch-gone"
            refused += 1
        log.close()
        if not trimming.happened:
            break
    assert not trimming.happened and refused >= 2 and whole >= 1
