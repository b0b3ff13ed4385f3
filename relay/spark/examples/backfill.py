"""Backfill: all that a daemon retains goes into Parquet, by day, and a stream goes on from there.

A batch read of everything up to one epoch, in several partitions; then a stream that begins with the next
one writes beside it (in a folder of its own, since Spark keeps a log of the files that a stream writes).
Nothing is missing between them and nothing is there twice, because both speak of epochs.

    python -m relay.spark.examples.backfill
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import relay.spark
from dataspace import Record, connect_blocking
from relay.spark.examples.common import daemons, session, show

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PATTERN = "trade($symbol:str, $price:float)"


def trade(url: str, first: int, count: int) -> int:
    """Prices that replace each other; the epoch of the last."""
    with connect_blocking(url, name="exchange", owner="exchange") as space:
        for at in range(first, first + count):
            with space.turn() as turn:
                turn.send(Record("trade", f"S{at % 3}", float(at)))
        return turn.epoch or 0


def by_day(changes: DataFrame) -> DataFrame:
    return changes.selectExpr("*", "date(_epoch_timestamp) AS day")


def run(spark: SparkSession, folder: Path, url: str) -> list[tuple[object, ...]]:
    """How many trades of each symbol the table holds in the end."""
    table = str(folder / "trades")
    until = trade(url, 0, 100)
    past = relay.spark.frame(spark, PATTERN, url=url, endingEpoch=until, minPartitions=2)
    by_day(past).write.partitionBy("day").parquet(table)

    trade(url, 100, 20)
    coming = relay.spark.frame(spark, PATTERN, url=url, stream=True, startingEpoch=until + 1)
    writer = by_day(coming).writeStream.format("parquet").partitionBy("day").option("path", table + " later")
    writer = writer.option("checkpointLocation", str(folder / "later")).trigger(availableNow=True)
    writer.start().awaitTermination()
    both = spark.read.parquet(table).unionByName(spark.read.parquet(table + " later"))
    return sorted(map(tuple, both.groupBy("symbol").count().collect()))


def main() -> None:
    with daemons(1) as (folder, (url,)), session("backfill") as spark:
        show("trades in the table:", run(spark, folder, url))


if __name__ == "__main__":
    main()
