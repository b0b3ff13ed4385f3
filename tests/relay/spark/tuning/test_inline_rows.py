"""Small batches ride along with their plan, and are the rows that tasks would have read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper

from relay.spark.common.connections import close_all
from relay.spark.common.fitting import Misfit
from relay.spark.common.options import stream_options
from relay.spark.common.schema import inferred
from relay.spark.source import source
from relay.spark.source.source import CarriedPartition, ChangesStream, SpanPartition
from relay.spark.tuning import internals
from tests.relay.spark.daemons import Daemon
from tests.relay.spark.queries import Row, Seen, run_now, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import InputPartition

pytestmark = pytest.mark.slow
PATTERN = "p($n:int)"


@pytest.fixture
def reader(own_daemon: Daemon) -> Iterator[ChangesStream]:
    """What Spark's planner has, here in this process."""
    yield reader_of(own_daemon)
    close_all()


def reader_of(daemon: Daemon) -> ChangesStream:
    options = stream_options({"url": daemon.url, "pattern": PATTERN, "startingEpoch": "latest"})
    return ChangesStream(options, inferred(PATTERN))


def rides(reader: object) -> bool:
    """Whether Spark would take this reader for one whose rows go with its plan."""
    return isinstance(reader, _SimpleStreamReaderWrapper)


def told(batches: Iterator[pa.RecordBatch]) -> list[Row]:
    return [(row["n"], row["_change_type"], row["_seq"]) for batch in batches for row in batch.to_pylist()]


def read(reader: ChangesStream, parts: list[InputPartition]) -> list[Row]:
    return [row for part in parts for row in told(reader.read(part))]


def test_rows_ride_along_and_can_be_read_again(own_daemon: Daemon, reader: ChangesStream) -> None:
    start = reader.initialOffset()
    own_daemon.turn("+p(1)", "+p(2)")
    own_daemon.turn("-p(1)")
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    (part,) = reader.partitions(start, end)
    assert rides(reader), "for the question that Spark asks next"
    rows = told(reader.getCache(start, end))
    assert rows == [(1, "insert", 0), (2, "insert", 1), (1, "delete", 0)]
    assert not rides(reader) and (reader.reportLatestOffset() or {})["epoch"] == end["epoch"]
    assert isinstance(part, CarriedPartition) and read(reader, [part]) == rows
    again = reader_of(own_daemon)
    parts = list(again.partitions(start, end))
    assert all(isinstance(each, SpanPartition) for each in parts), "after a restart nothing has been seen yet"
    assert read(again, parts) == rows


def test_what_is_too_much_is_left_to_tasks(
    own_daemon: Daemon, reader: ChangesStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "ROWS", 2)
    start = reader.initialOffset()
    own_daemon.turn("+p(1)", "+p(2)", "+p(3)")
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    parts = list(reader.partitions(start, end))
    assert not rides(reader) and len(read(reader, parts)) == 3


def test_epochs_that_the_pattern_saw_nothing_of_make_no_task(
    own_daemon: Daemon, reader: ChangesStream
) -> None:
    start = reader.initialOffset()
    own_daemon.turn("+q(1)")
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert end != start and reader.partitions(start, end) == []


def test_a_row_that_does_not_fit_fails_here_as_well(own_daemon: Daemon, reader: ChangesStream) -> None:
    start = reader.initialOffset()
    own_daemon.turn("+p(9223372036854775808)")
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    with pytest.raises(Misfit, match="int 9223372036854775808 for column n"):
        reader.partitions(start, end)


def test_without_sparks_private_class_tasks_read_everything(
    own_daemon: Daemon, reader: ChangesStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(internals, "Wrapper", None)
    start = reader.initialOffset()
    own_daemon.turn("+p(1)")
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    (part,) = reader.partitions(start, end)
    assert isinstance(part, SpanPartition) and internals.carrier(ChangesStream) is ChangesStream


@pytest.mark.spark
def test_the_lag_shows_in_the_progress(
    spark: SparkSession, own_daemon: Daemon, checkpoint: Callable[[], str]
) -> None:
    for n in range(3):
        own_daemon.turn(f"+p({n})")
    frame = stream(spark, own_daemon.url, PATTERN, startingEpoch="earliest", maxEpochsPerTrigger=1)
    query = run_now(frame, Seen(), checkpoint())
    ends = [str(each["sources"][0]["endOffset"]) for each in query.recentProgress]
    newest = [str(each["sources"][0]["latestOffset"]) for each in query.recentProgress]
    assert [epoch_of(end) for end in ends[:3]] == [1, 2, 3]
    assert [epoch_of(each) for each in newest[:3]] == [3, 3, 3]
    assert f"{PATTERN} of main at {own_daemon.url}" in newest[0], "Spark itself names a class"


def epoch_of(offset: str) -> int:
    import json

    return int(json.loads(offset.replace("'", '"'))["epoch"])
