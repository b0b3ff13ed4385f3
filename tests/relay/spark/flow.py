"""A Spark program of its own, so that a test can kill all of it: driver, JVM and workers.

``python -m tests.relay.spark.flow URL CHECKPOINTS`` reads ``on($k:str, $n:int)`` from the first change,
two epochs at a time.  One query writes back a copy of the facts, and a message for each insertion; another
how many facts there are of each ``k``.  It ends when it has caught up with what was there at its start.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import relay.spark


def main(url: str, checkpoints: str) -> None:
    builder = SparkSession.builder.master("local[2]").config(
        "spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    )
    spark = relay.spark.session(builder)
    spark.sparkContext.setLogLevel("OFF")
    on = (
        spark.readStream.format("dataspace")
        .option("url", url)
        .option("pattern", "on($k:str, $n:int)")
        .option("startingEpoch", "earliest")
        .option("maxEpochsPerTrigger", 2)
        .load()
    )
    kind = on["_change_type"]
    copied = F.when(kind == "insert", F.array(kind, F.lit("message"))).otherwise(F.array(kind))
    copies = on.select("k", "n", F.explode(copied).alias("_change_type"))
    totals = on.groupBy("k").agg(F.sum(F.when(kind == "insert", 1).otherwise(-1)).alias("n"))
    for name, frame, mode in (("copy", copies, "append"), ("total", totals, "complete")):
        writer = frame.writeStream.format("dataspace").outputMode(mode).option("url", url)
        writer = writer.option("template", f"{name}($k, $n)").option("writer", name)
        writer = writer.option("checkpointLocation", f"{checkpoints}/{name}")
        writer.trigger(availableNow=True).start()
    for query in spark.streams.active:
        query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
