"""What was appended comes back, whatever happened to the process, or its loss is said."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings, strategies as st

from dataspace.errors import Refused
from dataspace.kernel.changes import Claims, Epoch
from index.values.values import Record
from relay.log.log import BLOCK, Log
from relay.log.reader import NOT_APPLIED
from relay.log.retention import Retention
from relay.log.segments import encode
from relay.store.errors import LogDamaged, LogFailed
from tests.relay.log.histories import append, epoch, flight, plain, snapshot_facts
from tests.relay.store.files import asked, storage_of
from tests.relay.store.memory import FILES, crashed

pytestmark = pytest.mark.usefixtures("home")


def flip(path: Path, at: int) -> None:
    """Flips one bit."""
    content = bytearray(path.read_bytes())
    content[at] ^= 4
    path.write_bytes(content)


def place(path: Path, text: bytes) -> int:
    """Where a value is in the file of a closed log: SQLite fills its pages from the end."""
    return path.read_bytes().rindex(text)


# -- reading back -------------------------------------------------------------------------------------


def test_a_new_log_is_empty(log: Log) -> None:
    assert (log.oldest, log.last, log.next_epoch) == (1, 0, 1)
    assert list(log.read(0)) == []
    state = log.recover()
    assert (state.owners, state.clients, state.epoch) == ({}, {}, 0)


def test_epochs_come_back_in_order_and_from_anywhere(log: Log) -> None:
    written = [epoch(n, flight(n), flight(-n)) for n in range(1, 31)]
    for at in range(0, 30, 4):
        append(log, *written[at : at + 4])
    assert plain(log.read(0)) == plain(written)
    assert [e.number for e in log.read(7, 22)] == list(range(8, 23))
    assert list(log.read(30)) == []
    assert (log.last, log.last_segment) == (30, 8)


def test_reading_goes_on_while_more_is_written(log: Log) -> None:
    append(log, epoch(1, flight(1)))
    reader = log.read(0, 10)
    assert next(reader).number == 1
    append(log, epoch(2, flight(2)))
    assert [each.number for each in reader] == [2]


def test_silent_entries_are_kept_under_the_number_before(log: Log) -> None:
    fact = flight(1)
    silent = Epoch(1, 10, claims=[Claims("session:1", [(7, fact)])], client="c", sequence=2, silent=True)
    append(log, epoch(1, fact, client="c"), silent)
    assert plain(log.read(0))[1:] == plain([silent])
    assert log.recover().owners["session:1"] == {7: fact}
    assert log.find_turns("c", [2]) == {2: 1}


def test_a_turn_is_found_by_its_client_and_sequence(log: Log) -> None:
    for number in range(1, 20):
        append(log, epoch(number, flight(number), client=f"client-{number % 2}"))
    assert log.find_turns("client-1", [17]) == {17: 17}
    assert log.find_turns("client-0", [17]) == {17: NOT_APPLIED}, (
        "there is no such turn, and it would be here"
    )
    assert log.find_turns("nobody", [1]) == {1: NOT_APPLIED}


def test_a_name_that_was_forgotten_has_its_new_turns_only(log: Log) -> None:
    for number, sequence in enumerate((1, 2, 3, 2, 4), 1):
        append(log, Epoch(number, 10 * number, added=[flight(number)], client="~c", sequence=sequence))
    assert log.find_turns("~c", [1, 2, 3, 4]) == {1: NOT_APPLIED, 2: 4, 3: NOT_APPLIED, 4: 5}


def test_turns_before_what_is_retained_are_not_known(log: Log) -> None:
    for number in range(1, 20):
        turn = Epoch(number, 10 * number, added=[flight(number)], client="c", sequence=2 * number)
        append(log, turn)
        if number == 10:
            log.recover(snapshot=True)
    log.trim(Retention(age=0.0), 1 << 60)
    oldest = log.oldest
    assert 1 < oldest <= 11
    wanted = range(1, 39)
    known = {at: at // 2 if at % 2 == 0 else NOT_APPLIED for at in wanted if at >= 2 * oldest}
    assert log.find_turns("c", wanted) == known
    assert log.find_turns("c", wanted, upto=19) == known
    assert log.find_turns("c", range(1, 31), upto=15) == {at: known[at] for at in known if at <= 30}


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 3), st.booleans()), min_size=1, max_size=30),
    st.integers(1, 4),
    st.data(),
)
def test_turns_are_found_as_they_were_written(
    turns: list[tuple[str, int, bool]], size: int, data: st.DataObject
) -> None:
    newest, written = dict.fromkeys("ab", 0), list[Epoch]()
    number, told = 0, dict[tuple[str, int], int]()
    for client, step, silent in turns:
        newest[client] += step
        number += not silent
        told[client, newest[client]] = number
        written.append(
            Epoch(number, 10, client=client, sequence=newest[client], silent=silent)
            if silent
            else Epoch(number, 10, added=[flight(number)], client=client, sequence=newest[client])
        )
    with TemporaryDirectory() as directory, closing(Log.open(Path(directory))) as log:
        for at in range(0, len(written), size):
            append(log, *written[at : at + size])
        for client, highest in newest.items():
            wanted = data.draw(st.sets(st.integers(1, highest))) if highest else set()
            expected = {at: told.get((client, at), NOT_APPLIED) for at in wanted}
            assert log.find_turns(client, wanted) == expected
            assert log.find_turns(client, wanted, upto=number) == expected


def test_the_time_of_an_epoch_is_that_of_the_newest_not_after_it(log: Log) -> None:
    append(log, epoch(2, 1), epoch(3, 2))
    append(log, epoch(7, 3))
    assert [log.time_of(at) for at in (1, 2, 3, 5, 7, 100)] == [0, 20, 30, 30, 70, 70]


def test_what_is_not_retained_is_refused_with_the_oldest(log: Log) -> None:
    log.held_from = 5
    with pytest.raises(Refused, match="epoch-gone: epochs after 3 are wanted, the oldest held is 5"):
        list(log.read(3))
    assert list(log.read(4)) == []


# -- coming back --------------------------------------------------------------------------------------


def test_state_and_identity_survive_a_clean_end(tmp_path: Path) -> None:
    first = Log.open(tmp_path)
    append(first, epoch(1, flight(1), client="a"), epoch(2, flight(2), client="b"))
    append(first, Epoch(3, 30, (), (), [flight(1)], [Claims("durable:EWR", (), [1000])], "a", 9))
    first.close()
    again = Log.open(tmp_path)
    state = again.recover()
    assert state.owners == {"durable:EWR": {2000: flight(2)}}
    assert state.clients == {"a": (9, 3), "b": (2, 2)}
    assert (state.epoch, state.time) == (3, 30)
    assert (again.identity, again.next_epoch, again.clean) == (first.identity, 4, True)
    again.close()


def test_after_a_crash_all_that_was_appended_is_there_and_no_number_comes_twice(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log")
    append(log, epoch(1, flight(1)))
    append(log, epoch(2, flight(2)))
    log.issue(9)  # observed, never written
    again = Log.open(crashed(tmp_path / "log", tmp_path / "copy"))
    assert [each.number for each in again.read(0)] == [1, 2]
    assert again.next_epoch == BLOCK + 1
    assert not again.clean
    assert [again.lost(at) for at in (2, 3, 9, BLOCK - 1, BLOCK + 1)] == [False, True, True, True, False]
    log.close()
    again.close()


def test_the_number_with_which_a_start_begins_is_no_lost_epoch(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log")
    append(log, epoch(1, flight(1)))
    log.issue(2)
    second = Log.open(crashed(tmp_path / "log", tmp_path / "second"))
    began = second.next_epoch - 1
    assert not second.lost(began), "its observers were shown the state of epoch 1 under this number"
    third = Log.open(crashed(tmp_path / "second", tmp_path / "third"))
    assert third.next_epoch > began + 1
    assert not third.lost(began), "nothing had happened since then"
    assert [third.lost(at) for at in (1, 2, began - 1, began + 1)] == [False, True, True, True]
    for each in (log, second, third):
        each.close()


def test_a_start_without_an_epoch_does_not_hide_what_was_lost_before_it(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log")
    append(log, epoch(1, flight(1)))
    log.issue(2)  # observed, never written
    second = Log.open(crashed(tmp_path / "log", tmp_path / "second"))
    began = second.next_epoch - 1
    unseen = Epoch(began, began * 10, (), (), (), (Claims("durable:EWR", [(7, "unseen")]),), None, 0, True)
    append(second, unseen)
    second.close()
    third = Log.open(tmp_path / "second")
    assert third.next_epoch == began + 1
    assert [third.lost(at) for at in (1, 2, began - 1, began)] == [False, True, True, False]
    for each in (log, third):
        each.close()


def test_no_epoch_has_the_number_with_which_the_next_start_begins(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log")
    for number in range(1, 2 * BLOCK):
        log.issue(number)
        assert number < log.reserved
    again = Log.open(crashed(tmp_path / "log", tmp_path / "copy"))
    assert again.lost(2 * BLOCK - 1) and not again.lost(again.next_epoch - 1)
    again.issue(again.next_epoch)
    again.close()  # without a write
    last = Log.open(tmp_path / "copy")
    assert last.lost(again.issued) and not last.lost(last.next_epoch - 1)
    last.close()
    log.close()


def test_a_reservation_is_renewed_before_it_is_exhausted(log: Log) -> None:
    append(log, epoch(BLOCK // 2, 1))
    assert log.reserved == BLOCK
    append(log, epoch(BLOCK // 2 + 1, 2))
    assert log.reserved == BLOCK + BLOCK // 2 + 1
    log.issue(10 * BLOCK)
    assert log.reserved == 11 * BLOCK, "a number beyond is on disk before anybody hears of it"


def test_an_unclean_end_without_any_epoch_still_moves_on(tmp_path: Path) -> None:
    Log.open(tmp_path / "log")
    again = Log.open(crashed(tmp_path / "log", tmp_path / "copy"))
    assert again.next_epoch == BLOCK + 1
    again.close()


def test_a_format_from_the_future_is_refused(tmp_path: Path, home: str) -> None:
    log = Log.open(tmp_path)
    value = "x'03'" if home == "postgres" else "3"
    asked(log, f"UPDATE meta SET value = {value} WHERE name = 'format'")
    log.close()
    with pytest.raises(LogDamaged, match="has format 3, this program reads 2"):
        Log.open(tmp_path)


# -- snapshots ----------------------------------------------------------------------------------------


def written_snapshot(log: Log) -> None:
    state = log.recover()
    state.segment = log.last_segment
    writer = log.snapshot(state)
    while writer.step():
        pass


def test_recovery_begins_at_the_newest_snapshot(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    append(log, epoch(1, flight(1), 5, "text", client="a"))
    written_snapshot(log)
    append(log, epoch(2, flight(2), client="b"))
    asked(log, "UPDATE segments SET body = x'00' WHERE segment = 1")  # it is not needed
    state = log.recover()
    assert state.owners == {"durable:EWR": {1000: flight(1), 1001: 5, 1002: "text", 2000: flight(2)}}
    assert state.clients == {"a": (1, 1), "b": (2, 2)}
    log.close()


def test_an_incomplete_snapshot_is_never_used_and_a_complete_one_replaces_the_old(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log")
    append(log, epoch(1, flight(1)))
    written_snapshot(log)
    append(log, epoch(2, flight(2)))
    writer = log.snapshot(log.recover())
    assert writer.step()
    assert log.snapshot_epoch() == 1
    again = Log.open(crashed(tmp_path / "log", tmp_path / "copy"))
    assert asked(again, "SELECT count(*) FROM snapshots") == [(1,)]
    assert len(again.recover().owners["durable:EWR"]) == 2
    again.close()
    while writer.step():
        pass
    assert log.snapshot_epoch() == 2
    assert asked(log, "SELECT count(*) FROM snapshots") == [(1,)]
    log.close()


def test_a_large_state_is_written_in_chunks_and_comes_back(log: Log) -> None:
    many = [Record("p", at) for at in range(10_000)]
    append(log, Epoch(1, 10, many, (), (), [Claims("a", list(enumerate(many)))]))
    written_snapshot(log)
    assert asked(log, "SELECT chunks FROM snapshots") == [(3,)]
    assert log.recover().owners == {"a": dict(enumerate(many))}
    assert snapshot_facts(log) == (1, many)


def test_claims_that_are_large_have_more_chunks(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relay.log.snapshots.CHUNK_BYTES", 5000)
    many = [Record("p", at, "x" * (20_000 if at == 7 else 200)) for at in range(100)]
    append(log, Epoch(1, 10, many, (), (), [Claims("a", list(enumerate(many)))]))
    written_snapshot(log)
    ((chunks,),) = asked(log, "SELECT chunks FROM snapshots")
    assert 8 <= chunks < 30
    large = [size for (size,) in asked(log, "SELECT length(body) FROM chunks") if size > 5000]
    assert len(large) == 1, "one claim alone is larger"
    assert log.recover().owners == {"a": dict(enumerate(many))}


def test_an_altered_snapshot_is_found(log: Log) -> None:
    append(log, epoch(1, flight(1)))
    written_snapshot(log)
    asked(log, "UPDATE chunks SET body = x'00'")
    with pytest.raises(LogDamaged, match="snapshot at epoch 1: chunk 0 of 1 was altered or is gone"):
        log.recover()


# -- damage -------------------------------------------------------------------------------------------


@FILES
def test_a_flipped_bit_in_the_write_ahead_log_is_noticed_on_opening(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log")
    for number in range(1, 6):
        append(log, epoch(number, f"the text of epoch {number}"))
    copy = crashed(tmp_path / "log", tmp_path / "copy")
    log.close()
    wal = copy / "log.sqlite-wal"
    flip(wal, wal.read_bytes().index(b"the text of epoch 3"))
    with pytest.raises(LogDamaged, match=r"epochs up to 5 were acknowledged, but its last is \d"):
        Log.open(crashed(copy, tmp_path / "again"))
    going_on = Log.open(copy, accept_damage=True)
    state = going_on.recover()
    assert going_on.last < 3
    assert state.epoch >= BLOCK, "whoever has seen what is missing is not answered as if it had not been"
    assert going_on.oldest == going_on.next_epoch == state.epoch + 1
    with pytest.raises(Refused, match="epoch-gone"):
        list(going_on.read(5))
    append(going_on, epoch(going_on.next_epoch, "new"))
    going_on.close()
    Log.open(copy).close()


@FILES
def test_a_log_that_has_vanished_is_noticed(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    append(log, epoch(1, flight(1)))
    log.close()
    (tmp_path / "log.sqlite").unlink()
    with pytest.raises(LogDamaged, match=r"epochs up to 1 were acknowledged, .* is gone"):
        Log.open(tmp_path)


@FILES
def test_a_log_put_back_from_an_older_copy_is_noticed(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log")
    append(log, epoch(1, "first"))
    log.close()
    crashed(tmp_path / "log", tmp_path / "copy")
    log = Log.open(tmp_path / "log")
    append(log, epoch(2, "second"))
    log.close()
    other = Log.open(tmp_path / "copy")
    append(other, epoch(2, "another"), epoch(3, "history"))
    other.close()
    shutil.copy(tmp_path / "copy" / "log.sqlite", tmp_path / "log" / "log.sqlite")
    with pytest.raises(LogDamaged, match="the acknowledged epoch 2 is not the one that was written"):
        Log.open(tmp_path / "log")


@FILES
def test_a_flipped_bit_in_the_middle_is_never_served(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    for number in range(1, 6):
        append(log, epoch(number, f"the text of epoch {number}"))
    log.close()
    flip(tmp_path / "log.sqlite", place(tmp_path / "log.sqlite", b"the text of epoch 3"))
    log = Log.open(tmp_path)
    reader = log.read(0)
    assert [next(reader).number, next(reader).number] == [1, 2]
    with pytest.raises(LogDamaged, match="segment 3 with epochs 3 to 3 was altered"):
        next(reader)
    assert [each.number for each in log.read(3)] == [4, 5], "what lies behind it is whole"
    with pytest.raises(LogDamaged):
        log.verify()
    with pytest.raises(LogDamaged):
        log.recover()
    log.close()


@FILES
@pytest.mark.parametrize("altered", [1, 3, 5])
def test_an_operator_can_go_on_without_an_altered_segment(tmp_path: Path, altered: int) -> None:
    log = Log.open(tmp_path)
    for number in range(1, 6):
        append(log, epoch(number, f"the text of epoch {number}"))
    append(log, Epoch(6, 60, (), (), ["something"], [Claims("durable:EWR", (), [altered * 1000])]))
    log.close()
    flip(tmp_path / "log.sqlite", place(tmp_path / "log.sqlite", b"the text of epoch %d" % altered))
    left = [number * 1000 for number in range(1, 6) if number != altered]
    log = Log.open(tmp_path, accept_damage=True)
    assert sorted(log.recover().owners["durable:EWR"]) == left
    append(log, epoch(log.next_epoch, "new"))
    log.close()
    log = Log.open(tmp_path)
    assert sorted(log.recover().owners["durable:EWR"]) == [*left, 7000]
    assert log.oldest == 7
    assert [each.number for each in log.read(6)] == [7]
    assert log.verify().oldest == 7
    log.close()


@pytest.mark.parametrize("table", ["segments", "chunks"])
def test_an_operator_can_go_on_without_the_end_or_the_snapshot(tmp_path: Path, table: str) -> None:
    log = Log.open(tmp_path)
    append(log, epoch(1, flight(1)))
    if table == "chunks":
        written_snapshot(log)
    asked(log, f"UPDATE {table} SET body = x'00'")
    log.close()
    log = Log.open(tmp_path, accept_damage=True)
    log.recover()
    append(log, epoch(2, flight(2)))
    log.close()
    log = Log.open(tmp_path)
    assert 2000 in log.recover().owners["durable:EWR"]
    log.close()


def test_a_segment_that_is_gone_is_noticed(log: Log) -> None:
    for number in range(1, 6):
        append(log, epoch(number, flight(number)))
    asked(log, "DELETE FROM segments WHERE segment = 3")
    with pytest.raises(LogDamaged, match="segment 3, before epoch 4, is gone"):
        list(log.read(0))


def test_verifying_a_whole_log_counts_it(log: Log) -> None:
    append(log, epoch(1, flight(1), flight(2)))
    append(log, epoch(2, flight(3)))
    written_snapshot(log)
    counted = log.verify()
    assert (counted.segments, counted.changes, counted.snapshot_epoch) == (2, 3, 2)


@FILES
def test_a_file_that_is_no_log_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "log.sqlite").write_bytes(b"this is not a database, however long one looks at it" * 100)
    with pytest.raises(LogDamaged, match="file is not a database"):
        Log.open(tmp_path)


# -- a disk that refuses ------------------------------------------------------------------------------


def test_a_full_disk_is_said_and_nothing_is_half_written(log: Log) -> None:
    append(log, epoch(1, flight(1)))
    (pages,) = storage_of(log).rows("PRAGMA page_count")[0]
    storage_of(log)._writer.execute(f"PRAGMA max_page_count = {pages + 1}")
    large = [encode(epoch(n, Record("blob", b"x" * 50_000))) for n in range(2, 9)]
    with pytest.raises(LogFailed, match="the disk is full") as caught:
        log.append(large)
    assert caught.value.full
    assert [each.number for each in log.read(0)] == [1]
    storage_of(log)._writer.execute("PRAGMA max_page_count = 1000000")
    log.append(large)
    assert [each.number for each in log.read(0)] == list(range(1, 9))


def test_a_file_that_another_program_holds_can_be_tried_again(log: Log, tmp_path: Path) -> None:
    storage_of(log)._writer.execute("PRAGMA busy_timeout = 10")
    other = sqlite3.connect(tmp_path / "log.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LogFailed, match="another program has locked it") as refused:
        append(log, epoch(1, "x"))
    assert refused.value.full
    other.close()
    append(log, epoch(1, "x"))
    assert log.last == 1


def test_a_transaction_that_raises_leaves_nothing(log: Log) -> None:
    class Stop(Exception):
        pass

    with pytest.raises(Stop), storage_of(log).transaction() as connection:
        connection.execute("INSERT INTO meta VALUES ('half', 1)")
        raise Stop
    assert not asked(log, "SELECT 1 FROM meta WHERE name = 'half'")
    append(log, epoch(1, 1))


def test_a_commit_is_on_disk_by_sqlite_s_own_word(log: Log) -> None:
    assert storage_of(log)._writer.execute("PRAGMA synchronous").fetchone() == (2,), "2 is FULL"
    assert storage_of(log)._writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.parametrize("together", [1, 3, 100])
def test_the_epoch_of_a_time_is_the_newest_made_by_then(log: Log, together: int) -> None:
    made = [(1, 10), (2, 20), (3, 20), (7, 20), (8, 21), (9, 40)]
    epochs = [Epoch(number, time, (), (), (), ()) for number, time in made]
    for start in range(0, len(epochs), together):
        append(log, *epochs[start : start + together])
    for time in range(50):
        assert log.epoch_at(time) == max([0, *[number for number, at in made if at <= time]])


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.data())
def test_a_reader_is_told_how_far_so_many_changes_and_bytes_lead(
    sizes: list[int], data: st.DataObject
) -> None:
    """Some epochs are in one segment, in which each change counts alike; an epoch may have none."""
    with TemporaryDirectory() as folder, closing(Log.open(Path(folder))) as log:
        made = [epoch(at, *[flight(at * 10 + each) for each in range(n)]) for at, n in enumerate(sizes, 1)]
        group = data.draw(st.integers(1, 4))
        for at in range(0, len(made), group):
            append(log, *made[at : at + group])
        after = data.draw(st.integers(0, len(made) - 1))
        upto = data.draw(st.integers(after, len(made)))
        most = data.draw(st.integers(0, 20))
        size = data.draw(st.none() | st.integers(0, 3000))
        last, changes, taken = after, 0, 0
        for segment in log.segments(after, upto):
            inside = [at for at in range(segment.first, segment.last + 1) if after < at <= upto]
            for at in inside:
                more = len(segment.body) * sizes[at - 1] // max(1, segment.changes)
                beyond = changes + sizes[at - 1] > most or (size is not None and taken + more > size)
                if changes and beyond:
                    break
                last, changes, taken = at, changes + sizes[at - 1], taken + more
            else:
                continue
            break
        else:
            last = upto
        assert log.within(after, upto, most, size) == (last, changes)
