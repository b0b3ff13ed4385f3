"""Counts that go down: how many are in each room, written back as facts in update mode.

A ``+`` is one more and a ``-`` one less, so the count falls when somebody leaves or is disconnected.  Update
mode hands on only the rooms whose count has changed, and ``keyColumns`` has each new count take the place
of the old one: an observer sees every room change in one step, never without a count.

    python -m examples.spark.crowds
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

import dataspace.spark
from dataspace import Record, connect_blocking
from examples.spark.common import Watcher, told

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def crowds(changes: DataFrame) -> DataFrame:
    """How many there are in each room."""
    step = F.when(F.col("_change_type") == "insert", 1).when(F.col("_change_type") == "delete", -1)
    return changes.groupBy("room").agg(F.sum(step).alias("n"))


def run(spark: SparkSession, folder: Path, url: str) -> list[tuple[object, ...]]:
    """What an observer of the counts was told, as two came and one went."""
    changes = dataspace.spark.frame(spark, "present($who:str, $room:str)", url=url, stream=True)
    write = dataspace.spark.updates(url=url, template="crowd($room, $n)", keyColumns="room", writer="crowds")
    writer = crowds(changes).writeStream.outputMode("update").foreachBatch(write)
    query = writer.option("checkpointLocation", str(folder / "crowds")).start()
    try:
        with Watcher(url, "crowd($room:str, $n:int)") as watcher, connect_blocking(url) as space:
            space.assert_(Record("present", "Alice", "kitchen"))
            watcher.wait(1)
            bob = space.assert_(Record("present", "Bob", "kitchen"))
            watcher.wait(3)
            space.retract(bob)
            watcher.wait(5)
    finally:
        query.stop()
    return watcher.told


if __name__ == "__main__":
    told("counts, as they came and went:", run)
