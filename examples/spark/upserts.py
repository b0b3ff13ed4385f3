"""The current state by key: a view in which the newest fact of each key stands, and none that has gone.

Devices say ``status(device, state)``; a new status takes the place of the old one, and a device that is
switched off has none.  In the changes that is ``+`` for the new fact and ``-`` for the old one in the same
epoch, which ``current_state`` folds into a view that SQL can ask at any time.

    python -m examples.spark.upserts
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import dataspace.spark
from dataspace import Record, connect_blocking
from examples.spark.common import caught_up, ready, show

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(spark: SparkSession, folder: Path, url: str) -> list[list[tuple[object, ...]]]:
    """What the view holds at first, and after some devices have changed."""
    changes = dataspace.spark.frame(spark, "status($device:str, $state:str)", url=url, stream=True)
    view = dataspace.spark.current_state(changes, ["device"]).select("device", "state")
    writer = view.writeStream.format("memory").queryName("status").outputMode("complete")
    query = writer.option("checkpointLocation", str(folder / "status")).start()
    seen = []
    try:
        with connect_blocking(url, name="devices") as space:
            pump = space.assert_(Record("status", "pump", "idle"))
            fan = space.assert_(Record("status", "fan", "idle"))
            seen.append(caught_up(query, spark, "status", url))
            space.replace(pump, Record("status", "pump", "running"))
            space.retract(fan)
            seen.append(caught_up(query, spark, "status", url))
    finally:
        query.stop()
    return seen


def main() -> None:
    with ready("upserts") as (spark, folder, (url,)):
        first, then = run(spark, folder, url)
        show("status at first:", first)
        show("after the pump started and the fan was switched off:", then)


if __name__ == "__main__":
    main()
