"""Before 4.2 Spark tells a reader neither where a batch begins nor how large it may be."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from dataspace.errors import UsageError
from relay.spark.common import versions
from relay.spark.common.connections import close_all
from relay.spark.common.options import stream_options
from relay.spark.common.schema import inferred
from relay.spark.source.offsets import Json
from relay.spark.source.source import ChangesStream
from relay.spark.tuning import internals
from tests.relay.spark.daemons import Daemon

pytestmark = pytest.mark.slow
PATTERN = "p($n:int)"


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """All rows go through tasks, as there."""
    monkeypatch.setattr(internals, "Wrapper", None)
    yield
    close_all()


def new_reader(daemon: Daemon, start: str) -> ChangesStream:
    options = {"url": daemon.url, "pattern": PATTERN, "startingEpoch": start, "pollTimeout": "10ms"}
    return ChangesStream(stream_options(options), inferred(PATTERN))


def rows(reader: ChangesStream, start: Json, end: Json) -> list[object]:
    batches: list[pa.RecordBatch] = [
        batch for part in reader.partitions(start, end) for batch in reader.read(part)
    ]
    return [row["n"] for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("start", ["earliest", "snapshot"])
def test_a_reader_that_is_not_told_the_start_goes_on_where_its_last_plan_ended(
    own_daemon: Daemon, start: str
) -> None:
    own_daemon.turn("+p(1)")
    first = new_reader(own_daemon, start)
    end, begun = first.latestOffset(), first.initialOffset()  # in this order, as Spark asks
    assert rows(first, begun, end) == [1]
    assert first.latestOffset() == end
    own_daemon.turn("+p(2)")
    later = first.latestOffset()
    assert rows(first, end, later) == [2]

    again = new_reader(own_daemon, start)  # from a checkpoint whose newest batch was not committed
    assert list(again.partitions(later, later)) == []
    assert rows(again, end, later) == [2]
    own_daemon.turn("+p(3)")
    assert rows(again, later, again.latestOffset()) == [3]

    newest = again.latestOffset()
    third = new_reader(own_daemon, start)
    assert list(third.partitions(newest, newest)) == []
    assert third.latestOffset() == newest


def test_an_empty_plan_at_the_end_of_a_first_batch_reads_no_state(own_daemon: Daemon) -> None:
    own_daemon.turn("+p(1)")
    reader = new_reader(own_daemon, "snapshot")
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert "from" in end and list(reader.partitions(end, end)) == []


@pytest.mark.parametrize("name", ["maxEpochsPerTrigger", "maxBytesPerTrigger", "minChangesPerTrigger"])
def test_limits_are_refused_by_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "ADMITS", False)
    with pytest.raises(UsageError, match=rf"^option {name} needs PySpark 4\.2: .* has no limits"):
        stream_options({"pattern": PATTERN, name: "5"})
    stream_options({"pattern": PATTERN})
