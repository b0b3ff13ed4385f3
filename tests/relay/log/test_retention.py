"""The oldest epochs go when they may, none that is needed goes, and every one that stays can be rebuilt."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from dataspace.errors import Refused
from dataspace.kernel.changes import Epoch
from index.values.values import Value, order_key
from relay.log.log import Log
from relay.log.reader import LogReader
from relay.log.replay import Replay, state_at
from relay.log.retention import READERS, Retention
from relay.log.segments import encode
from relay.log.snapshots import RecoveredState
from tests.relay.log.histories import append, epoch, flight, lived
from tests.relay.log.test_replay import PATTERNS, Turns, histories
from tests.relay.store.files import storage_of

pytestmark = pytest.mark.usefixtures("home")

SECOND = 1_000_000
EVERYTHING = Retention(age=0.0)
LATE = 10**15


def fill(log: Log, last: int, *, snapshot: int = 0) -> None:
    """Epochs 1 to ``last``, a segment and a second for each, and a snapshot after one of them."""
    state = RecoveredState()
    for number in range(1, last + 1):
        made = epoch(number, flight(number))
        made = Epoch(number, number * SECOND, made.added, (), (), made.claims)
        append(log, made)
        state.apply(made)
        if number == snapshot:
            write_snapshot(log, state)


def write_snapshot(log: Log, state: RecoveredState) -> None:
    state.segment = log.last_segment
    writer = log.snapshot(state)
    while writer.step():
        pass


def test_everything_is_kept_unless_there_is_a_reason(log: Log) -> None:
    fill(log, 9, snapshot=8)
    assert Retention().endless and not EVERYTHING.endless
    assert log.trim(Retention(), LATE).oldest == 1


def test_what_is_too_old_goes(log: Log) -> None:
    fill(log, 9, snapshot=8)
    trimmed = log.trim(Retention(age=4.0), 9 * SECOND)
    assert (trimmed.oldest, log.oldest) == (5, 5), "the fifth is four seconds old, the fourth older"
    assert [each.number for each in log.read(4)] == [5, 6, 7, 8, 9]
    with pytest.raises(Refused, match="epochs after 3 are wanted, the oldest held is 5"):
        log.read(3).__next__()


def test_what_is_too_much_goes_and_its_room_is_used_again(log: Log) -> None:
    for number in range(1, 40):
        append(log, epoch(number, "x" * 40_000))
    state = log.recover()
    write_snapshot(log, RecoveredState(owners={"durable:EWR": {1: "small"}}, epoch=39, time=state.time))
    before, size = log.used(), log.statistics().bytes
    for _ in range(2):  # a portion may leave a part of a segment too much
        log.trim(Retention(size=before // 2), 0)
    assert before // 2 - 50_000 < log.used() <= before // 2
    for number in range(40, 50):
        append(log, epoch(number, "x" * 40_000))
    assert storage_of(log).rows("PRAGMA page_count")[0][0] * 4096 <= size, "the file did not grow"


def test_a_named_reader_keeps_what_it_has_not_acknowledged(log: Log) -> None:
    fill(log, 9, snapshot=9)
    log.acknowledge("spark", 3, 0)
    assert log.trim(EVERYTHING, LATE).oldest == 9, "a reader that was not heard of for a week keeps nothing"
    log.acknowledge("spark", 3, LATE)
    assert log.trim(EVERYTHING, LATE).oldest == 9, "what is gone is gone"


@pytest.mark.parametrize("reason", [EVERYTHING, Retention(size=0), Retention(acknowledged=True)])
def test_the_slowest_reader_counts(log: Log, reason: Retention) -> None:
    fill(log, 9, snapshot=9)
    log.acknowledge("quick", 8, LATE)
    log.acknowledge("slow", 3, LATE)
    assert log.trim(reason, LATE).oldest == 4
    log.acknowledge("slow", 5, LATE)
    log.acknowledge("slow", 2, LATE)
    assert log.trim(reason, LATE).oldest == 6, "an acknowledgement is never taken back"
    assert log.forget("slow") and not log.forget("slow")
    assert log.trim(reason, LATE).oldest == 9


def test_without_a_reader_nothing_counts_as_acknowledged(log: Log) -> None:
    fill(log, 9, snapshot=9)
    assert log.trim(Retention(acknowledged=True), LATE).oldest == 1


def test_what_is_held_for_readers_is_bounded(log: Log) -> None:
    fill(log, 9, snapshot=9)
    log.acknowledge("slow", 3, LATE)
    assert log.trim(Retention(age=0.0, reader_size=0), LATE).oldest == 9


def test_readers_are_remembered_and_bounded(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    for number in range(READERS):
        log.readers._known[f"reader {number}"] = log.readers._known.get("x") or object()  # type: ignore[assignment]
    with pytest.raises(Refused, match="limit 1024"):
        log.acknowledge("one more", 1, 1)
    log.readers._known.clear()
    log.acknowledge("spark", 7, 1)
    log.close()
    log = Log.open(tmp_path)
    assert [(each.name, each.epoch, each.seen) for each in log.readers] == [("spark", 7, 1)]
    log.close()


def test_nothing_goes_that_the_newest_snapshot_has_not_taken_in(log: Log) -> None:
    fill(log, 9, snapshot=6)
    trimmed = log.trim(EVERYTHING, LATE)
    assert (trimmed.oldest, trimmed.more) == (7, False)
    assert trimmed.held_back > 0, "a newer snapshot would free the rest"
    assert sorted(state_at(log, 6), key=order_key) == sorted(map(flight, range(1, 7)), key=order_key)


def test_the_newest_segment_stays_so_that_ordinals_go_on(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    fill(log, 3, snapshot=3)
    assert log.trim(EVERYTHING, LATE).oldest == 3
    log.close()
    log = Log.open(tmp_path)
    assert log.last_segment == 3
    append(log, epoch(4, flight(4)))
    assert log.verify().segments == 2
    log.close()


def test_a_trimmed_log_opens_after_a_crash_and_recovers(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    fill(log, 9, snapshot=6)
    expected = log.recover()
    log.trim(EVERYTHING, LATE)
    again = Log.open(tmp_path)  # not closed: as after a kill
    found = again.recover()
    assert (found.owners, found.epoch, found.time) == (expected.owners, expected.epoch, expected.time)
    assert again.oldest == 7 and again.time_of(6) == 6 * SECOND


def test_a_reader_that_is_overtaken_is_told_so(log: Log) -> None:
    for number in range(1, 40):
        append(log, epoch(number, "x" * 100_000))
    write_snapshot(log, log.recover())
    reading = log.read(0)
    assert next(reading).number == 1
    log.trim(EVERYTHING, LATE)
    with pytest.raises(Refused, match="epoch-gone"):
        list(reading)


def test_large_trims_are_done_in_portions(log: Log) -> None:
    for number in range(1, 41):
        append(log, epoch(number, "x" * 1_000_000))
    write_snapshot(log, log.recover())
    first = log.trim(EVERYTHING, LATE)
    assert first.more and 10 < first.oldest < 20 and first.bytes < 17 << 20
    rounds = 1
    while log.trim(EVERYTHING, LATE).more:
        rounds += 1
    assert rounds == 2 and log.oldest == 40


@given(histories(), st.integers(1, 12), st.integers(1, 12), st.data())
def test_every_epoch_that_stays_can_be_replayed_as_before(
    turns: Turns, at_snapshot: int, bound: int, data: st.DataObject
) -> None:
    """The law: trimming changes no answer, it only refuses those about what is gone."""
    pattern = data.draw(st.sampled_from(PATTERNS))
    with tempfile.TemporaryDirectory() as place:
        log = Log.open(Path(place))
        _, epochs, _ = lived(turns, [])
        state = RecoveredState()
        for number, each in enumerate(epochs, 1):
            log.append([encode(each)])
            state.apply(each)
            if number == at_snapshot:
                write_snapshot(log, state)
        before = _answers(log, pattern)
        log.close()
        log = Log.open(Path(place))  # which remembers nothing
        log.trim(Retention(age=bound / SECOND), epochs[-1].time if epochs else 0)
        after = _answers(log, pattern)
        assert {number: before[number] for number in after} == after
        assert set(before) - set(after) == {number for number in before if number < log.oldest - 1}
        log.close()
        reader = LogReader.open(Path(place))
        assert _answers(reader, pattern) == after
        reader.close()


def _answers(log: LogReader, pattern: Value) -> dict[int, tuple[Sequence[object], Sequence[object]]]:
    """The state at each epoch that is held, and what was told after it."""
    answers: dict[int, tuple[Sequence[object], Sequence[object]]] = {}
    for number in range(max(log.oldest - 1, 0), log.last + 1):
        replay = Replay(log, pattern, number)
        state = sorted(replay.bag(), key=order_key)
        answers[number] = (state, list(replay.epochs(log.last)))
    return answers


def test_the_epoch_of_a_time_that_is_no_longer_retained_is_refused(log: Log) -> None:
    fill(log, 9, snapshot=8)
    assert log.trim(Retention(age=4.0), 9 * SECOND).oldest == 5
    assert [log.epoch_at(at * SECOND) for at in (4, 5, 8, 100)] == [4, 5, 8, 9]
    with pytest.raises(Refused, match="epoch-gone"):
        log.epoch_at(4 * SECOND - 1)
