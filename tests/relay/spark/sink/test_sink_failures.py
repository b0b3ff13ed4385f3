"""What the sink does when something goes wrong: with rows, with writers, with the daemon, with the query."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

import dataspace.spark
from dataspace.faults import VARIABLE
from tests.relay.spark.daemons import Daemon
from tests.relay.spark.queries import PATIENCE, stream, until
from tests.relay.spark.sink.test_sink import Checkpoint, write_now

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.slow, pytest.mark.spark]

POINTS: tuple[str, ...] = ("spark-after-stage", "spark-after-commit")
"""The moments of a batch at which a death could cost or double something."""
if "TORTURE_ROUNDS" in os.environ:
    POINTS = ("spark-before-stage", "spark-before-commit", *POINTS)


def staged(daemon: Daemon) -> int:
    """How many parts the daemon has staged."""
    with sqlite3.connect(daemon.data / "staged.sqlite") as connection:
        return int(connection.execute("SELECT count(*) FROM staged").fetchone()[0])


def write(frame: DataFrame, daemon: Daemon, **options: object) -> None:
    writer = frame.write.format("dataspace").mode("append").option("url", daemon.url)
    for name, value in options.items():
        writer = writer.option(name, str(value))
    writer.save()


def test_what_other_tasks_staged_goes_with_the_batch(spark: SparkSession, own_daemon: Daemon) -> None:
    late = "left(reflect('java.lang.Thread', 'sleep', 2000L), 0)"  # so that the other task has staged by then
    kind = f"IF(id = 15000, concat('upsert', {late}), 'insert') AS _change_type"
    rows = spark.range(0, 20_000, numPartitions=2).selectExpr("id", kind)
    with pytest.raises(PySparkException, match=r"_change_type is 'upsert' in \(15000, 'upsert'\)"):
        write(rows, own_daemon, label="p", carryBytes=0)
    assert own_daemon.changes("p($)") == []
    assert staged(own_daemon) == 0
    write(rows.where("id < 15000"), own_daemon, label="p", carryBytes=0)
    assert staged(own_daemon) == 0


def test_a_key_that_is_nan_fails_with_its_row(spark: SparkSession, daemon: Daemon, label: str) -> None:
    rows = spark.sql("SELECT * FROM VALUES (1.5D, 'a'), (double('NaN'), 'b') AS t(k, n)")
    with pytest.raises(PySparkException, match=r"column k is NaN, which is no key, in the row \(nan, 'b'\)"):
        write(rows, daemon, label=label, keyColumns="k")
    write(rows, daemon, label=label, keyColumns="k", deadLetter=f"dead-{label}")
    assert daemon.facts(f"{label}($, $)") == [(1.5, "a")]
    ((_, _, (_, why)),) = daemon.changes(f"dead-{label}($, $)")
    assert "which is no key" in str(why)


def test_two_rows_of_one_key_fail_the_batch_with_both(
    spark: SparkSession, daemon: Daemon, label: str
) -> None:
    rows = spark.sql("SELECT * FROM VALUES ('a', 1), ('a', 2), ('b', 3) AS t(k, n)").repartition(3)
    with pytest.raises(PySparkException, match=r"two facts with one key, .*'a'.*publish one of them"):
        write(rows, daemon, label=label, keyColumns="k")
    assert daemon.changes(f"{label}($, $)") == []
    write(rows.where("n > 1"), daemon, label=label, keyColumns="k")
    assert daemon.facts(f"{label}($, $)") == [("a", 2), ("b", 3)]


def test_a_stream_replaces_by_key(
    spark: SparkSession, daemon: Daemon, label: str, checkpoint: Checkpoint
) -> None:
    for degrees in (20, 21):
        daemon.turn(f'!{label}("hall", {degrees})', f'!{label}("attic", {degrees + 5})')
        readings = stream(spark, daemon.url, f"{label}($room:str, $degrees:int)", startingEpoch="earliest")
        newest = readings.selectExpr("room", "degrees")
        write_now(newest, daemon.url, checkpoint(), label=f"now-{label}", keyColumns="room", writer=label)
    assert daemon.facts(f"now-{label}($, $)") == [("attic", 26), ("hall", 21)]
    kinds = [kind for kind, _, _ in daemon.changes(f"now-{label}($, $)")]
    assert kinds == ["+", "+", "+", "+", "-", "-"]


def test_of_two_queries_with_one_writer_the_one_that_began_first_fails(
    spark: SparkSession, daemon: Daemon, label: str, tmp_path: Path
) -> None:
    def counts(name: str) -> None:
        frame = stream(spark, daemon.url, f"{label}($n:int)").groupBy().count()
        write_now(frame, daemon.url, str(tmp_path / name), mode="complete", label=name, writer=label)

    daemon.turn(f"+{label}(1)")
    counts(f"one-{label}")
    counts(f"two-{label}")
    daemon.turn(f"+{label}(2)")
    with pytest.raises(StreamingQueryException, match=f"writer '{label}' has been written to by spark:"):
        counts(f"one-{label}")
    counts(f"two-{label}")
    assert daemon.facts(f"two-{label}($)") == [(2,)]
    write(spark.range(1), daemon, label=f"more-{label}", writer=label)  # unnumbered: it keeps no account
    daemon.turn(f"+{label}(3)")
    counts(f"two-{label}")
    assert daemon.facts(f"two-{label}($)") == [(3,)]


def test_a_daemon_that_is_away_for_longer_than_told_ends_the_query_which_goes_on_later(
    spark: SparkSession, own_daemon: Daemon, checkpoint: Checkpoint
) -> None:
    def start() -> StreamingQuery:
        frame = stream(spark, own_daemon.url, "p($n:int)", connectTimeout="20s")
        writer = frame.writeStream.format("dataspace").option("url", own_daemon.url).option("label", "q")
        writer = writer.option("writer", "q").option("connectTimeout", "1s")
        return writer.option("checkpointLocation", checkpoint()).start()

    own_daemon.turn("+p(1)")
    query = start()
    try:
        until(lambda: own_daemon.facts("q($)") == [(1,)], query)
        own_daemon.kill()
        own_daemon.start()
        own_daemon.turn("+p(2)")
        until(lambda: own_daemon.facts("q($)") == [(1,), (2,)], query)
    finally:
        query.stop()
    own_daemon.turn("+p(3)")
    own_daemon.kill()
    with pytest.raises(PySparkException, match=re.escape(f"no daemon at {own_daemon.url}")):
        write(spark.range(1), own_daemon, label="q", connectTimeout="1s")
    own_daemon.start()
    query = start()
    try:
        until(lambda: own_daemon.facts("q($)") == [(1,), (2,), (3,)], query)
    finally:
        query.stop()
    assert [kind for kind, _, _ in own_daemon.changes("q($)")] == ["+", "+", "+"]


@pytest.fixture
def dying(spark: SparkSession) -> Iterator[Callable[[str | None], None]]:
    """Has the processes of Spark that use the format from then on die at a named point, or no longer."""
    environment = spark.sparkContext.environment

    def die(point: str | None) -> None:
        environment.pop(VARIABLE, None)
        if point is not None:
            environment[VARIABLE] = f"{point}:1"
        dataspace.spark.register(spark)

    yield die
    die(None)


@pytest.mark.torture
def test_a_batch_whose_process_dies_at_whatever_point_happens_once(
    spark: SparkSession,
    daemon: Daemon,
    label: str,
    checkpoint: Checkpoint,
    dying: Callable[[str | None], None],
) -> None:
    """Spark lives on, and aborts the batch, even one that the daemon has published.

    What one run has staged may ride along in the next one, and the other way round.
    """

    def run(carry: int) -> None:
        changes = stream(spark, daemon.url, f"{label}($n:int)").selectExpr("n", "'message' AS _change_type")
        write_now(changes, daemon.url, checkpoint(), label=f"copy-{label}", carryBytes=carry)

    for number, point in enumerate(POINTS):
        daemon.turn(f"+{label}({number})")
        dying(point)
        with pytest.raises(PySparkException):
            run(carry=1000 * (number % 2 == 0))
        published = daemon.changes(f"copy-{label}($)")
        assert len(published) == (point == POINTS[-1]), point
    dying(None)
    run(carry=1000)
    messages = [(kind, row) for kind, _, row in daemon.changes(f"copy-{label}($)")]
    assert messages == [("!", (number,)) for number in range(len(POINTS))]


def owned(spark: SparkSession, daemon: Daemon, checkpoint: str) -> StreamingQuery:
    """A query that writes facts of its own, and fails when there is a ``p(0)``."""
    frame = stream(spark, daemon.url, "p($n:int)")
    frame = frame.selectExpr("n", "IF(n = 0, 'upsert', _change_type) AS _change_type")
    writer = frame.writeStream.format("dataspace").option("url", daemon.url).option("label", "q")
    return writer.option("owner", "query").option("checkpointLocation", checkpoint).start()


def test_facts_of_a_query_go_when_it_fails(
    spark: SparkSession, own_daemon: Daemon, checkpoint: Callable[[], str]
) -> None:
    own_daemon.turn("+p(1)")
    query = owned(spark, own_daemon, checkpoint())
    kept = dataspace.spark.keep(query, url=own_daemon.url)
    until(lambda: own_daemon.facts("q($)") == [(1,)], query)
    own_daemon.turn("+p(0)")
    with pytest.raises(StreamingQueryException, match="_change_type is 'upsert'"):
        query.awaitTermination(int(PATIENCE))
    kept.join(PATIENCE)
    until(lambda: own_daemon.facts("q($)") == [])


def test_facts_of_a_query_go_when_everything_is_killed(own_daemon: Daemon, tmp_path: Path) -> None:
    own_daemon.turn("+p(1)")
    program = subprocess.Popen(
        [sys.executable, "-m", "tests.relay.spark.owned", own_daemon.url, str(tmp_path / "checkpoint")],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        until(lambda: own_daemon.facts("q($)") == [(1,)])
        time.sleep(3)  # longer than the lease
        assert own_daemon.facts("q($)") == [(1,)]
    finally:
        os.killpg(program.pid, signal.SIGKILL)
        program.wait(PATIENCE)
    until(lambda: own_daemon.facts("q($)") == [])
