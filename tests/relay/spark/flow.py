"""A Spark program of its own, so that a test can kill all of it: driver, JVM and workers.

``python -m tests.relay.spark.flow SOURCES SINK CHECKPOINTS`` reads ``on($k:str, $n:int)`` from one daemon or
several, two epochs of each at a time where Spark knows limits.  One query, from the first change, writes a
copy of the facts to the sink, and a message for each insertion; another, from ``FLOW_START``, how many facts
there are of each ``k`` in all daemons.  It ends when it has caught up with what was there at its start.
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import DataFrame, SparkSession, functions as F

import dataspace.spark
from relay.spark.common.versions import ADMITS
from tests.relay.spark.home import QUICK, java_options


def main(sources: str, sink: str, checkpoints: str) -> None:
    # A task that fails is tried again, as on a cluster: see the traps in SPARK.md.
    master = os.environ.get("FLOW_MASTER", "local[2, 4]")
    builder = (
        SparkSession.builder.master(master)
        .config("spark.executor.memory", "512m")
        .config("spark.sql.codegen.wholeStage", "false")  # a fifth of what a start costs
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.driver.extraJavaOptions", QUICK)
        .config("spark.executor.extraJavaOptions", java_options())
    )
    spark = dataspace.spark.session(builder)
    spark.sparkContext.setLogLevel("OFF")
    on = _on(spark, sources, "earliest")
    kind = on["_change_type"]
    copied = F.when(kind == "insert", F.array(kind, F.lit("message"))).otherwise(F.array(kind))
    copies = on.select("k", "n", F.explode(copied).alias("_change_type"))
    step = F.when(F.col("_change_type") == "insert", 1).otherwise(-1)
    counted = _on(spark, sources, os.environ.get("FLOW_START", "earliest"))
    totals = counted.groupBy("k").agg(F.sum(step).alias("n"))
    for name, frame, mode in (("copy", copies, "append"), ("total", totals, "complete")):
        writer = frame.writeStream.format("dataspace").outputMode(mode).option("url", sink)
        writer = writer.option("template", f"{name}($k, $n)").option("writer", name)
        if name == "copy":
            writer = writer.option("carryBytes", 0)  # staged, as large batches are
        writer = writer.option("checkpointLocation", f"{checkpoints}/{name}")
        writer.trigger(availableNow=True).start()
    for query in spark.streams.active:
        query.awaitTermination()


def _on(spark: SparkSession, sources: str, start: str) -> DataFrame:
    """A stream of its own for each query."""
    limits = {"maxEpochsPerTrigger": "2"} if ADMITS else {}
    return (
        spark.readStream.format("dataspace")
        .option("url", sources)
        .option("pattern", "on($k:str, $n:int)")
        .option("startingEpoch", start)
        .options(**limits)
        .load()
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
