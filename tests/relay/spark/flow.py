"""A Spark query as a program of its own, so that a test can kill all of it: driver, JVM and workers.

``python -m tests.relay.spark.flow URL CHECKPOINTS`` reads ``on($k:str, $n:int)`` from the first change,
two epochs at a time, and writes back a copy of the facts, a message for each insertion, and how many there
are of each ``k``; it ends when it has caught up with what was there when it started.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession
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
    change = F.when(on["_change_type"] == "insert", 1).otherwise(-1)
    totals = on.groupBy("k").agg(F.sum(change).alias("n"))
    once = on.where("_change_type = 'insert'").select("k", "n", F.lit("message").alias("_change_type"))

    def write(frame: DataFrame, name: str, mode: str = "append") -> None:
        writer = frame.writeStream.format("dataspace").outputMode(mode).option("url", url)
        writer = writer.option("template", f"{name}($k, $n)").option("writer", name)
        writer = writer.option("checkpointLocation", f"{checkpoints}/{name}")
        writer.trigger(availableNow=True).start()

    write(on, "copy")
    write(once, "once")
    write(totals, "total", "complete")
    for query in spark.streams.active:
        query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
