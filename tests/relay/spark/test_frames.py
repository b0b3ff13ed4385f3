"""What people call: a frame, the state that holds, results in update mode, and facts that go with a query."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

import dataspace.spark
from dataspace.errors import UsageError
from tests.relay.spark.daemons import Daemon
from tests.relay.spark.queries import PATIENCE, until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.spark]

Checkpoint = Callable[[], str]


def test_the_current_state_is_the_newest_fact_of_each_key(
    spark: SparkSession, daemon: Daemon, label: str
) -> None:
    daemon.turn(f'+{label}("a", 1)', f'+{label}("b", 1)', f'+{label}("c", 1)')
    daemon.turn(f'+{label}("a", 2)', f'-{label}("a", 1)', f'-{label}("c", 1)', f'!{label}("b", 9)')
    changes = dataspace.spark.frame(spark, f"{label}($k:str, $n:int)", url=daemon.url)
    state = dataspace.spark.current_state(changes, ["k"])
    assert sorted((row["k"], row["n"]) for row in state.collect()) == [("a", 2), ("b", 1)]
    with pytest.raises(UsageError, match="a state needs keys"):
        dataspace.spark.current_state(changes, [])


def run(frame: DataFrame, checkpoint: str, mode: str, write: Callable[..., None]) -> None:
    writer = frame.writeStream.outputMode(mode).foreachBatch(write).trigger(availableNow=True)
    query = writer.option("checkpointLocation", checkpoint).start()
    assert query.awaitTermination(int(PATIENCE))


def test_update_mode_replaces_by_key_and_once(
    spark: SparkSession, daemon: Daemon, label: str, checkpoint: Checkpoint
) -> None:
    daemon.turn(f'+{label}("a", 1)', f'+{label}("a", 2)', f'+{label}("b", 1)')
    changes = dataspace.spark.frame(spark, f"{label}($k:str, $n:int)", url=daemon.url, stream=True)
    counts = changes.groupBy("k").agg(F.count("*").alias("n"))
    write = dataspace.spark.updates(
        url=daemon.url, template=f"count-{label}($k, $n)", keyColumns="k", writer=label
    )
    run(counts, checkpoint(), "update", write)
    daemon.turn(f'+{label}("a", 3)')
    run(counts, checkpoint(), "update", write)
    assert daemon.facts(f"count-{label}($, $)") == [("a", 3), ("b", 1)]
    written = [(kind, row) for kind, _, row in daemon.changes(f"count-{label}($, $)")]
    assert written[2:] == [("+", ("a", 3)), ("-", ("a", 2))]


def test_the_same_batch_twice_is_one_turn(spark: SparkSession, daemon: Daemon, label: str) -> None:
    write = dataspace.spark.updates(url=daemon.url, label=label, writer=label, name=label)
    for _ in range(2):
        write(spark.range(2), 0)
    assert [row for _, _, row in daemon.changes(f"{label}($)")] == [(0,), (1,)]
    with pytest.raises(UsageError, match=r"give updates\(name=…\)"):
        dataspace.spark.updates(url=daemon.url, label=label)(spark.range(2), 0)


def test_facts_of_a_query_go_with_it(spark: SparkSession, own_daemon: Daemon, checkpoint: Checkpoint) -> None:
    own_daemon.turn("+p(1)")
    frame = dataspace.spark.frame(spark, "p($n:int)", url=own_daemon.url, stream=True)
    writer = frame.writeStream.format("dataspace").option("url", own_daemon.url).option("label", "q")
    writer = writer.option("owner", "query").option("checkpointLocation", checkpoint())
    query = writer.start()
    kept = dataspace.spark.keep(query, url=own_daemon.url)
    try:
        until(lambda: own_daemon.facts("q($)") == [(1,)], query)
    finally:
        query.stop()
    kept.join(PATIENCE)
    until(lambda: own_daemon.facts("q($)") == [])  # it is told when it is done, and on disk a moment later


def test_facts_of_a_query_that_nobody_keeps_go_when_the_lease_ends(
    spark: SparkSession, own_daemon: Daemon, checkpoint: Checkpoint
) -> None:
    own_daemon.turn("+p(1)")
    frame = dataspace.spark.frame(spark, "p($n:int)", url=own_daemon.url, stream=True)
    writer = frame.writeStream.format("dataspace").option("url", own_daemon.url).option("label", "q")
    writer = writer.option("owner", "query").option("lease", "200ms").trigger(availableNow=True)
    assert writer.option("checkpointLocation", checkpoint()).start().awaitTermination(int(PATIENCE))
    until(lambda: own_daemon.facts("q($)") == [])
    assert [kind for kind, _, _ in own_daemon.changes("q($)")] == ["+", "-"]


def test_messages_keys_and_dead_letters(spark: SparkSession, daemon: Daemon, label: str) -> None:
    def write(frame: DataFrame, **options: str) -> None:
        writer = frame.write.format("dataspace").mode("append").option("url", daemon.url)
        for name, value in options.items():
            writer = writer.option(name, value)
        writer.save()

    rows = spark.sql("SELECT * FROM VALUES ('a', 1), ('b', NULL) AS t(k, n)")
    write(rows, **{"as": "message", "label": f"m-{label}"})
    assert [kind for kind, _, _ in daemon.changes(f"m-{label}($, $)")] == ["!", "!"]
    with pytest.raises(PySparkException, match="column n is None, which is not the int that the template"):
        write(rows, template=f"t-{label}($k, $n:int)")
    write(rows, template=f"t-{label}($k, $n:int)", deadLetter=f"dead-{label}")
    assert daemon.facts(f"t-{label}($, $)") == [("a", 1)]
    ((kind, _, (row, why)),) = daemon.changes(f"dead-{label}($, $)")
    assert kind == "!" and '"k": "b"' in str(row) and "column n is None" in str(why)
    with pytest.raises(PySparkException, match="column n is None, which is not a key"):
        write(rows, label=f"k-{label}", keyColumns="n")


def test_a_frame_of_some_columns_has_the_rows_of_all(spark: SparkSession, daemon: Daemon, label: str) -> None:
    daemon.turn(f'+{label}("a", 1)', f'+{label}("a", 2)')
    pattern = f"{label}($k:str, $n:int)"
    few = dataspace.spark.frame(spark, pattern, url=daemon.url, columns=["_daemon", "k"])
    assert [tuple(row) for row in few.collect()] == [(daemon.url, "a")] * 2
    with pytest.raises(UsageError, match=r"column kk is none of the pattern's, did you mean k\?"):
        dataspace.spark.frame(spark, pattern, url=daemon.url, columns=["kk"])
    with pytest.raises(UsageError, match="schema and columns both say"):
        dataspace.spark.frame(spark, pattern, url=daemon.url, columns=["k"], schema="k string")
