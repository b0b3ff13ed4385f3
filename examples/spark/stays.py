"""Stays, by a processor that keeps state of its own: ``transformWithState``.

``presence`` finds stays by aggregating all changes; here each stay is handed on once, when it ends, and only
those that last are remembered.  The changes of a key come in no order within a batch, so they are put in that
of their epochs first.

Needs pandas (the extra ``connect``), and keeps its state in RocksDB, which comes with Spark.

    python -m examples.spark.stays
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import dataspace.spark
from examples.spark.common import drain, told
from examples.spark.presence import live

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Stays(StatefulProcessor):
    """Remembers since which epoch somebody is in a room."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._since = handle.getValueState("since", "epoch bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in sorted(rows, key=lambda row: (row["_epoch"], row["_seq"])):
            if row["_change_type"] == "insert":
                self._since.update((row["_epoch"],))
            elif (since := self._since.get()) is not None:
                self._since.clear()
                yield Row(who=key[0], room=key[1], epochs=row["_epoch"] - since[0])

    def close(self) -> None:
        pass


def stays(changes: DataFrame) -> DataFrame:
    """Each stay that is over: who, where, and for how many epochs."""
    return changes.groupBy("who", "room").transformWithState(
        statefulProcessor=Stays(),
        outputStructType="who string, room string, epochs bigint",
        outputMode="append",
        timeMode="none",
    )


def run(spark: SparkSession, folder: Path, url: str) -> list[tuple[object, ...]]:
    """The stays that are over, handed on epoch by epoch."""
    live(url)
    changes = dataspace.spark.frame(
        spark,
        "present($who:str, $room:str)",
        url=url,
        stream=True,
        startingEpoch="earliest",
        maxEpochsPerTrigger=2,
    )
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    try:
        return drain(stays(changes), folder, "over")
    finally:
        spark.conf.unset("spark.sql.streaming.stateStore.providerClass")


if __name__ == "__main__":
    told("who was where, and for how many epochs:", run, needs=("pandas",))
