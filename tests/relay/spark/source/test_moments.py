"""A time means the epochs at it or after it, whether the daemon or an archive has them."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

import dataspace
import dataspace.spark
from dataspace.errors import UsageError
from tests.relay.spark.daemons import Daemon
from tests.relay.spark.queries import Seen, read, run_now, stream
from tests.relay.spark.source.test_topic import publish, rows, topic_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.spark]

Checkpoint = Callable[[], str]


def times_of(spark: SparkSession, daemon: Daemon, pattern: str) -> dict[int, datetime]:
    """The time of each epoch, in UTC."""
    frame = dataspace.spark.frame(spark, pattern, url=daemon.url).select("_epoch", "_epoch_timestamp")
    return {epoch: at.astimezone(UTC) for epoch, at in frame.collect()}


def test_times_become_epochs(spark: SparkSession, daemon: Daemon, label: str, checkpoint: Checkpoint) -> None:
    """Epochs of one moment go together, so each epoch is given the time to have one of its own."""
    pattern = f"{label}($n:int)"
    epochs = []
    for n in range(4):
        epochs.append(daemon.turn(f"+{label}({n})", *([f"-{label}({n - 1})"] if n else [])))
        time.sleep(0.002)
    at = times_of(spark, daemon, pattern)
    second, third = at[epochs[1]].isoformat(), at[epochs[2]].isoformat()

    def numbers(**options: object) -> list[int]:
        return sorted({int(str(row[2])) for row in read(spark, daemon.url, pattern, **options)})

    assert numbers(startingTimestamp=second) == epochs[1:]
    assert numbers(startingTimestamp=second, endingTimestamp=third) == epochs[1:3]
    assert numbers(startingEpoch=epochs[0], endingTimestamp=second) == epochs[:2]
    millis = int(at[epochs[2]].timestamp() * 1000)  # cut off, so that it is before the epoch
    assert numbers(startingTimestamp=millis, endingTimestamp=third) == epochs[2:3]
    for state in (
        {"asOfTimestamp": second},
        {"timestampAsOf": second},
        {"versionAsOf": epochs[1]},
        {"asOfEpoch": epochs[1]},
    ):
        assert read(spark, daemon.url, pattern, **state) == [(1, "insert", epochs[1], 0)], state
    seen = Seen()
    run_now(stream(spark, daemon.url, pattern, startingTimestamp=third), seen, checkpoint())
    assert sorted({row[2] for row in seen.rows}) == epochs[2:]  # type: ignore[type-var]  # numbers
    with pytest.raises(PySparkException, match="startingTimestamp 2999-01-01 has not come yet"):
        read(spark, daemon.url, pattern, startingTimestamp="2999-01-01")


def test_a_topic_ends_at_one_of_its_times(spark: SparkSession, own_daemon: Daemon) -> None:
    publish(own_daemon.url, range(0, 10, 2))

    def times(**options: object) -> list[object]:
        return [row[0] for row in rows(topic_of(spark, own_daemon.url, **options))]

    assert times(startingEpoch="[2]", endingEpoch="[6]") == [2, 4, 6]
    assert times(startingEpoch="[3]", endingEpoch="[5]") == [4]
    assert times(endingEpoch="[99]") == [0, 2, 4, 6, 8]
    assert times(startingEpoch="[4]", endingEpoch=3) == [4]


def test_an_unknown_option_is_named_as_it_was_written(spark: SparkSession) -> None:
    with pytest.raises(UsageError, match=r"option startingEpochs is unknown.*did you mean startingEpoch"):
        dataspace.spark.frame(spark, "p($x)", startingEpochs=3)
    with pytest.raises(UsageError, match="option asOfEpoch is one of dataspace read"):
        dataspace.spark.frame(spark, "p($x)", stream=True, asOfEpoch=3)
    with pytest.raises(UsageError, match=r"option keyColumn is unknown.*did you mean keyColumns"):
        dataspace.spark.updates(template="p($x)", keyColumn="x")
