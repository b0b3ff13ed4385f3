"""What a crash has torn off the end of a log is cut off, and said; what is whole is not taken for torn."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest

from relay.log.log import Log
from relay.store.errors import LogDamaged
from relay.store.sqlite.storage import torn
from tests.relay.log.histories import append, epoch
from tests.relay.store.files import storage_of

WAL = "log.sqlite-wal"


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """The files of a log as a kill leaves them, after five epochs of which the last was not accepted."""
    log = Log.open(tmp_path / "living")
    for number in range(1, 5):
        append(log, epoch(number, f"the text of epoch {number}"))
    mark = (tmp_path / "living" / "acknowledged").read_bytes()
    append(log, epoch(5, *[f"{at} of the texts of epoch 5" for at in range(500)]))
    shutil.copytree(tmp_path / "living", tmp_path / "left", ignore=shutil.ignore_patterns("*-shm"))
    (tmp_path / "left" / "acknowledged").write_bytes(mark)
    log.close()
    return tmp_path / "left"


def _opened(left: Path) -> tuple[int, int]:
    """The newest epoch that is there, and the bytes behind it."""
    size = torn(left / WAL)
    log = Log.open(left)
    assert [each.number for each in log.read(0)] == list(range(1, log.last + 1))
    log.close()
    return log.last, size


def _said(left: Path, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged of this log: threads of earlier tests may log something as well."""
    return [said for each in caplog.records if (said := each.getMessage()).startswith(str(left))]


def test_what_is_whole_is_not_torn(left: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert _opened(left) == (5, 0)
    assert not _said(left, caplog)
    assert torn(left / WAL) == 0, "there is no such file after an orderly end"


def test_a_write_that_was_cut_short_is_said(left: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole = (left / WAL).read_bytes()
    (left / WAL).write_bytes(whole[:-3000])
    last, size = _opened(left)
    assert last == 4 and 4096 < size < len(whole)
    assert _said(left, caplog) == [
        f"{left}/log.sqlite: {size} bytes of a write that was never accepted are cut off"
    ]


@pytest.mark.slow
def test_it_is_said_whatever_has_come_of_the_last_write(left: Path) -> None:
    whole, random = (left / WAL).read_bytes(), Random(4)
    (left / WAL).write_bytes(whole[:-1])
    begins = len(whole) - 1 - torn(left / WAL)
    assert 32 < begins < len(whole) - 8192
    for _ in range(40):
        altered = bytearray(whole)
        at = random.randrange(begins + 24, len(whole))
        altered[at] ^= 1 << random.randrange(8)
        (left / WAL).write_bytes(altered)
        place = left.with_name("copy")
        shutil.copytree(left, place)
        last, size = _opened(place)
        assert last == 4 and size > 0, f"byte {at}"
        shutil.rmtree(place)


def test_a_tail_that_was_accepted_is_missed_and_not_only_cut_off(left: Path) -> None:
    shutil.copy(left.with_name("living") / "acknowledged", left / "acknowledged")
    (left / WAL).write_bytes((left / WAL).read_bytes()[:-3000])
    with pytest.raises(LogDamaged, match="epochs up to 5 were acknowledged, but its last is 4"):
        Log.open(left)
    log = Log.open(left, accept_damage=True)
    assert log.last == 4 and log.next_epoch > 5
    log.close()


def test_what_an_earlier_round_has_left_is_not_torn(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    append(log, epoch(1, "x" * 200_000))
    storage_of(log)._writer.execute("PRAGMA wal_checkpoint(RESTART)")
    append(log, epoch(2, "y"))
    assert torn(tmp_path / WAL) == 0
    assert (tmp_path / WAL).stat().st_size > 200_000
    log.close()
