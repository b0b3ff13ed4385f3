"""A backup is the log at its epoch, whatever that does meanwhile; and any epoch of it can be restored."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import example, given, settings, strategies as st

from dataspace.errors import UsageError
from dataspace.kernel.changes import Epoch
from relay.backup import logs, restore as restoring
from relay.backup.backup import back_up, beside, of_directory, publish, working_directory
from relay.backup.copies import CopyPace, FileMoment, LogSource
from relay.backup.logs import NotThisLog
from relay.backup.manifest import Manifest
from relay.backup.restore import RestoreWanted, restore
from relay.log.compaction import compact
from relay.log.log import BLOCK, Log
from relay.log.reader import LogReader, verify
from relay.store.errors import LogDamaged
from tests.relay.log.histories import append, epoch, flight, plain
from tests.relay.log.lives import CLAIMED_AGAIN, TRIMMED, History, claims_of, lives, shared_claims
from tests.relay.log.test_replay import Turns
from tests.relay.log.test_retention import EVERYTHING, LATE, write_snapshot
from tests.relay.store.files import storage_of

pytestmark = pytest.mark.slow

SECOND = 1_000_000
ALL = RestoreWanted()
Report = Callable[[str, int], None]


@pytest.fixture(autouse=True, scope="module")
def small_portions() -> Iterator[None]:
    """Copies in portions of a segment or two, with whatever comes in between."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logs, "PORTION_BYTES", 60)
        patch.setattr(logs, "SMALL_BYTES", 60)
        yield


def backed_up(data: Path, target: Path, report: Report | None = None) -> Path:
    made = working_directory(target)
    back_up(of_directory(data), made, CopyPace(report=report))
    publish(made, target)
    return target


def restored(backup: Path, target: Path, wanted: RestoreWanted = ALL) -> Path:
    made = restoring.working_directory(target)
    restore(backup, made, wanted, CopyPace())
    publish(made, target)
    return target


SILENT: Final[Turns] = [("durable:a", [])] * 4
WRITTEN: Final = [(History.write, 1)]
"""With such turns no segment has an epoch, so that none before a snapshot is needed, though all are there."""


@settings(max_examples=10)
@given(shared_claims, st.lists(lives, min_size=1, max_size=3), st.integers(0, 12))
@example(CLAIMED_AGAIN, [[], TRIMMED, []], 12)
@example(SILENT, [WRITTEN, [*WRITTEN * 3, (History.snapshot, 1)], []], 0)
def test_what_is_restored_is_the_state_at_that_epoch(turns: Turns, between: list[Any], wanted: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        top = Path(directory)
        history = History(Log.open(top / "data"), turns)
        with closing(history.log):
            for some in between:  # what the log does while a copy of it is made, after each of its portions
                left = list(reversed(some))

                def disturb(_what: str, _copied: int, left: list[Any] = left) -> None:
                    if left:
                        step, count = left.pop()
                        step(history, count)

                backed_up(top / "data", top / "backup", disturb)
                while left:
                    disturb("", 0)
            _check(top, history, wanted)


def _check(top: Path, history: History, wanted: int) -> None:
    found = verify(top / "backup")
    assert not found.damages
    last, oldest = found.statistics.last, found.statistics.oldest
    with closing(LogReader.open(top / "backup")) as copied:
        segment = copied.last_segment
    noted = Manifest.read(top / "backup").spaces[0]
    assert (noted.epoch, noted.oldest, noted.identity) == (last, oldest, found.identity)
    at = max(oldest, min(wanted, last))
    try:
        restored(top / "backup", top / "restored", RestoreWanted(epoch=at) if last else RestoreWanted())
    except UsageError as error:
        assert (oldest > 1 and "past retention" in str(error)) or at > last
        return
    assert not verify(top / "restored").damages
    with closing(Log.open(top / "restored")) as log:
        assert log.identity != found.identity
        assert log.next_epoch > found.statistics.reserved
        assert claims_of(log.recover()) == history.state(segment, at if at < last else None)


# -- what a copy goes on from -------------------------------------------------------------------------


def write(log: Log, first: int, last: int) -> None:
    """Epochs of a second each, a segment for each."""
    for number in range(first, last + 1):
        made = epoch(number, flight(number))
        append(log, Epoch(number, number * SECOND, made.added, (), (), made.claims))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def log(data: Path) -> Iterator[Log]:
    opened = Log.open(data)
    write(opened, 1, 9)
    yield opened
    opened.close()


def snapshot(log: Log) -> None:
    write_snapshot(log, log.recover())


def trim(log: Log) -> None:
    while log.trim(EVERYTHING, LATE).more:
        pass


def numbers(directory: Path) -> list[int]:
    with closing(Log.open(directory)) as log:
        return [each.number for each in log.read(log.oldest - 1)]


def test_a_second_backup_copies_what_is_new(log: Log, data: Path, tmp_path: Path) -> None:
    backed_up(data, tmp_path / "backup")
    write(log, 10, 12)
    done = back_up(of_directory(data), working_directory(tmp_path / "backup"), CopyPace())
    assert (done.logs["main"].added, done.logs["main"].epoch, done.logs["main"].anew) == (3, 12, False)
    assert back_up(of_directory(data), tmp_path / "backup", CopyPace()).logs["main"].added == 0
    assert verify(tmp_path / "backup").statistics.last == 12


def test_an_interrupted_backup_is_continued(log: Log, data: Path, tmp_path: Path) -> None:
    target, seen = tmp_path / "backup", list[int]()

    def interrupt(what: str, copied: int) -> None:
        if what == "space main":
            seen.append(copied)
            if len(seen) == 4:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        backed_up(data, target, interrupt)
    assert not target.exists()
    done = back_up(of_directory(data), working_directory(target), CopyPace())
    assert done.logs["main"].added == 9 - 4
    publish(beside(target), target)
    assert numbers(restored(target, tmp_path / "restored")) == list(range(1, 10))


def test_an_earlier_backup_is_whole_while_it_is_brought_up_to_date(
    log: Log, data: Path, tmp_path: Path
) -> None:
    backup = backed_up(data, tmp_path / "backup")
    write(log, 10, 15)
    snapshot(log)
    seen = []

    def look(_what: str, _copied: int) -> None:
        found = verify(backup)
        assert not found.damages
        seen.append(found.statistics.last)

    backed_up(data, backup, look)
    assert seen[-3:] == [14, 15, 15] and set(seen) >= set(range(10, 16))


def test_retention_that_overtakes_a_copy_has_it_begin_anew(log: Log, data: Path, tmp_path: Path) -> None:
    snapshot(log)
    ran: list[bool] = []

    def trim_once(what: str, _copied: int) -> None:
        if what == "space main" and not ran:
            ran.append(True)
            write(log, 10, 11)
            snapshot(log)
            trim(log)

    backup = backed_up(data, tmp_path / "backup", trim_once)
    found = verify(backup).statistics
    assert (found.oldest, found.last) == (log.oldest, 11) == (11, 11)
    assert numbers(restored(backup, tmp_path / "restored")) == [11]


def test_the_last_attempt_is_of_one_moment_in_which_nothing_is_deleted(
    log: Log, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = backed_up(data, tmp_path / "backup")
    write(log, 10, 12)
    monkeypatch.setattr(logs, "OVERTAKEN", 0)  # so that the first attempt is the last one
    source, asked = LogSource(data), list[int]()

    def moment() -> AbstractContextManager[FileMoment]:
        if asked:
            snapshot(log)
            trim(log)
        asked.append(len(asked))
        return source.moment()

    with closing(source):
        copied = logs.copy_log(moment, target, CopyPace(), "a log")
    assert (copied.epoch, copied.added, copied.anew) == (12, 3, False)


def test_a_backup_that_was_overtaken_is_made_anew_in_its_place(log: Log, data: Path, tmp_path: Path) -> None:
    backup = backed_up(data, tmp_path / "backup")
    write(log, 10, 14)
    snapshot(log)
    trim(log)
    write(log, 15, 15)
    done = back_up(of_directory(data), backup, CopyPace())
    assert done.logs["main"].anew
    assert verify(backup).statistics.oldest == 14 and not verify(backup).damages
    assert sorted(each.name for each in backup.iterdir() if "log" in each.name) == ["log.sqlite"]


def closed(data: Path) -> None:
    """A log that no process has open."""
    with closing(Log.open(data)) as log:
        write(log, 1, 9)


def test_a_compacted_log_is_copied_anew(data: Path, tmp_path: Path) -> None:
    closed(data)
    backup = backed_up(data, tmp_path / "backup")
    compact(data)
    done = back_up(of_directory(data), backup, CopyPace())
    assert done.logs["main"].anew and not verify(backup).damages
    again = Log.open(data)
    write(again, again.next_epoch, again.next_epoch)
    again.close()
    assert back_up(of_directory(data), backup, CopyPace()).logs["main"].added == 1


def test_another_log_is_refused_and_the_backup_stays(log: Log, data: Path, tmp_path: Path) -> None:
    backup = backed_up(data, tmp_path / "backup")
    other = Log.open(tmp_path / "other")
    write(other, 1, 20)
    other.close()
    with pytest.raises(NotThisLog, match="is a copy of the log"):
        back_up(of_directory(tmp_path / "other"), backup, CopyPace())
    assert verify(backup).statistics.last == 9 and not verify(backup).damages


def test_a_log_that_has_gone_on_differently_is_refused(data: Path, tmp_path: Path) -> None:
    closed(data)
    shutil.copytree(data, tmp_path / "earlier")
    for directory in (data, tmp_path / "earlier"):
        again = Log.open(directory)
        append(again, epoch(again.next_epoch, directory.name))
        again.close()
    backup = backed_up(data, tmp_path / "backup")
    with pytest.raises(NotThisLog, match="has gone on differently"):
        back_up(of_directory(tmp_path / "earlier"), backup, CopyPace())
    assert not verify(backup).damages


def test_a_damaged_log_is_not_copied(log: Log, data: Path, tmp_path: Path) -> None:
    with storage_of(log).transaction() as connection:
        connection.execute("UPDATE segments SET body = zeroblob(30) WHERE segment = 5")
    with pytest.raises(LogDamaged, match="segment 5 with epochs 5 to 5 was altered"):
        backed_up(data, tmp_path / "backup")
    assert not (tmp_path / "backup").exists()


def test_a_directory_with_something_else_in_it_is_refused(data: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter").touch()
    with pytest.raises(UsageError, match="there is no log in"):
        of_directory(data)
    Log.open(data).close()
    with pytest.raises(UsageError, match="is not empty and no backup"):
        working_directory(tmp_path / "mine")
    with pytest.raises(UsageError, match="is not empty; give a new directory"):
        restoring.working_directory(tmp_path / "mine")
    with pytest.raises(UsageError, match="is no backup: there is no backup"):
        restore(tmp_path / "mine", tmp_path / "new", RestoreWanted(), CopyPace())


# -- moments ------------------------------------------------------------------------------------------


def test_a_time_is_the_last_epoch_that_is_not_later(log: Log, data: Path, tmp_path: Path) -> None:
    backup = backed_up(data, tmp_path / "backup")
    for at, last in ((3 * SECOND, 3), (4 * SECOND - 1, 3), (99 * SECOND, 9)):
        done = restore(backup, tmp_path / f"at{at}", RestoreWanted(time=at), CopyPace())
        assert (done["main"].epoch, done["main"].newest) == (last, 9)
        assert numbers(tmp_path / f"at{at}") == list(range(1, last + 1))
    assert restore(backup, tmp_path / "before", RestoreWanted(time=0), CopyPace())["main"].epoch == 0
    for epoch_number in (0, 10):
        with pytest.raises(UsageError, match=f"space main: epoch {epoch_number} is wanted, the"):
            restore(backup, tmp_path / f"no{epoch_number}", RestoreWanted(epoch=epoch_number), CopyPace())


def test_a_backup_keeps_the_states_from_which_an_earlier_epoch_can_be_restored(
    log: Log, data: Path, tmp_path: Path
) -> None:
    """A claim that ended cannot be put back from the epoch that ended it, so an older state is needed."""
    snapshot(log)
    trim(log)
    backup = backed_up(data, tmp_path / "backup")
    write(log, 10, 13)
    snapshot(log)
    backed_up(data, backup)
    assert numbers(restored(backup, tmp_path / "restored", RestoreWanted(epoch=11))) == [9, 10, 11]
    with closing(Log.open(tmp_path / "restored")) as then:
        assert len(then.recover().owners["durable:EWR"]) == 11
    fresh = backed_up(data, tmp_path / "fresh")
    with pytest.raises(UsageError, match=r"epoch 11 cannot be restored.* the oldest state in .* epoch 13"):
        restore(fresh, tmp_path / "late", RestoreWanted(epoch=11), CopyPace())


def test_numbers_go_on_beyond_all_that_may_have_been_given_out_since(
    log: Log, data: Path, tmp_path: Path
) -> None:
    backup = backed_up(data, tmp_path / "backup")
    read = Manifest.read(backup).spaces[0].read
    done = restore(backup, tmp_path / "restored", RestoreWanted(epoch=4), CopyPace())["main"]
    seconds = (time.time_ns() // 1000 - read) / 1e6
    assert 9 + 2 * BLOCK < done.next_epoch <= log.reserved + BLOCK + seconds * restoring.FASTEST + 1
    with closing(Log.open(tmp_path / "restored")) as then:
        assert then.next_epoch == done.next_epoch
        assert then.lost(5) and then.lost(done.next_epoch - 2), (
            "what clients saw after epoch 4 never happened"
        )
        assert not then.lost(done.next_epoch - 1), "no epoch has the number with which a start begins"


def test_a_named_reader_has_read_no_more_than_there_is(log: Log, data: Path, tmp_path: Path) -> None:
    log.acknowledge("spark", 8, 0)
    backup = backed_up(data, tmp_path / "backup")
    restore(backup, tmp_path / "restored", RestoreWanted(epoch=4), CopyPace())
    with closing(Log.open(tmp_path / "restored")) as then:
        assert [(each.name, each.epoch) for each in then.readers] == [("spark", 4)]


def test_an_empty_log_is_backed_up_and_restored(data: Path, tmp_path: Path) -> None:
    Log.open(data).close()
    backup = backed_up(data, tmp_path / "backup")
    assert numbers(restored(backup, tmp_path / "restored")) == []
    assert plain(()) == []


def test_a_rate_is_kept_and_a_pause_is_made_up_for() -> None:
    now, slept = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    pace = CopyPace(100.0, clock=lambda: now[0], sleep=sleep)
    pace.spent("x", 50)
    assert now[0] == pytest.approx(0.5) and max(slept) <= 0.25
    now[0] = 100.0
    pace.spent("x", 90)
    assert now[0] == 100.0, "0.9 s of the second that may be made up for"
    pace.spent("x", 60)
    assert now[0] == pytest.approx(100.5) and pace.copied == 200
