"""Alerts: Spark finds what is out of range, writes it back as facts, and an observer sees them come and go.

Devices assert ``reading(device, degrees)``; a query keeps the newest reading of each, and its ``complete``
result, those above the limit, is the whole set of one writer.  So an alert goes as soon as the reading is
back in range, and an observer receives ``-`` although no client sent it.

    python -m examples.spark.alerts
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import dataspace.spark
from dataspace import Record, connect_blocking
from examples.spark.common import Watcher, told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIMIT: Final = 80.0


def run(spark: SparkSession, folder: Path, url: str) -> list[tuple[object, ...]]:
    """What the observer was told while one device got hot and cooled down again."""
    readings = dataspace.spark.frame(spark, "reading($device:str, $degrees:float)", url=url, stream=True)
    hot = dataspace.spark.current_state(readings, ["device"]).where(f"degrees > {LIMIT}")
    writer = hot.select("device", "degrees").writeStream.format("dataspace").outputMode("complete")
    writer = writer.option("url", url).option("template", "alert($device, $degrees)")
    query = writer.option("writer", "alerts").option("checkpointLocation", str(folder / "alerts")).start()
    try:
        with Watcher(url, "alert($device:str, $degrees:float)") as watcher, connect_blocking(url) as space:
            boiler = space.assert_(Record("reading", "boiler", 60.0))
            space.assert_(Record("reading", "oven", 75.0))
            boiler = space.replace(boiler, Record("reading", "boiler", 90.5))
            watcher.wait(1)
            space.replace(boiler, Record("reading", "boiler", 70.0))
            watcher.wait(2)
    finally:
        query.stop()
    return watcher.told


if __name__ == "__main__":
    told("alerts, as they came and went:", run)
