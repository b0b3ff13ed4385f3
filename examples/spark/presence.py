"""Presence sessions: who was where, from when to when.

``present(who, room)`` comes with ``+`` and goes with ``-``, in turn, since an observer is notified of the
first claim and the last.  So the n-th coming of somebody to a room belongs to the n-th going, and a stay
whose going is missing is not over.

    python -m examples.spark.presence
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

import dataspace.spark
from dataspace import Record, connect_blocking
from examples.spark.common import drain, told

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def stays(changes: DataFrame) -> DataFrame:
    """Each stay: who, where, and the epochs of coming and going, null while it lasts."""

    def epochs(kind: str) -> Column:
        return F.array_sort(F.collect_list(F.when(F.col("_change_type") == kind, F.col("_epoch"))))

    both = changes.groupBy("who", "room").agg(
        epochs("insert").alias("since"), epochs("delete").alias("until")
    )
    each = both.select("who", "room", F.explode(F.arrays_zip("since", "until")).alias("stay"))
    return each.select("who", "room", "stay.since", "stay.until")


def live(url: str) -> None:
    """Some people come and go."""
    with connect_blocking(url, name="example", owner="example") as space:
        alice = space.assert_(Record("present", "Alice", "kitchen"))
        bob = space.assert_(Record("present", "Bob", "kitchen"))
        alice = space.replace(alice, Record("present", "Alice", "hall"))
        space.retract(bob)
        space.replace(alice, Record("present", "Alice", "kitchen"))


def run(spark: SparkSession, folder: Path, url: str) -> list[tuple[object, ...]]:
    """The stays, once everybody has moved."""
    live(url)
    changes = dataspace.spark.frame(
        spark, "present($who:str, $room:str)", url=url, stream=True, startingEpoch="earliest"
    )
    return drain(stays(changes), folder, "stays", mode="complete")


if __name__ == "__main__":
    told("who was where, from which epoch to which:", run)
