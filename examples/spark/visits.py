"""Session windows: what somebody did without a long pause is one visit.

Messages ``view(who, page)`` carry no time of their own; ``_epoch_timestamp`` says when they were made.  A
session window ends when there was nothing for a while, here half a second, so that the example is soon over.

    python -m examples.spark.visits
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

import dataspace.spark
from dataspace import Record, connect_blocking
from examples.spark.common import drain, told

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PAUSE: Final = 0.5


def visits(views: DataFrame) -> DataFrame:
    """Each visit: who, and the first and the last page with how many there were."""
    timed = views.withWatermark("_epoch_timestamp", "10 seconds")
    window = F.session_window("_epoch_timestamp", f"{round(PAUSE * 1000)} milliseconds")
    pages = (F.min_by("page", "_epoch").alias("first"), F.max_by("page", "_epoch").alias("last"))
    counted = timed.groupBy("who", window).agg(*pages, F.count("*").alias("pages"))
    return counted.select("who", "first", "last", "pages")


def live(url: str) -> None:
    """Alice comes twice, Bob once."""
    with connect_blocking(url, name="site") as space:
        for who, page in (("Alice", "home"), ("Bob", "home"), ("Alice", "tea")):
            space.send(Record("view", who, page))
        time.sleep(2 * PAUSE)
        for page in ("home", "cart", "paid"):
            space.send(Record("view", "Alice", page))


def run(spark: SparkSession, folder: Path, url: str) -> list[tuple[object, ...]]:
    """The visits."""
    live(url)
    views = dataspace.spark.frame(
        spark, "view($who:str, $page:str)", url=url, stream=True, startingEpoch="earliest"
    )
    return drain(visits(views), folder, "visits", mode="complete")


if __name__ == "__main__":
    told("who, from which page to which, and how many:", run)
