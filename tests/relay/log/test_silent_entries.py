"""A silent entry on its way to the disk says nothing of where the disk is."""

from __future__ import annotations

from pathlib import Path

from dataspace.kernel.changes import Claims, Epoch
from index.patterns.patterns import capture
from relay.log.log import Log
from relay.log.notes import Note
from relay.log.reader import LogReader
from relay.log.replay import LOOKED_AT, Live, Replay
from relay.log.segments import encode_note
from relay.log.writer import GroupCommit
from tests.relay.log.histories import append, epoch, flight


def _silent(number: int) -> Epoch:
    return Epoch(number, number * 10, claims=[Claims("a", [(number, "x")])], silent=True)


def test_the_state_on_disk_is_that_before_the_first_visible_entry() -> None:
    assert Live(5, []).durable == 5
    assert Live(5, [], [_silent(5)]).durable == 5
    assert Live(6, [], [_silent(5), epoch(6, flight(6))]).durable == 5
    assert Live(6, [], [epoch(6, flight(6)), _silent(6)]).durable == 5
    assert [each.number for each in Live(6, [], [_silent(5), epoch(6, 6), _silent(6)]).unwritten] == [6]


def test_the_tail_has_no_silent_entries(log: Log) -> None:
    commits = GroupCommit(log)
    for each in (epoch(1, flight(1)), _silent(1), epoch(2, flight(2))):
        commits.submit(each)
    assert [each.number for each in commits.tail(0)] == [1, 2]


def test_a_bag_is_left_only_where_nothing_can_be_written_any_more(log: Log) -> None:
    append(log, *[epoch(n, flight(n)) for n in range(log.next_epoch, log.next_epoch + 4)])
    list(Replay(log, capture(), log.last - 1).epochs(log.last + 1))
    assert len(log.cursors) == 0, "who reads ahead of the disk knows nothing that stays true"
    list(Replay(log, capture(), log.last - 1).epochs(log.last))
    assert len(log.cursors) == 1


def test_numbers_that_a_crash_has_skipped_are_settled(log: Log, tmp_path: Path) -> None:
    append(log, epoch(1, flight(1)))
    again = Log.open(tmp_path)  # as after a crash: the first never closed
    assert again.last == 1 < again.next_epoch - 1
    assert again.is_settled(again.next_epoch - 1) and not again.is_settled(again.next_epoch)
    reader = LogReader.open(tmp_path)
    assert reader.is_settled(1) and not reader.is_settled(2)
    reader.close()
    again.close()


def test_a_replay_lets_others_work_while_it_passes_many_notes(log: Log) -> None:
    append(log, epoch(1, flight(1)))
    for at in range(10):
        log.append([encode_note(1, 10, Note("hint", (at, each))) for each in range(LOOKED_AT + 1)])
    append(log, epoch(2, flight(2)))
    steps = [each and each[0] for each in Replay(log, capture(), 0).steps(2)]
    assert steps[0] == 1 and steps.count(None) >= 10 and 2 in steps
    assert [each[0] for each in Replay(log, capture(), 0).epochs(2)] == [1, 2]
