"""A log is followed by the segments after an ordinal, while another process appends to it and trims it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dataspace.errors import Refused
from relay.log.log import Log
from relay.log.reader import LogReader
from relay.log.retention import Retention
from relay.store.errors import LogDamaged
from tests.relay.log.histories import append, epoch, flight
from tests.relay.store.files import asked


@pytest.fixture
def reader(log: Log, tmp_path: Path) -> Iterator[LogReader]:
    """Another process's view of the log."""
    found = LogReader.open(tmp_path)
    yield found
    found.close()


def written(log: Log, first: int, last: int) -> None:
    """Appends a segment for each epoch."""
    for number in range(first, last + 1):
        append(log, epoch(number, flight(number)))


def trimmed(log: Log) -> None:
    """Deletes all segments but the newest."""
    log.recover(snapshot=True)
    assert log.trim(Retention(age=0.0), 1 << 60).oldest == log.last


def numbers(reader: LogReader, ordinal: int, size: int = 1 << 20) -> list[int]:
    return [each.first for each in reader.tail(ordinal, size)]


def test_what_is_appended_after_a_reader_was_opened(log: Log, reader: LogReader) -> None:
    assert numbers(reader, 0) == [] and reader.last == 0
    written(log, 1, 3)
    assert numbers(reader, 0) == [1, 2, 3] and reader.last == 3
    assert numbers(reader, 2) == [3]
    assert numbers(reader, 3) == []
    assert [each.number for each in reader.read(1)] == [2, 3]


def test_as_many_as_wanted_and_one_at_least(log: Log, reader: LogReader) -> None:
    written(log, 1, 5)
    size = len(reader.tail(0, 1)[0].body)
    assert numbers(reader, 0, 1) == [1]
    assert numbers(reader, 0, size + 1) == [1, 2]
    assert numbers(reader, 2, 1) == [3] and reader.last == 3


def test_what_was_trimmed_meanwhile_is_refused(log: Log, reader: LogReader) -> None:
    written(log, 1, 3)
    assert numbers(reader, 0, 1) == [1]
    trimmed(log)
    with pytest.raises(Refused) as refusal:
        reader.tail(1)
    assert refusal.value.code == "epoch-gone"
    assert reader.oldest == 3
    assert numbers(reader, 2) == [3], "its predecessor is gone, and was known by the header"
    with pytest.raises(Refused):
        list(reader.read(0))


def test_one_who_reads_while_it_is_trimmed_is_refused(log: Log, reader: LogReader) -> None:
    written(log, 1, 4)
    reader.refresh()
    reading = reader.segments(0, 4)
    trimmed(log)
    with pytest.raises(Refused) as refusal:
        list(reading)
    assert refusal.value.code == "epoch-gone"


def test_a_trim_that_another_thread_has_noted_is_no_damage(
    log: Log, reader: LogReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(log, 1, 4)
    reader.refresh()
    chain = reader._chain
    trimmed_elsewhere = chain.trimmed_elsewhere

    def after_another_thread() -> bool:
        reader.refresh()
        return trimmed_elsewhere()

    monkeypatch.setattr(chain, "trimmed_elsewhere", after_another_thread)
    trimmed(log)
    with pytest.raises(Refused) as refusal:
        reader.tail(1)
    assert refusal.value.code == "epoch-gone"


def test_a_segment_that_is_missing_is_a_damage(log: Log, reader: LogReader) -> None:
    written(log, 1, 3)
    asked(log, "DELETE FROM segments WHERE segment = 2")
    with pytest.raises(LogDamaged, match="segment 2, before epoch 3, is gone"):
        reader.tail(1)
    asked(log, "DELETE FROM segments WHERE segment = 1")
    with pytest.raises(LogDamaged, match="segment 1, before epoch 3, is gone"):
        reader.tail(0)


def test_where_it_is(log: Log, reader: LogReader) -> None:
    written(log, 1, 2)
    assert not reader.refresh()
    assert (reader.last, reader.last_segment, reader.oldest) == (2, 2, 1)
    trimmed(log)
    assert reader.refresh()
    assert (reader.last, reader.last_segment, reader.oldest) == (2, 2, 2)
    assert not reader.refresh()


@pytest.mark.parametrize(
    "loss",
    ["DELETE FROM segments WHERE segment = 3", "UPDATE segments SET checksum = x'00' WHERE segment = 3"],
)
def test_a_log_that_went_back_is_a_damage(log: Log, reader: LogReader, loss: str) -> None:
    """It lacks what was read before, or has something else in its place."""
    written(log, 1, 3)
    assert numbers(reader, 0) == [1, 2, 3]
    asked(log, loss)
    for _ in range(2):
        with pytest.raises(LogDamaged, match="segment 3, which was read before, is gone or another one"):
            reader.tail(3)
