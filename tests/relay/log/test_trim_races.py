"""Who reads while the log is trimmed is told everything, or that it is gone: at whatever moment that happens.

The moments are those at which the reader looks for a place in the log, or puts a question to the tables: the
trim comes before the first of them, before the second, and so on until the reader is done before it comes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

import pytest

from dataspace.errors import Refused
from dataspace.version import compiled_parts
from index.patterns.patterns import capture
from relay.log.columns import ColumnReplay
from relay.log.log import Log
from relay.log.replay import Replay
from relay.log.retention import Retention
from relay.store.sqlite.tables import SqliteLog
from tests.relay.log.histories import append, epoch, flight

P = ParamSpec("P")
T = TypeVar("T")

LAST = 12
AFTER = 4

QUESTIONS: Final = ("moment", "ends", "starts", "fetch", "first_by_last", "checksum_of", "head_of")


def _read(log: Log) -> list[int]:
    return [each.number for each in log.read(AFTER, LAST)]


def _replay(log: Log) -> list[int]:
    return [number for number, *_ in Replay(log, capture(), AFTER).epochs(LAST)]


def _within(log: Log) -> list[int]:
    return list(range(AFTER + 1, log.within(AFTER, LAST, 1000)[0] + 1))


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
        self._log, self._moment = log, moment
        tables = log._tables
        if isinstance(tables, SqliteLog):
            monkeypatch.setattr(tables.storage, "reading", self.before(tables.storage.reading))
        else:
            for name in QUESTIONS:
                monkeypatch.setattr(tables, name, self.before(getattr(tables, name)))
        monkeypatch.setattr(log._chain, "beyond", self.before(log._chain.beyond))

    def before(self, question: Callable[P, T]) -> Callable[P, T]:
        """Returns a question before which there is a moment."""

        def asked(*args: P.args, **named: P.kwargs) -> T:
            self.pass_moment()
            return question(*args, **named)

        return asked

    def pass_moment(self) -> None:
        self.asked += 1
        if self.asked == self._moment:
            self.happened = True
            assert self._log.trim(Retention(age=0.0), 1 << 60).oldest == LAST


@pytest.mark.slow
@pytest.mark.skipif("log" in compiled_parts(), reason="methods of machine code cannot be replaced")
@pytest.mark.usefixtures("home")
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
