"""A topic is read by whole epochs: all partitions of one in one batch, the same again after any restart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark.errors import PySparkException

import dataspace
from dataspace.client.bulk.client import BulkClient
from index.values.values import Record
from relay.spark.common.options import read_options, stream_options
from relay.spark.common.schema import columns, inferred
from relay.spark.source.readings import TopicBlock, _blocks
from relay.spark.source.tasks import batch
from tests.relay.spark.daemons import Daemon
from tests.relay.spark.queries import Row, Seen, run_now, running, stream, until
from tests.server.archiving.test_archiving_daemons import wait
from tests.server.processes import DaemonProcess, running as running_daemons

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Checkpoint = Callable[[], str]
TOPIC = {"topic": "t", "pattern": "at($n:int)"}


def publish(url: str, times: range, retain: int = 1 << 20) -> None:
    """Each time an epoch of its own."""
    with (
        dataspace.connect_blocking(url) as space,
        space.publish("t", durable=True, retain=retain) as topic,
    ):
        for time in times:
            topic.send(Record("at", time), Record("other", "x" * 200), at=time)
            topic.advance(time + 1)
        topic.flush()


def topic_of(spark: SparkSession, url: str, **options: object) -> DataFrame:
    reader = spark.read.format("dataspace").option("url", url)
    for name, value in {**TOPIC, **options}.items():
        reader = reader.option(name, str(value))
    return reader.load()


def rows(frame: DataFrame) -> list[Row]:
    return [tuple(row) for row in frame.collect()]


@pytest.mark.slow
@pytest.mark.spark
def test_an_epoch_is_one_whole_of_all_partitions(
    spark: SparkSession, own_daemon: Daemon, checkpoint: Checkpoint
) -> None:
    seen = Seen()
    with dataspace.connect_blocking(own_daemon.url) as space:
        left = space.publish("t", durable=True, partitions=2, dimensions=2, retain=1 << 20)
        right = space.publish("t", durable=True, partitions=2, dimensions=2, partition=1, retain=1 << 20)
        with left as one, right as other:
            one.send(Record("at", 1), at=(0, 1))
            other.send(Record("at", 2), at=(1, 0))
            one.advance((1, 1))
            one.flush()
            frame = stream(spark, own_daemon.url, "at($n:int)", topic="t")
            with running(frame, seen, checkpoint()) as query:
                until(lambda: bool(query.recentProgress) or query.status["isDataAvailable"] is False, query)
                assert seen.rows == [], "the other partition may still send at (0, 1)"
                other.send(Record("at", 3), at=(0, 1))
                other.advance((1, 1))
                until(lambda: len(seen.rows) == 3, query)
    assert seen.rows == [
        (1, "message", 1, [0, 1], None, 0),
        (3, "message", 1, [0, 1], None, 1),
        (2, "message", 2, [1, 0], None, 0),
    ]


@pytest.mark.slow
@pytest.mark.spark
def test_a_topic_is_read_on_over_a_daemon_that_is_killed(
    spark: SparkSession, own_daemon: Daemon, checkpoint: Checkpoint
) -> None:
    seen = Seen()
    frame = stream(spark, own_daemon.url, "at($n:int)", topic="t", maxEpochsPerTrigger=2)
    publish(own_daemon.url, range(3))
    run_now(frame, seen, checkpoint())
    own_daemon.kill()
    own_daemon.start()
    publish(own_daemon.url, range(3, 5))
    run_now(frame, seen, checkpoint())
    assert [(row[0], row[2]) for row in seen.rows] == [(n, n + 1) for n in range(5)]
    assert [len(batch) for batch in seen.batches.values()] == [2, 1, 2]


@pytest.mark.slow
@pytest.mark.spark
def test_a_batch_read_begins_at_an_epoch_or_at_a_time(spark: SparkSession, own_daemon: Daemon) -> None:
    publish(own_daemon.url, range(10, 15))
    url = own_daemon.url
    every = rows(topic_of(spark, url))
    assert every == [(n, "message", n - 9, [n], None, 0) for n in range(10, 15)]
    assert rows(topic_of(spark, url, startingEpoch=4)) == every[3:]
    assert rows(topic_of(spark, url, startingEpoch="[12]", endingEpoch=4)) == every[2:4]
    (first, *_) = rows(topic_of(spark, url, pattern="", endingEpoch=1).select("item", "_seq"))
    assert first == ('{"@":"at","fields":[10]}', 0), "without a pattern every item comes, as JSON"


@pytest.mark.slow
@pytest.mark.spark
def test_a_topic_is_read_on_in_its_archive(
    spark: SparkSession, checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("zstandard", reason="the extra `archive` is not installed")
    monkeypatch.setenv("DATASPACE_SERVE_LOG_ARCHIVE_EVERY", "0.1")
    daemon, retain = DaemonProcess(tmp_path / "data", "--archive", str(tmp_path / "archive")), 1 << 14
    with running_daemons(daemon):
        publish(daemon.url, range(100), retain=retain)
        with BulkClient(daemon.url) as link:
            asked: dict[str, Any] = {"topic": "t", "detail": True}
            wait(
                lambda: cast(Any, link.request("lookup", asked))["retained_bytes"] <= retain, "it is archived"
            )
        expected = [(n, "message", n + 1, [n], None, 0) for n in range(100)]
        assert rows(topic_of(spark, daemon.url)) == expected
        assert rows(topic_of(spark, daemon.url, startingEpoch="[7]", endingEpoch=99)) == expected[7:99]
        seen = Seen()
        run_now(
            stream(spark, daemon.url, "at($n:int)", topic="t", maxEpochsPerTrigger=60), seen, checkpoint()
        )
        assert [row[0] for row in seen.rows] == [*range(100)]


@pytest.mark.slow
@pytest.mark.spark
def test_what_a_topic_does_not_retain_fails_a_query_unless_loss_is_accepted(
    spark: SparkSession, own_daemon: Daemon, checkpoint: Checkpoint
) -> None:
    publish(own_daemon.url, range(2), retain=600)
    frame = stream(spark, own_daemon.url, "at($n:int)", topic="t")
    run_now(frame, Seen(), checkpoint())
    publish(own_daemon.url, range(2, 40), retain=600)
    with pytest.raises(PySparkException, match=r"epochs 3 to 3\d are gone"):
        run_now(frame, Seen(), checkpoint())
    seen = Seen()
    tolerant = stream(spark, own_daemon.url, "at($n:int)", topic="t", failOnDataLoss="false")
    run_now(tolerant, seen, checkpoint())
    assert seen.rows[-1][0] == 39 and len(seen.rows) < 10
    with pytest.raises(PySparkException, match="no-topic"):
        rows(topic_of(spark, own_daemon.url, topic="u"))


def test_times_and_what_is_not_for_topics() -> None:
    given = {"pattern": "p($x)", "topic": "t"}
    assert stream_options(given).starts == ("earliest",)
    assert stream_options({**given, "startingEpoch": "[3, 4]"}).starts == ((3, 4),)
    assert read_options({"topic": "t"}).pattern == "$item"
    for name in ("asOfEpoch", "maxChangesPerTrigger"):
        options = read_options if name == "asOfEpoch" else stream_options
        with pytest.raises(dataspace.UsageError, match=f"option {name} is about the facts of a space"):
            options({**given, name: "1"})
    with pytest.raises(dataspace.UsageError, match=r"times such as \[12\]"):
        stream_options({**given, "startingEpoch": "snapshot"})


def test_an_epoch_that_crashed_says_why() -> None:
    from dataspace.client.completed import CompletedEpoch
    from index.patterns.patterns import matcher
    from relay.spark.common.schema import parsed

    epochs = [
        CompletedEpoch(1, 7, (Record("at", 1), Record("no", 1))),
        CompletedEpoch(2, 8, (Record("no", 2),)),
        CompletedEpoch(3, 9, (Record("at", 2), Record("at", 3)), "its producer is gone"),
    ]
    (made,) = _blocks(iter(epochs), matcher(parsed("at($n:int)")))
    assert isinstance(made, TopicBlock)
    pattern = "at($n:int)"
    rows = batch(made, columns(pattern, inferred(pattern, topic=True), topic=True)).to_pylist()
    assert [(row["n"], row["_epoch"], row["_time"], row["_crashed"], row["_seq"]) for row in rows] == [
        (1, 1, [7], None, 0),
        (2, 3, [9], "its producer is gone", 0),
        (3, 3, [9], "its producer is gone", 1),
    ]
