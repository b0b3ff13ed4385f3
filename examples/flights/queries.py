"""The queries: what Spark makes of the flights, as a stream and at the end.

*Airborne* keeps the number in the air by origin and writes it back as facts ``airborne(origin, n)``, the
whole set replaced with each batch.  *Kept* writes every change once to Parquet files, from which the final
figures are taken: a prefix sum needs all rows in order, which no stream has until it is over.

A flight is identified by carrier, number, origin and scheduled time; that is what the pattern captures, since
an observer of fewer captures would be told of the first and the last flight of a kind only.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypedDict

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession, functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.window import Window

from dataspace.spark import configure, register
from examples.flights.delays import DEPARTED, HOUR, Hours
from examples.flights.expected import Figures

_CAPTURES: Final = "($carrier:str, $number:int, _, $origin:str, _, $scheduled:time)"
FLIGHT: Final = "flight" + _CAPTURES
CANCELLED: Final = "cancelled" + _CAPTURES
DIVERTED: Final = "diverted" + _CAPTURES
AIRBORNE: Final = "airborne($origin, $n)"

_TRIGGER: Final = "250 milliseconds"
"""The shortest time between two batches: often enough to watch."""

_EPOCHS: Final = 10_000
"""The most epochs in a batch: so that a query which is behind still shows where it is."""


def session(folder: Path) -> SparkSession:
    """A Spark of two cores in this process, with everything that it leaves behind in ``folder``.

    A task that fails is tried again, as on a cluster: see the traps in SPARK.md.
    """
    builder = (
        SparkSession.builder.appName("dataspace demo")
        .master("local[2, 4]")
        .config("spark.driver.memory", "1g")
        # A short job on two cores: the full compiler and a parallel collector would cost more than they give.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.shuffle.partitions", 1)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.ui.showConsoleProgress", False)
        .config("spark.log.level", "ERROR")
    )
    with _stderr_into(folder / "spark.log"):
        return register(configure(builder).getOrCreate())


def stop(stopped: SparkSession | StreamingQuery, folder: Path) -> None:
    """Stops Spark or a query; what Spark has to say about tasks that are cut short goes to its log."""
    with _stderr_into(folder / "spark.log"):
        try:
            stopped.stop()
        except (OSError, Py4JError):
            pass  # its JVM went first, as when a signal reached every process of the terminal


@contextmanager
def _stderr_into(log: Path) -> Iterator[None]:
    """Sends the errors of what is started in the block to a file: Spark writes many, across the display."""
    sys.stderr.flush()
    before = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


def _activate(spark: SparkSession) -> None:
    """Makes the session the active one of this thread, where alone Spark looks for the format of a sink."""
    spark.createDataFrame([(0,)], "nothing int")


def airborne(spark: SparkSession, url: str, folder: Path) -> StreamingQuery:
    """Starts the query that counts who is in the air and writes it back; goes on from its checkpoint."""
    _activate(spark)
    step = f.when(f.col("_change_type") == "insert", 1).otherwise(-1)
    return (
        _changes(spark, url)
        .groupBy("origin")
        .agg(f.sum(step).alias("n"))
        .writeStream.format("dataspace")
        .outputMode("complete")
        .queryName("airborne")
        .option("url", url)
        .option("template", AIRBORNE)
        .option("writer", "airborne")
        .option("checkpointLocation", str(folder / "airborne"))
        .trigger(processingTime=_TRIGGER)
        .start()
    )


def kept(spark: SparkSession, url: str, folder: Path) -> StreamingQuery:
    """Starts the query that keeps every change in files; goes on from its checkpoint."""
    return (
        _changes(spark, url)
        .select("carrier", "origin", "_change_type", "_epoch", "_seq")
        .writeStream.format("parquet")
        .queryName("kept")
        .option("path", str(folder / "changes"))
        .option("checkpointLocation", str(folder / "kept"))
        .trigger(processingTime=_TRIGGER)
        .start()
    )


def _changes(spark: SparkSession, url: str) -> DataFrame:
    stream = spark.readStream.format("dataspace").options(**_source(url)).option("pattern", FLIGHT)
    return stream.option("startingEpoch", "earliest").option("maxEpochsPerTrigger", _EPOCHS).load()


def _source(url: str) -> dict[str, str]:
    """The options of a source; where several daemons have one store, any of them may serve the source."""
    return {"url": url, "read": "any" if "|" in url else "leader"}


class Watched:
    """A running query, and how far it has come: the epoch counted up to, and the rows counted.

    A query that has had no data for ten seconds reports no rows under the number of its next batch, which
    reports under the same number later.
    """

    def __init__(self, query: StreamingQuery) -> None:
        self.query: Final = query
        self.epoch = 0
        self.rows = 0
        self._batch = -1
        self._rows_before = 0

    def look(self) -> None:
        """Takes in the batches since the last look; raises what ended the query, if something did."""
        error = self.query.exception()
        if error is not None:
            raise error
        for batch in self.query.recentProgress:
            if batch["batchId"] < self._batch:
                continue
            if batch["batchId"] > self._batch:
                self._batch, self._rows_before = batch["batchId"], self.rows
            self.rows = self._rows_before + batch["numInputRows"]
            self.epoch = _epoch(batch["sources"][0]["endOffset"])


def _epoch(offset: str | Mapping[str, int] | None) -> int:
    """The epoch in an offset, which Spark reports as JSON text or as what that means."""
    if not offset:
        return 0
    return int((json.loads(offset) if isinstance(offset, str) else offset)["epoch"])


def figures(spark: SparkSession, url: str, folder: Path, airborne: Mapping[str, int]) -> Figures:
    """Spark's figures: from the changes kept, the messages in the daemon's log, the facts written back."""
    return Figures(
        **of_changes(spark.read.parquet(str(folder / "changes"))),
        cancelled=by_origin(_batch(spark, url, CANCELLED)),
        diverted=by_origin(_batch(spark, url, DIVERTED)),
        airborne=dict(airborne),
    )


class OfChanges(TypedDict):
    """The figures that come from changes of flights."""

    flights: dict[tuple[str, str], int]
    aloft: dict[str, int]


def of_changes(changes: DataFrame) -> OfChanges:
    """Returns how many flights there were, and how many were in the air at once."""
    departures = changes.where("_change_type = 'insert'").groupBy("carrier", "origin").count()
    return OfChanges(
        flights={(row[0], row[1]): row[2] for row in departures.collect()},
        aloft={row[0]: row[1] for row in _most_aloft(changes).collect()},
    )


def _most_aloft(changes: DataFrame) -> DataFrame:
    """By origin, the highest of the prefix sums over all changes in their order."""
    so_far = Window.partitionBy("origin").orderBy("_epoch", "_seq")
    step = f.when(f.col("_change_type") == "insert", 1).otherwise(-1)
    return changes.select("origin", f.sum(step).over(so_far).alias("n")).groupBy("origin").agg(f.max("n"))


def delays(spark: SparkSession, url: str) -> Hours:
    """Returns the delays at departure by hour and airport, in Spark's windows of the times of epochs."""
    begin = f.unix_micros(f.window("_epoch_timestamp", f"{HOUR} microseconds").start)
    departed = _batch(spark, url, DEPARTED).groupBy(begin.alias("begin"), "origin")
    rows = departed.agg(f.count("minutes"), f.sum("minutes")).collect()
    return {(row[0], row[1]): (row[2], row[3]) for row in rows}


def _batch(spark: SparkSession, url: str, pattern: str) -> DataFrame:
    """Such messages as the daemon's log holds them."""
    return spark.read.format("dataspace").options(**_source(url)).option("pattern", pattern).load()


def by_origin(messages: DataFrame) -> dict[str, int]:
    """Returns how many messages there are by origin."""
    return {row[0]: row[1] for row in messages.groupBy("origin").count().collect()}
