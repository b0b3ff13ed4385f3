"""A micro-batch has at most so many bytes, and waits for so many changes, but no longer than it may."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from dataspace.errors import UsageError
from relay.spark.common.connections import close_all
from relay.spark.common.options import stream_options
from relay.spark.common.schema import inferred
from relay.spark.common.versions import ReadAllAvailable, ReadMaxRows
from relay.spark.source.source import ChangesStream
from tests.relay.spark.daemons import Daemon, texts

pytestmark = pytest.mark.slow
PATTERN = "p($n:int)"


@pytest.fixture(autouse=True)
def links() -> Iterator[None]:
    yield
    close_all()


def reader_of(*daemons: Daemon, **options: object) -> ChangesStream:
    given: dict[str, Any] = {"pattern": PATTERN, "startingEpoch": "earliest", "pollTimeout": "10ms"}
    given |= {"url": ",".join(daemon.url for daemon in daemons)} | options
    return ChangesStream(
        stream_options({name: str(value) for name, value in given.items()}),
        inferred(PATTERN, several=len(daemons) > 1),
    )


def batches(reader: ChangesStream) -> list[list[int]]:
    """The rows of each batch until there is no more."""
    place, found = reader.initialOffset(), list[list[int]]()
    while (end := reader.latestOffset(place, reader.getDefaultReadLimit())) != place:
        read = [
            row["n"]
            for part in reader.partitions(place, end)
            for b in reader.read(part)
            for row in b.to_pylist()
        ]
        place = end
        found.append(read)
    return found


@pytest.mark.parametrize(("start", "some"), [("earliest", 600), ("snapshot", 50)])
def test_a_batch_has_at_most_so_many_bytes_and_one_epoch_or_row_at_least(
    own_daemon: Daemon, start: str, some: int
) -> None:
    for at in range(12):
        own_daemon.turn(f"+p({at})")
    own_daemon.turn(*texts([f"p({100 + at})" for at in range(60)]))
    everything = [*range(12), *range(100, 160)]
    sizes = {}
    for size in (1, some, "1g"):
        found = batches(reader_of(own_daemon, startingEpoch=start, maxBytesPerTrigger=size))
        assert sorted(row for batch in found for row in batch) == everything
        sizes[size] = [len(batch) for batch in found]
    assert sizes[1] == ([1] * 12 + [60] if start == "earliest" else [1] * 72)
    assert len(sizes[1]) > len(sizes[some]) > len(sizes["1g"]) == 1


def test_both_limits_hold(own_daemon: Daemon) -> None:
    for at in range(9):
        own_daemon.turn(f"+p({at})")
    found = batches(reader_of(own_daemon, maxBytesPerTrigger="1m", maxChangesPerTrigger=2))
    assert [len(batch) for batch in found] == [2, 2, 2, 2, 1]


def test_a_batch_waits_for_so_many_changes(own_daemon: Daemon) -> None:
    own_daemon.turn("+p(0)")
    reader = reader_of(own_daemon, minChangesPerTrigger=3, maxTriggerDelay="60m")
    limit = reader.getDefaultReadLimit()
    assert isinstance(limit, ReadMaxRows)
    first = reader.latestOffset(reader.initialOffset(), limit)
    assert first["epoch"] == 1, "the first batch does not wait"
    own_daemon.turn("+p(1)")
    assert reader.latestOffset(first, limit) == first
    own_daemon.turn("-p(1)")
    assert reader.latestOffset(first, limit) == reader.latestOffset(first, limit) == first
    assert (reader.reportLatestOffset() or {})["epoch"] == 3, "the lag shows"
    own_daemon.turn("+q(1)")  # of the space, whatever the pattern
    second = reader.latestOffset(first, limit)
    assert second["epoch"] == 4
    own_daemon.turn("+p(5)", "+p(6)", "+p(7)")
    assert reader.latestOffset(second, limit)["epoch"] == 5, "in one epoch"


def test_a_limit_of_spark_itself_ends_the_wait(own_daemon: Daemon) -> None:
    reader = reader_of(own_daemon, minChangesPerTrigger=3, maxTriggerDelay="60m")
    own_daemon.turn("+p(0)")
    first = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    own_daemon.turn("+p(1)")
    assert reader.latestOffset(first, reader.getDefaultReadLimit()) == first
    assert reader.latestOffset(first, ReadAllAvailable())["epoch"] == 2, "as with once"
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(first, reader.getDefaultReadLimit())["epoch"] == 2


def test_a_batch_waits_no_longer_than_the_delay(own_daemon: Daemon) -> None:
    reader = reader_of(own_daemon, minChangesPerTrigger=3, maxTriggerDelay="100ms", pollTimeout="60s")
    own_daemon.turn("+p(0)")
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(reader.initialOffset(), limit)
    own_daemon.turn("+p(1)")
    end = first
    until = time.monotonic() + 50
    while end == first and time.monotonic() < until:  # the poll is longer, so it must end with the delay
        end = reader.latestOffset(first, limit)
    assert end["epoch"] == 2


def test_one_of_two_daemons_has_to_have_as_many(own_daemon: Daemon, tmp_path: Any) -> None:
    with Daemon(tmp_path / "other") as other:
        reader = reader_of(own_daemon, other, minChangesPerTrigger=2, maxTriggerDelay="60m")
        limit = reader.getDefaultReadLimit()
        own_daemon.turn("+p(0)")
        first = reader.latestOffset(reader.initialOffset(), limit)
        own_daemon.turn("+p(1)")
        other.turn("+p(2)")
        assert reader.latestOffset(first, limit) == first
        other.turn("+p(3)")
        until = time.monotonic() + 50
        end = first
        while end == first and time.monotonic() < until:
            end = reader.latestOffset(first, limit)
        assert end != first
        close_all()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"maxTriggerDelay": "1s"}, "how long minChangesPerTrigger may delay a batch"),
        ({"minChangesPerTrigger": "5", "maxChangesPerTrigger": "4"}, "5 is more than maxChangesPerTrigger 4"),
        ({"maxBytesPerTrigger": "0"}, "numbers of bytes from 1 on"),
        ({"maxBytesPerTrigger": "64 parsecs"}, "numbers of bytes from 1 on"),
        ({"topic": "t", "minChangesPerTrigger": "5"}, "topic t has items"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, str], error: str) -> None:
    with pytest.raises(UsageError, match=error):
        stream_options({"pattern": PATTERN, **options})
