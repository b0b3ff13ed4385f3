"""Deduplication: events that are sent more than once count once.

A sensor that gets no answer sends ``alarm(number, place)`` again, as another message in another epoch.  The
number tells that it is the same alarm; ``_epoch_timestamp`` never goes back, so as a watermark it lets Spark
forget a number once no message repeats it any more.

    python -m examples.spark.once
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import dataspace.spark
from dataspace import Record, connect_blocking
from examples.spark.common import drain, told

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def once(alarms: DataFrame) -> DataFrame:
    """The first message of each alarm, unless it is repeated after more than ten minutes."""
    timed = alarms.withWatermark("_epoch_timestamp", "10 minutes")
    return timed.dropDuplicatesWithinWatermark(["number"]).select("number", "place")


def live(url: str) -> None:
    """Three alarms, two of them sent again."""
    with connect_blocking(url, name="sensors") as space:
        for number, place in ((1, "gate"), (2, "roof"), (1, "gate"), (3, "gate"), (2, "roof"), (1, "gate")):
            space.send(Record("alarm", number, place))


def run(spark: SparkSession, folder: Path, url: str) -> list[tuple[object, ...]]:
    """The alarms, once each."""
    live(url)
    alarms = dataspace.spark.frame(
        spark,
        "alarm($number:int, $place:str)",
        url=url,
        stream=True,
        startingEpoch="earliest",
        maxEpochsPerTrigger=2,
    )
    return drain(once(alarms), folder, "once")


if __name__ == "__main__":
    told("alarms:", run)
