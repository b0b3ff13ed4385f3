"""A client of Spark Connect, which must be a program of its own: one Python has one kind of session.

``python -m tests.relay.spark.through_connect SERVER DAEMON FOLDER`` does one thing after the other and prints
a line of JSON for each: its name, and what came of it or what Spark said.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, functions as F

import dataspace.spark
from dataspace.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PATIENCE = 180


class Client:
    """What somebody does with a session of Spark Connect."""

    def __init__(self, spark: SparkSession, url: str, folder: Path) -> None:
        self.spark = spark
        self.url = url
        self.folder = folder

    def run(self) -> None:
        steps: list[Callable[[], object]] = [
            self.session,
            self.write,
            self.read,
            self.stream,
            self.stream_again,
            self.updates,
            self.updates_again,
            self.updates_without_name,
            self.owned_by_the_query,
            self.bad_fact,
            self.bad_option,
            self.unreachable,
        ]
        for step in steps:
            try:
                told = step()
            except (PySparkException, UsageError) as error:
                told = f"{type(error).__name__}: {error}"
            print(json.dumps([step.__name__, told]), flush=True)

    def session(self) -> object:
        """The session that is active is taken as it is, and is no classic one."""
        return dataspace.spark.session() is self.spark and type(self.spark).__module__

    def write(self) -> object:
        rows = self.spark.range(3).selectExpr("id AS n").write.format("dataspace").mode("append")
        rows.option("url", self.url).option("label", "p").option("writer", "w").save()
        return self.facts("p($n:int)")

    def read(self) -> object:
        changes = dataspace.spark.frame(self.spark, "p($n:int)", url=self.url)
        return [list(row) for row in changes.drop("_epoch_timestamp").collect()]

    def stream(self) -> object:
        doubled = self.changes("p($n:int)").selectExpr("2 * n AS n", "_change_type")
        writer = doubled.writeStream.format("dataspace").option("url", self.url)
        writer = writer.option("template", "twice($n)").option(
            "checkpointLocation", str(self.folder / "twice")
        )
        writer.trigger(availableNow=True).start().awaitTermination(PATIENCE)
        return self.facts("twice($n:int)")

    def stream_again(self) -> object:
        """The checkpoint goes on where it was."""
        self.retract(0)
        return self.stream()

    def updates(self) -> object:
        step = F.when(F.col("_change_type") == "insert", 1).otherwise(-1)
        counts = self.changes("p($n:int)").groupBy((F.col("n") % 2).alias("odd")).agg(F.sum(step).alias("n"))
        write = dataspace.spark.updates(
            url=self.url, template="count($odd, $n)", keyColumns="odd", writer="counts", name="counts 1"
        )
        writer = counts.writeStream.outputMode("update").foreachBatch(write)
        writer = writer.option("checkpointLocation", str(self.folder / "counts")).trigger(availableNow=True)
        writer.start().awaitTermination(PATIENCE)
        return self.facts("count($odd:int, $n:int)")

    def updates_again(self) -> object:
        self.retract(2)
        return self.updates()

    def updates_without_name(self) -> object:
        return repr(dataspace.spark.updates(url=self.url, label="count"))

    def owned_by_the_query(self) -> object:
        """The facts while the query runs, and after it was stopped."""
        writer = self.changes("p($n:int)").writeStream.format("dataspace").option("url", self.url)
        writer = writer.option("owner", "query").option("template", "mine($n)")
        query = writer.option("checkpointLocation", str(self.folder / "mine")).start()
        kept = dataspace.spark.keep(query, url=self.url)
        there = self.until("mine($n:int)", [[1]])
        query.stop()
        kept.join(PATIENCE)
        return [there, self.until("mine($n:int)", [])]

    def bad_fact(self) -> object:
        rows = self.spark.sql("SELECT CAST(NULL AS INT) AS n").write.format("dataspace").mode("append")
        rows.option("url", self.url).option("template", "p($n:int)").save()
        return "written"

    def bad_option(self) -> object:
        return dataspace.spark.frame(self.spark, "p($n)", url=self.url, startingEpok=1).count()

    def unreachable(self) -> object:
        nobody = "tcp://127.0.0.1:1"
        return dataspace.spark.frame(self.spark, "p($n)", url=nobody, connectTimeout="100ms").count()

    def changes(self, pattern: str) -> DataFrame:
        return dataspace.spark.frame(self.spark, pattern, url=self.url, stream=True)

    def facts(self, pattern: str) -> list[list[object]]:
        state = dataspace.spark.frame(self.spark, pattern, url=self.url, asOfEpoch="latest")
        return [
            list(row) for row in state.drop("_change_type", "_epoch", "_epoch_timestamp", "_seq").collect()
        ]

    def retract(self, number: int) -> None:
        going = self.spark.sql(f"SELECT {number}L AS n, 'delete' AS _change_type")
        write = going.write.format("dataspace").mode("append").option("url", self.url)
        write.option("label", "p").option("writer", "w").save()

    def until(self, pattern: str, wanted: object) -> object:
        end = time.monotonic() + PATIENCE
        while (facts := self.facts(pattern)) != wanted and time.monotonic() < end:
            time.sleep(0.2)
        return facts


def main(server: str, url: str, folder: str) -> None:
    spark = dataspace.spark.session(SparkSession.builder.remote(server))
    spark.conf.set("spark.sql.connect.serverStacktrace.enabled", "false")
    Client(spark, url, Path(folder)).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
