"""The sink makes each batch one epoch, once, and leaves nothing of what did not come to its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from dataspace.client.bulk.client import BulkClient
from dataspace.errors import Refused
from index.values.values import Map, Record
from relay.spark.common.options import sink_options
from relay.spark.sink.sink import Handed, StagedBatch, discard, publish
from tests.relay.spark.daemons import Daemon
from tests.relay.spark.queries import PATIENCE, read, stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.spark]

Checkpoint = Callable[[], str]


def write_now(
    frame: DataFrame, url: str, checkpoint: str, *, mode: str = "append", **options: object
) -> None:
    """Runs a query into the sink over all that is there, to its end; raises what ended it."""
    writer = frame.writeStream.format("dataspace").outputMode(mode).option("url", url)
    for name, value in options.items():
        writer = writer.option(name, str(value))
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    assert query.awaitTermination(int(PATIENCE)), "the query did not come to its end"


def test_append_asserts_retracts_and_sends_by_the_change_type(
    spark: SparkSession, daemon: Daemon, label: str, checkpoint: Checkpoint
) -> None:
    daemon.turn(f"+{label}(1)", f"+{label}(2)")
    frame = stream(spark, daemon.url, f"{label}($n:int)")
    write_now(frame, daemon.url, checkpoint(), template=f"copy-{label}($n)", writer=label)
    daemon.turn(f"-{label}(1)", f"!{label}(7)", f"+{label}(3)")
    write_now(frame, daemon.url, checkpoint(), template=f"copy-{label}($n)", writer=label)
    assert daemon.facts(f"copy-{label}($)") == [(2,), (3,)]
    kinds = [(kind, row) for kind, _, row in daemon.changes(f"copy-{label}($)")]
    assert kinds == [("+", (1,)), ("+", (2,)), ("+", (3,)), ("!", (7,)), ("-", (1,))]


def test_complete_replaces_the_set_and_touches_what_changed(
    spark: SparkSession, daemon: Daemon, label: str, checkpoint: Checkpoint
) -> None:
    daemon.turn(f'+{label}("a", 1)', f'+{label}("a", 2)', f'+{label}("b", 1)')
    counts = stream(spark, daemon.url, f"{label}($k:str, $n:int)").groupBy("k").count()
    options = {"mode": "complete", "label": f"total-{label}", "writer": label}
    write_now(counts, daemon.url, checkpoint(), **options)
    daemon.turn(f'+{label}("a", 3)')
    write_now(counts, daemon.url, checkpoint(), **options)
    assert daemon.facts(f"total-{label}($, $)") == [("a", 3), ("b", 1)]
    changes = daemon.changes(f"total-{label}($, $)")
    assert len({epoch for _, epoch, _ in changes}) == 2
    assert [(kind, row) for kind, _, row in changes][2:] == [("+", ("a", 3)), ("-", ("a", 2))]


@pytest.mark.parametrize("carry", [None, 0])
def test_every_type_of_spark_that_has_a_form_is_written(
    spark: SparkSession, daemon: Daemon, label: str, carry: int | None
) -> None:
    frame = spark.sql(
        "select date '2026-11-27' d, cast(1.5 as decimal(4, 2)) m, map('k', 1) p, named_struct('a', 1) s, "
        "named_struct('_label', 'at', 'x', 2) r, parse_json('{\"k\": [1]}') v, "
        "timestamp_ntz '2026-01-01 09:00:00' t"
    )
    writer = frame.write.format("dataspace").mode("append").option("url", daemon.url).option("label", label)
    if carry is not None:
        writer = writer.option("carryBytes", carry)
    writer.option("writer", label).save()
    (fact,) = daemon.facts(f"{label}($, $, $, $, $, $, $)")
    assert fact == (
        "2026-11-27",
        "1.50",
        Map([("k", 1)]),
        Map([("a", 1)]),
        Record("at", 2),
        Map([("k", (1,))]),
        "2026-01-01T09:00:00",
    )


@pytest.mark.parametrize("carry", [None, 0, 4_000])
def test_a_batch_is_one_epoch_whatever_its_partitions(
    spark: SparkSession, daemon: Daemon, label: str, carry: int | None
) -> None:
    """Whether they ride along, are staged, or some of them this and others that."""
    rows = spark.range(0, 9000, numPartitions=3).where("id < 6000 OR id >= 8000")
    write = rows.write.format("dataspace").mode("append").option("url", daemon.url).option("label", label)
    (write if carry is None else write.option("carryBytes", carry)).save()
    changes = daemon.changes(f"{label}($)")
    assert len({epoch for _, epoch, _ in changes}) == 1
    assert [row for _, _, row in changes] == [(at,) for at in (*range(6000), *range(8000, 9000))]


def test_a_batch_that_is_committed_again_changes_nothing_nor_does_what_is_late(
    daemon: Daemon, label: str
) -> None:
    """What a restarted query does when it was killed after the daemon had answered."""
    options = sink_options({"url": daemon.url, "label": label, "writer": label})
    batches = [StagedBatch(label, 0, run) for run in ("first", "second")]
    keys = [(*batch.attempt, "0") for batch in batches]
    epochs = []
    with BulkClient(daemon.url) as link:
        for batch, key in zip(batches, keys, strict=True):
            link.stage(key, [("send", Record(label, 1))])
            epochs.append(publish(options, batch, [Handed(batch, (key,))], owner=label, replace=False))
        for key in keys:
            with pytest.raises(Refused, match="published or discarded already"):
                link.stage(key, [("send", Record(label, 2))])
        discard(options, [Handed(StagedBatch(label, 1, "third"))])
        with pytest.raises(Refused, match="nothing more is staged"):
            link.stage((label, "1", "third", "0"), [("send", Record(label, 3))])
        link.stage((label, "1", "fourth", "0"), [("send", Record(label, 4))])
        link.discard((label,))
    assert epochs[0] == epochs[1]
    assert [kind for kind, _, _ in daemon.changes(f"{label}($)")] == ["!"]


def test_a_new_checkpoint_under_the_same_writer_is_no_replay(
    spark: SparkSession, daemon: Daemon, label: str, tmp_path: object
) -> None:
    daemon.turn(f"+{label}(1)")
    for name in ("one", "two"):
        frame = stream(spark, daemon.url, f"{label}($n:int)").selectExpr("n", "'message' AS _change_type")
        write_now(frame, daemon.url, f"{tmp_path}/{name}", label=f"seen-{label}", writer=label)
    assert [kind for kind, _, _ in daemon.changes(f"seen-{label}($)")] == ["!", "!"]


def test_a_failing_batch_leaves_nothing(
    spark: SparkSession, daemon: Daemon, label: str, checkpoint: Checkpoint
) -> None:
    daemon.turn(f"+{label}(1)")
    bad = stream(spark, daemon.url, f"{label}($n:int)").selectExpr("n", "'upsert' AS _change_type")
    with pytest.raises(PySparkException, match="_change_type is 'upsert' in"):
        write_now(bad, daemon.url, checkpoint(), label=f"copy-{label}")
    assert daemon.changes(f"copy-{label}($)") == []


def test_a_fact_may_move_between_partitions_within_a_batch(
    spark: SparkSession, daemon: Daemon, label: str
) -> None:
    rows = [(1, "delete"), (2, "insert"), (1, "insert")]
    frame = spark.createDataFrame(rows, "n bigint, _change_type string").repartition(3)
    write = frame.write.format("dataspace").mode("append").option("url", daemon.url)
    write.option("label", label).option("writer", label).save()
    assert daemon.facts(f"{label}($)") == [(2,)]


def test_a_batch_write_overwrites_the_set_of_the_writer_it_names(
    spark: SparkSession, daemon: Daemon, label: str
) -> None:
    daemon.turn(f"+{label}(100)")
    for count in (3, 2, 0):
        write = spark.range(count).write.format("dataspace").mode("overwrite").option("url", daemon.url)
        write.option("label", label).option("writer", label).save()
        assert daemon.facts(f"{label}($)") == sorted([(100,), *[(at,) for at in range(count)]], key=repr)
    with pytest.raises(PySparkException, match="say whose, with option writer"):
        spark.range(1).write.format("dataspace").mode("overwrite").option("label", label).save()


def test_a_repeatable_batch_write_happens_once(spark: SparkSession, daemon: Daemon, label: str) -> None:
    for version in (4, 4, 5):
        write = spark.range(1).selectExpr("id", "'message' AS _change_type").write.format("dataspace")
        write = write.mode("append").option("url", daemon.url).option("label", label)
        write.option("txnAppId", label).option("txnVersion", version).save()
    assert [kind for kind, _, _ in daemon.changes(f"{label}($)")] == ["!", "!"]


def test_values_without_a_class_go_through_spark_and_come_back_the_same(
    spark: SparkSession, daemon: Daemon, label: str, checkpoint: Checkpoint
) -> None:
    daemon.turn(f"+{label}(point(1, 2.5))", f'+{label}("a")', f"+{label}([1, null])")
    frame = stream(spark, daemon.url, f"{label}($x)").select("x")
    write_now(frame, daemon.url, checkpoint(), template=f"copy-{label}($x)")
    assert daemon.facts(f"copy-{label}($)") == daemon.facts(f"{label}($)")


def test_mistakes_are_named_before_anything_is_written(spark: SparkSession, daemon: Daemon) -> None:
    write = spark.range(1).write.format("dataspace").mode("append").option("url", daemon.url)
    with pytest.raises(PySparkException, match="either a template"):
        write.save()
    with pytest.raises(PySparkException, match=r"no column \$idd, did you mean \$id"):
        write.option("template", "p($idd)").save()


def test_the_facts_of_a_stream_are_read_back_as_a_frame(
    spark: SparkSession, daemon: Daemon, label: str
) -> None:
    write = spark.range(2).write.format("dataspace").mode("append").option("url", daemon.url)
    write.option("label", label).save()
    assert [row[0] for row in read(spark, daemon.url, f"{label}($n:int)", asOfEpoch="latest")] == [0, 1]
