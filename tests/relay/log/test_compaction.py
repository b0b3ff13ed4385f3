"""A compacted log answers as the one before, in less room, and a crash in between harms neither."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given

from dataspace.kernel.changes import Epoch
from index.values.values import order_key
from relay.log import compaction as compacting
from relay.log.compaction import compact
from relay.log.log import Log
from relay.log.reader import LogReader
from relay.log.replay import state_at
from relay.log.retention import Retention
from relay.store.errors import LogDamaged, LogFailed
from relay.store.sqlite.acknowledged import AcknowledgedFile
from tests.relay.log.histories import append, epoch, facts_of, flight, plain
from tests.relay.log.lives import CLAIMED_AGAIN, TRIMMED, History, claims_of, lives, shared_claims
from tests.relay.log.test_replay import Turns
from tests.relay.log.test_retention import LATE, fill, write_snapshot
from tests.relay.store.files import asked


def filled(directory: Path) -> Log:
    log = Log.open(directory)
    fill(log, 200, snapshot=120)
    append(log, *[epoch(number, flight(number), client="c") for number in range(201, 204)])
    log.acknowledge("spark", 77, 5)
    return log


def told(log: LogReader) -> object:
    states = [sorted(state_at(log, at), key=order_key) for at in (log.oldest, 120, 150, log.last)]
    return log.identity, log.oldest, log.reserved, plain(log.read(log.oldest - 1)), states


def test_everything_is_as_before_in_fewer_segments(tmp_path: Path) -> None:
    log = filled(tmp_path)
    recovered = log.recover()
    log.close()
    reader = LogReader.open(tmp_path)
    before = told(reader)
    reader.close()
    done = compact(tmp_path)
    assert done.segments_before == 201 and done.segments == 2, "before the snapshot and after it"
    reader = LogReader.open(tmp_path)
    assert told(reader) == before and not [*reader.damages()]
    reader.close()
    log = Log.open(tmp_path)
    assert log.recover().owners == recovered.owners and log.clients == recovered.clients
    assert [(each.name, each.epoch) for each in log.readers] == [("spark", 77)]
    append(log, epoch(log.next_epoch, flight(999)))
    assert log.verify().segments == 3
    log.close()


@given(shared_claims, lives)
@example(CLAIMED_AGAIN, TRIMMED)
def test_what_is_recovered_is_as_before_whatever_came_before(turns: Turns, life: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        data = Path(directory)
        history = History(Log.open(data), turns)
        for step, count in life:
            step(history, count)
        expected = history.state(history.log.last_segment)
        history.log.close()
        for rewrite in (False, True):
            if rewrite:
                compact(data)
            with closing(Log.open(data)) as log:
                assert claims_of(log.recover()) == expected
                assert not [*log.damages()]


def test_the_room_of_what_was_trimmed_is_given_back(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    for number in range(1, 59):
        append(log, Epoch(number, number * 10, (), ("x" * 100_000,)))
    append(log, epoch(59, "small"))
    write_snapshot(log, log.recover())
    log.trim(Retention(age=0.0), LATE)
    log.close()
    before = (tmp_path / "log.sqlite").stat().st_size
    compact(tmp_path)
    assert (tmp_path / "log.sqlite").stat().st_size < before / 10
    log = Log.open(tmp_path)
    assert log.oldest == 59 and facts_of(log.recover()) == ["small"]
    log.close()


def test_compacting_twice_and_an_empty_log(tmp_path: Path) -> None:
    Log.open(tmp_path / "empty").close()
    assert compact(tmp_path / "empty").segments == 0
    filled(tmp_path / "some").close()
    compact(tmp_path / "some")
    assert compact(tmp_path / "some").segments == 2
    log = Log.open(tmp_path / "some")
    assert log.verify().last == 203
    log.close()


def test_a_log_that_was_not_closed_can_be_compacted(tmp_path: Path) -> None:
    log = filled(tmp_path / "killed")
    reserved = log.reserved
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "killed", copy)  # what a kill leaves
    with pytest.raises(LogFailed, match="is open elsewhere"):
        compact(tmp_path / "killed")
    log.close()
    compact(copy)
    again = Log.open(copy)
    assert again.next_epoch == reserved + 1, "numbers that may have been given out are not used again"
    again.close()


@pytest.mark.parametrize("instant", ["replace", "flush", "AcknowledgedFile"])
def test_a_crash_in_between_leaves_a_whole_log(
    tmp_path: Path, instant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path).close()

    def crash(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if instant == "AcknowledgedFile":
            patch.setattr(AcknowledgedFile, "write", crash)
        else:
            patch.setattr(os if instant == "replace" else compacting, instant, crash)
        with pytest.raises(KeyboardInterrupt):
            compact(tmp_path)
    log = Log.open(tmp_path)
    assert log.verify().last == 203
    log.close()
    assert compact(tmp_path).segments == 2, "what was left of the first attempt is in nobody's way"


def test_a_damaged_log_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    log = filled(tmp_path)
    asked(log, "UPDATE segments SET body = x'00' WHERE segment = 5")
    log.close()
    before = (tmp_path / "log.sqlite").read_bytes()
    with pytest.raises(LogDamaged, match="segment 5 with epochs 5 to 5 was altered"):
        compact(tmp_path)
    assert (tmp_path / "log.sqlite").read_bytes() == before
    assert not [*tmp_path.glob("*.new*")]
