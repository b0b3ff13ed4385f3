"""The source hands Spark exactly what an observer would be told, whatever is restarted in between."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from dataspace.client.bulk.client import BulkClient
from index.values.values import Map
from relay.spark.common.versions import ADMITS
from tests.relay.spark.daemons import Daemon
from tests.relay.spark.queries import PATIENCE, Seen, limited, read, run_now, running, stream, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.spark]

Checkpoint = Callable[[], str]


def test_a_stream_is_the_state_and_then_every_change(
    spark: SparkSession, daemon: Daemon, label: str, checkpoint: Checkpoint
) -> None:
    daemon.turn(f"+{label}(1)", f"+{label}(2)")
    first = daemon.turn(f"-{label}(1)", f"+{label}(3)")
    seen = Seen()
    with running(stream(spark, daemon.url, f"{label}($n:int)"), seen, checkpoint()) as query:
        until(lambda: len(seen.rows) == 2, query)
        assert seen.rows == [(2, "insert", first, 0), (3, "insert", first, 1)]
        second = daemon.turn(f"!{label}(9)", f"-{label}(2)", f"+{label}(4)")
        until(lambda: len(seen.rows) == 5, query)
    assert seen.rows[2:] == [
        (4, "insert", second, 0),
        (9, "message", second, 1),
        (2, "delete", second, 2),
    ]


def test_earliest_is_every_change_that_is_retained_and_a_number_those_from_it_on(
    spark: SparkSession, daemon: Daemon, label: str, checkpoint: Checkpoint, tmp_path: object
) -> None:
    first = daemon.turn(f"+{label}(1)")
    second = daemon.turn(f"-{label}(1)", f"+{label}(2)")
    seen, later = Seen(), Seen()
    run_now(stream(spark, daemon.url, f"{label}($n:int)", startingEpoch="earliest"), seen, checkpoint())
    assert seen.rows == [(1, "insert", first, 0), (2, "insert", second, 0), (1, "delete", second, 1)]
    numbered = stream(spark, daemon.url, f"{label}($n:int)", startingEpoch=second)
    run_now(numbered, later, f"{tmp_path}/later")
    assert later.rows == seen.rows[1:]


def test_rows_say_which_change_of_their_epoch_they_are(
    spark: SparkSession, daemon: Daemon, label: str
) -> None:
    epoch = daemon.turn(
        f"+{label}x()", f"+{label}(1, 1)", f"+{label}(1, 2)", f"!{label}x(1)", f"!{label}(7, 7)", "+other(1)"
    )
    later = daemon.turn(f"-{label}(1, 1)", f"-{label}x()", f"-{label}(1, 2)")
    assert read(spark, daemon.url, f"{label}($n:int, _)") == [
        (1, "insert", epoch, 1),
        (7, "message", epoch, 5),
        (1, "delete", later, 2),
    ]
    assert read(spark, daemon.url, f"{label}($n:int, $m:int)") == [
        (1, 1, "insert", epoch, 1),
        (1, 2, "insert", epoch, 2),
        (7, 7, "message", epoch, 5),
        (1, 1, "delete", later, 0),
        (1, 2, "delete", later, 2),
    ]


def test_a_schema_of_some_columns_has_the_rows_of_all(
    spark: SparkSession, daemon: Daemon, label: str
) -> None:
    """A capture that is not sent still tells facts apart."""
    daemon.turn(f"+{label}(1, 1)", f"+{label}(1, 2)", f"+{label}(2, 2)")
    reader = (
        spark.read.format("dataspace").option("url", daemon.url).option("pattern", f"{label}($n, $m:int)")
    )
    assert sorted(row.m for row in reader.schema("m int").load().collect()) == [1, 2, 2]
    assert reader.schema("_change_type string").load().count() == 3
    state = reader.option("asOfEpoch", "latest").schema("m int, _seq long").load()
    assert [tuple(row) for row in state.orderBy("_seq").collect()] == [(1, 0), (2, 1), (2, 2)]


def test_rows_say_since_when_they_are_there(
    spark: SparkSession, daemon: Daemon, label: str, checkpoint: Checkpoint
) -> None:
    first = daemon.turn(f"+{label}(1)", f"+{label}(2)")
    second = daemon.turn(f"-{label}(1)", f"!{label}(9)")
    pattern = f"{label}($n:int)"
    reader = spark.read.format("dataspace").option("url", daemon.url).option("pattern", pattern)
    few = reader.schema("n int, _change_type string, _asserted_epoch long")
    assert [tuple(row) for row in few.load().collect()] == [
        (1, "insert", first),
        (2, "insert", first),
        (9, "message", None),
        (1, "delete", first),
    ]
    assert [tuple(row) for row in few.option("asOfEpoch", second).load().collect()] == [(2, "insert", first)]
    seen = Seen()
    frame = stream(spark, daemon.url, pattern, includeAsserted=True, startingEpoch=second)
    assert frame.columns[-2:] == ["_asserted_epoch", "_asserted_at"]
    run_now(frame.drop("_asserted_at"), seen, checkpoint())
    assert seen.rows == [(9, "message", second, 0, None), (1, "delete", second, 1, first)]
    third = daemon.turn(f"-{label}(2)")
    run_now(frame.drop("_asserted_at"), seen, checkpoint())
    assert (2, "delete", third, 0, first) in seen.rows


def test_a_daemon_that_is_added_begins_like_a_new_query(
    spark: SparkSession, daemon: Daemon, own_daemon: Daemon, label: str, checkpoint: Checkpoint
) -> None:
    daemon.turn(f"+{label}(1)")
    own_daemon.turn(f"+{label}(2)")

    def read_on(*urls: str) -> list[object]:
        seen = Seen()
        run_now(stream(spark, ",".join(urls), f"{label}($n:int)").select("n"), seen, checkpoint())
        return sorted(row[0] for row in seen.rows)  # type: ignore[type-var]  # numbers

    assert read_on(daemon.url) == [1]
    daemon.turn(f"+{label}(3)")
    assert read_on(own_daemon.url, daemon.url) == [2, 3]
    own_daemon.turn(f"+{label}(4)")
    assert read_on(own_daemon.url, daemon.url) == [4]


def test_a_stopped_query_goes_on_from_its_checkpoint(
    spark: SparkSession, daemon: Daemon, label: str, checkpoint: Checkpoint
) -> None:
    seen = Seen()
    for at in range(3):
        daemon.turn(f"+{label}({at})")
        run_now(stream(spark, daemon.url, f"{label}($n:int)"), seen, checkpoint())
    assert [row[:2] for row in seen.rows] == [(0, "insert"), (1, "insert"), (2, "insert")]


@pytest.mark.parametrize("start", ["latest", "snapshot"])
def test_batch_0_is_the_same_when_it_is_tried_again_later(
    spark: SparkSession, daemon: Daemon, label: str, checkpoint: Checkpoint, start: str
) -> None:
    """Spark asks for the beginning again, and by then both the latest epoch and the state are others."""
    daemon.turn(f"+{label}(0)")
    failing = Seen(fail_on=0)
    frame = stream(spark, daemon.url, f"{label}($n:int)", startingEpoch=start)
    with running(frame, failing, checkpoint()) as query:
        if start == "latest":
            until(lambda: bool(query.recentProgress) or not query.isActive)
            daemon.turn(f"+{label}(1)")
        until(lambda: not query.isActive)
    daemon.turn(f"+{label}(2)", f"-{label}(0)")
    again = Seen()
    for _ in range(1 if ADMITS else 2):  # older versions end with the batch that is tried again
        run_now(stream(spark, daemon.url, f"{label}($n:int)", startingEpoch=start), again, checkpoint())
    assert again.batches[0] == failing.batches[0]
    begun = [(1, "insert")] if start == "latest" else [(0, "insert")]
    assert [row[:2] for row in again.rows] == [*begun, (2, "insert"), (0, "delete")]


@limited
def test_a_batch_holds_no_more_epochs_than_it_may(
    spark: SparkSession, own_daemon: Daemon, checkpoint: Checkpoint
) -> None:
    for at in range(7):
        own_daemon.turn(f"+p({at})")
    seen = Seen()
    frame = stream(spark, own_daemon.url, "p($n:int)", startingEpoch="earliest", maxEpochsPerTrigger=3)
    query = run_now(frame, seen, checkpoint())
    assert [[row[0] for row in batch] for batch in seen.batches.values()] == [[0, 1, 2], [3, 4, 5], [6]]
    assert '"epoch":7' in str(query.lastProgress).replace(" ", "").replace("'", '"')


@limited
def test_a_batch_holds_no_more_changes_than_it_may_but_never_splits_an_epoch(
    spark: SparkSession, own_daemon: Daemon, checkpoint: Checkpoint
) -> None:
    for at, size in enumerate((1, 1, 5, 2, 1)):
        own_daemon.turn(*[f"+p({at}, {which})" for which in range(size)])
    seen = Seen()
    frame = stream(spark, own_daemon.url, "p($n:int, $)", startingEpoch="earliest", maxChangesPerTrigger=3)
    run_now(frame, seen, checkpoint())
    assert [len(batch) for batch in seen.batches.values()] == [2, 5, 3]


@limited
def test_a_snapshot_comes_in_parts_and_a_query_that_failed_in_the_middle_goes_on(
    spark: SparkSession, own_daemon: Daemon, checkpoint: Checkpoint
) -> None:
    own_daemon.turn(*[f"+p({at}, {at % 7})" for at in range(11)])
    place, options = checkpoint(), {"maxChangesPerTrigger": 4, "minPartitions": 2}
    first = Seen(fail_on=1)
    with pytest.raises(PySparkException, match="the test fails this batch"):
        run_now(stream(spark, own_daemon.url, "p($n:int, $m:int)", **options), first, place)
    own_daemon.turn("+p(90, 0)", "-p(3, 3)")
    seen = Seen()
    run_now(stream(spark, own_daemon.url, "p($n:int, $m:int)", **options), seen, place)
    assert seen.batches[1] == first.batches[1]
    rows = [*first.batches[0], *seen.rows]
    assert [len(first.batches[0]), *map(len, seen.batches.values())] == [4, 4, 3, 2]
    assert sorted(row[:4] for row in rows[:11]) == [(at, at % 7, "insert", 1) for at in range(11)]
    assert sorted(row[4] for row in rows[:11]) == list(range(11))  # type: ignore[type-var]
    assert [row[:4] for row in rows[11:]] == [(90, 0, "insert", 2), (3, 3, "delete", 2)]


def test_a_batch_may_be_read_in_several_partitions(spark: SparkSession, own_daemon: Daemon) -> None:
    for at in range(80):
        own_daemon.turn(f"+p({at})", *([f"-p({at - 1})"] if at else []))
    reader = spark.read.format("dataspace").option("url", own_daemon.url).option("pattern", "p($n:int)")
    frame = reader.option("minPartitions", 4).load()
    assert frame.rdd.getNumPartitions() == 4
    rows = [tuple(row) for row in frame.orderBy("_epoch", "_seq").drop("_epoch_timestamp").collect()]
    assert rows == read(spark, own_daemon.url, "p($n:int)") and len(rows) == 159


@limited
def test_a_named_reader_tells_the_daemon_how_far_it_has_come(
    spark: SparkSession, own_daemon: Daemon, checkpoint: Checkpoint
) -> None:
    for at in range(4):
        own_daemon.turn(f"+p({at})")
    options = {"startingEpoch": "earliest", "maxEpochsPerTrigger": 1, "readerName": "nightly"}
    run_now(stream(spark, own_daemon.url, "p($n:int)", **options), Seen(), checkpoint())
    with BulkClient(own_daemon.url) as link:
        status = link._ask("status", {})  # what `dataspace status` asks
    assert isinstance(status, Map) and status["readers"] == Map({"nightly": 3})


def test_two_daemons_are_one_stream(
    spark: SparkSession, own_daemon: Daemon, tmp_path: Path, checkpoint: Checkpoint
) -> None:
    with Daemon(tmp_path / "other") as other:
        urls = f"{own_daemon.url},{other.url}"
        own_daemon.turn("+p(1)")
        seen, later = Seen(), Seen()
        run_now(stream(spark, urls, "p($n:int)"), seen, checkpoint())
        assert seen.rows == [(1, "insert", 1, 0, own_daemon.url)]
        other.turn("+p(2)")
        own_daemon.turn("-p(1)")
        run_now(stream(spark, urls, "p($n:int)"), later, checkpoint())
        assert sorted(later.rows) == [(1, "delete", 2, 0, own_daemon.url), (2, "insert", 1, 0, other.url)]
        assert [row[:2] for row in read(spark, urls, "p($n:int)", asOfEpoch="latest")] == [(2, "insert")]
        then = json.dumps({own_daemon.url: 1, other.url: 0})
        assert [row[:2] for row in read(spark, urls, "p($n:int)", asOfEpoch=then)] == [(1, "insert")]
        with pytest.raises(PySparkException, match="the checkpoint is of 2 daemons, url names 1"):
            run_now(stream(spark, other.url, "p($n:int)"), Seen(), checkpoint())


def test_a_checkpoint_of_another_pattern_is_refused(
    spark: SparkSession, daemon: Daemon, label: str, checkpoint: Checkpoint
) -> None:
    daemon.turn(f"+{label}(1)")
    run_now(stream(spark, daemon.url, f"{label}($n:int)"), Seen(), checkpoint())
    with pytest.raises(PySparkException, match="the checkpoint is of the pattern"):
        run_now(stream(spark, daemon.url, f"{label}($n)"), Seen(), checkpoint())


def test_nested_facts_whole_facts_and_facts_that_do_not_fit(
    spark: SparkSession, daemon: Daemon, label: str
) -> None:
    whole = f'{label}(point(1, 2), ["a", "b"], {{"k": 1.5}})'
    daemon.turn(f"+{whole}", f"+{label}(point(1), [], {{}})")
    reader = spark.read.format("dataspace").option("url", daemon.url).option("malformed", "drop")
    reader = reader.option("pattern", f"{label}($p:record, $t:seq, $m:map)")
    frame = reader.schema(
        "p struct<x: bigint, y: bigint>, t array<string>, m map<string, double>, _value string"
    ).load()
    (row,) = frame.selectExpr("p.x + p.y", "t", "m['k']", "_value").collect()
    assert tuple(row) == (3, ["a", "b"], 1.5, whole)


def test_a_query_outlives_the_daemon(spark: SparkSession, own_daemon: Daemon, checkpoint: Checkpoint) -> None:
    seen = Seen()
    own_daemon.turn("+p(1)")
    with running(stream(spark, own_daemon.url, "p($n:int)"), seen, checkpoint()) as query:
        until(lambda: len(seen.rows) == 1, query)
        own_daemon.kill()
        own_daemon.start()
        own_daemon.turn("+p(2)")
        until(lambda: len(seen.rows) == 2, query)
    assert [row[0] for row in seen.rows] == [1, 2]


@limited
def test_limits_and_offsets_step_over_numbers_that_a_crash_took(
    spark: SparkSession, own_daemon: Daemon, checkpoint: Checkpoint
) -> None:
    """Numbers that were reserved and never used leave a gap; an offset may fall into it."""
    seen = Seen()
    own_daemon.turn("+p(0)")
    for at in (1, 2):
        own_daemon.kill()
        own_daemon.start()
        own_daemon.turn(f"+p({at})")
    frame = stream(spark, own_daemon.url, "p($n:int)", startingEpoch="earliest", maxEpochsPerTrigger=700)
    run_now(frame, seen, checkpoint())
    assert [row[0] for row in seen.rows] == [0, 1, 2]


def test_an_unreachable_daemon_is_an_error_that_says_so(spark: SparkSession, checkpoint: Checkpoint) -> None:
    nobody = stream(spark, "tcp://127.0.0.1:9", "p($n:int)", connectTimeout="200ms")
    with pytest.raises(PySparkException, match=r"no daemon at tcp://127\.0\.0\.1:9 .* waited 0\.2 s"):
        run_now(nobody, Seen(), checkpoint())


def test_another_space_at_the_address_fails_the_query_unless_loss_is_accepted(
    spark: SparkSession, tmp_path: Path, checkpoint: Checkpoint
) -> None:
    with Daemon(tmp_path / "one") as one:
        one.turn("+p(1)")
        run_now(stream(spark, one.url, "p($n:int)"), Seen(), checkpoint())
    with Daemon(tmp_path / "two", port=one.port) as other:
        other.turn("+p(2)")
        with pytest.raises(PySparkException, match="the dataspace is not the one that was read before"):
            run_now(stream(spark, other.url, "p($n:int)"), Seen(), checkpoint())
        seen = Seen()
        run_now(stream(spark, other.url, "p($n:int)", failOnDataLoss="false"), seen, checkpoint())
        assert [row[:2] for row in seen.rows] == [(2, "insert")]


def test_mistakes_are_named_before_anything_runs(spark: SparkSession, daemon: Daemon) -> None:
    with pytest.raises(PySparkException, match="did you mean startingEpoch"):
        stream(spark, daemon.url, "p($n:int)", startingEpochs="latest")
    with pytest.raises(PySparkException, match="option pattern"):
        stream(spark, daemon.url, "p($n:int")
    with pytest.raises(PySparkException, match="startingEpoch 1000000 has not come yet"):
        run_now(stream(spark, daemon.url, "p($n:int)", startingEpoch=1_000_000), Seen(), "/tmp/unused")


def test_a_fact_that_does_not_fit_its_column_fails_the_query_by_name(
    spark: SparkSession, daemon: Daemon, label: str
) -> None:
    daemon.turn(f"+{label}(9223372036854775808)")
    with pytest.raises(PySparkException, match="int 9223372036854775808 for column n"):
        read(spark, daemon.url, f"{label}($n:int)")


def test_a_batch_reads_changes_or_a_state(spark: SparkSession, daemon: Daemon, label: str) -> None:
    pattern = f"{label}($n:int)"
    first = daemon.turn(f"+{label}(1)", f"+{label}(2)")
    second = daemon.turn(f"-{label}(1)")
    third = daemon.turn(f"+{label}(3)")
    inserts = [(1, "insert", first, 0), (2, "insert", first, 1)]
    assert read(spark, daemon.url, pattern, endingEpoch=second) == [*inserts, (1, "delete", second, 0)]
    assert read(spark, daemon.url, pattern, startingEpoch=third) == [(3, "insert", third, 0)]
    assert read(spark, daemon.url, pattern, asOfEpoch=first) == inserts
    assert [row[0] for row in read(spark, daemon.url, pattern, asOfEpoch="latest")] == [2, 3]
    with pytest.raises(PySparkException, match="has not come yet"):
        read(spark, daemon.url, pattern, asOfEpoch=1_000_000)


def test_an_empty_space_is_an_empty_frame(spark: SparkSession, own_daemon: Daemon) -> None:
    assert read(spark, own_daemon.url, "p($x)") == []
    assert read(spark, own_daemon.url, "p($x)", asOfEpoch="latest") == []


def test_a_given_schema_chooses_and_types_columns(spark: SparkSession, daemon: Daemon, label: str) -> None:
    daemon.turn(f'+{label}("a", 1.5, b"xy", true, @2026-01-01T00:00:00Z)')
    reader = spark.read.format("dataspace").option("url", daemon.url)
    frame = reader.option("pattern", f"{label}($s, $f:float, $y:bytes, $b:bool, $t:time)").schema(
        "f double, s string, y binary, b boolean, t timestamp"
    )
    (row,) = frame.load().selectExpr("*", "unix_seconds(t) AS seconds").drop("t").collect()
    assert tuple(row) == (1.5, "a", b"xy", True, 1767225600)


def test_a_filter_on_one_use_of_a_frame_does_not_leak_into_another(
    spark: SparkSession, daemon: Daemon, label: str
) -> None:
    daemon.turn(*[f"+{label}({at})" for at in range(10)])
    reader = spark.read.format("dataspace").option("url", daemon.url)
    frame = reader.option("pattern", f"{label}($n:int)").load()
    assert (frame.filter("n < 3").count(), frame.count()) == (3, 10)


def test_a_large_epoch_comes_whole_and_in_order(spark: SparkSession, daemon: Daemon, label: str) -> None:
    from index.values.values import Record

    daemon.turn_of([("assert", Record(label, at)) for at in range(15_000)])
    rows = read(spark, daemon.url, f"{label}($n:int)", arrowBatchRows=4000)
    assert [(row[0], row[-1]) for row in rows] == [(at, at) for at in range(15_000)]


def test_reading_announces_no_interest(spark: SparkSession, daemon: Daemon, label: str) -> None:
    with BulkClient(daemon.url) as link:
        before = link.frontier().epoch
    assert read(spark, daemon.url, f"{label}($n:int)") == []
    with BulkClient(daemon.url) as link:
        assert link.frontier().epoch == before


def test_a_daemon_that_is_away_does_not_hold_up_another(
    spark: SparkSession, own_daemon: Daemon, tmp_path: Path, checkpoint: Checkpoint
) -> None:
    with Daemon(tmp_path / "other") as other:
        urls = f"{other.url},{own_daemon.url}"
        seen, patient = Seen(), {"connectTimeout": f"{PATIENCE}s", "startingEpoch": "earliest"}
        other.turn("+p(1)")
        with running(stream(spark, urls, "p($n:int)", **patient), seen, checkpoint()) as query:
            until(lambda: len(seen.rows) == 1, query)
            other.kill()
            for n in (2, 3):
                own_daemon.turn(f"+p({n})")
                until(lambda n=n: len(seen.rows) == n, query)  # type: ignore[misc]
            other.start()
            other.turn("+p(4)")
            until(lambda: len(seen.rows) == 4, query)
        assert [row[0] for row in seen.rows] == [1, 2, 3, 4]
