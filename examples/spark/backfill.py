"""Backfill: a retained year goes into Parquet, by month, and a stream goes on from there.

The year is that of a shop: orders are placed, paid, shipped, and gone once they are delivered, some 3 600 of
them under the times at which they would have been.  A batch read of everything up to one epoch, in two
partitions, fills the table; then a stream that begins with the next epoch writes beside it (in a folder of
its own, since Spark keeps a log of the files that a stream writes).  Nothing is missing between them and
nothing is there twice, because both speak of epochs.

    python -m examples.spark.backfill
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

import dataspace.spark
from dataspace import Record, connect_blocking
from dataspace.kernel.actions import ASSERT, REPLACE, RETRACT, Action
from dataspace.kernel.space import Space
from dataspace.log import Log
from examples.spark.common import say, told
from relay.log.segments import Encoded, encode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PATTERN: Final = "order($number:int, $customer:str, $state:str)"
OWNER: Final = "durable:shop"
ORDERS: Final = 3_600
BEGIN: Final = datetime(2025, 1, 1, tzinfo=UTC)

Step = tuple[datetime, int, str]
"""When which order came into which state."""


def year(random: Random) -> Iterator[Step]:
    """What becomes of the orders of a year, in the order in which it happens."""
    steps: list[Step] = []
    for number in range(ORDERS):
        at = BEGIN + timedelta(days=random.uniform(0, 360))
        for state, hours in (("placed", 0.0), ("paid", 2.0), ("shipped", 40.0), ("delivered", 50.0)):
            at += timedelta(hours=random.expovariate(1 / hours) if hours else 0.0)
            heapq.heappush(steps, (at, number, state))
    while steps:
        yield heapq.heappop(steps)


def write_year(data: Path) -> None:
    """Makes the data directory of a daemon that has run for a year, one turn for each step of an order.

    A daemon gives its epochs the time of its clock; a log takes whatever times it is given, as long as they
    do not go back.
    """
    log, space, random = Log.open(data), Space("main"), Random(2025)
    say(f"a daemon's log of a year is made, {ORDERS} orders of four steps each")
    handles: dict[int, int] = {}
    epochs: list[Encoded] = []
    for fresh, (at, number, state) in enumerate(year(random), 1):
        fact = Record("order", number, f"customer {number * 7 % 400}", state)
        action: Action
        if state == "placed":
            action = (ASSERT, fresh, fact)
        elif state == "delivered":
            action = (RETRACT, handles[number])
        else:
            action = (REPLACE, handles[number], fresh, fact)
        handles[number] = fresh
        epochs.append(encode(space.commit(OWNER, [action], round(at.timestamp() * 1e6))))
    log.append(epochs)
    log.close()


def by_month(changes: DataFrame) -> DataFrame:
    """With the month as a column, to divide the table by."""
    return changes.selectExpr("*", "date_format(_epoch_timestamp, 'yyyy-MM') AS month")


def run(spark: SparkSession, folder: Path, url: str) -> list[tuple[object, ...]]:
    """How many orders were placed in each month, in the end."""
    table, later = str(folder / "orders"), str(folder / "orders later")
    say("the year goes into Parquet, month by month")
    (until,) = dataspace.spark.frame(spark, PATTERN, url=url).selectExpr("max(_epoch)").collect()[0]
    past = dataspace.spark.frame(spark, PATTERN, url=url, endingEpoch=until, minPartitions=2)
    by_month(past).write.partitionBy("month").parquet(table)

    say(f"it is there, up to epoch {until}; five more orders come in, and a stream takes them from there")
    with connect_blocking(url, name="shop", owner="shop") as space:
        for number in range(ORDERS, ORDERS + 5):
            space.assert_(Record("order", number, "customer 1", "placed"))
    coming = dataspace.spark.frame(spark, PATTERN, url=url, stream=True, startingEpoch=until + 1)
    writer = by_month(coming).writeStream.format("parquet").partitionBy("month").option("path", later)
    writer = writer.option("checkpointLocation", str(folder / "later")).trigger(availableNow=True)
    writer.start().awaitTermination()
    both = spark.read.parquet(table).unionByName(spark.read.parquet(later))
    placed = both.where("state = 'placed' AND _change_type = 'insert'").groupBy("month").count()
    return sorted(map(tuple, placed.collect()))


if __name__ == "__main__":
    told("orders placed, by month:", run, prepared=write_year)
