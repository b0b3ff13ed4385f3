"""A Spark program whose facts are its query's, until it is killed: ``… tests.relay.spark.owned URL DIR``."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

import dataspace.spark
from tests.relay.spark.home import QUICK


def main(url: str, checkpoint: str) -> None:
    builder = SparkSession.builder.master("local[1]")
    spark = dataspace.spark.session(builder.config("spark.driver.extraJavaOptions", QUICK))
    spark.sparkContext.setLogLevel("OFF")
    frame = dataspace.spark.frame(spark, "p($n:int)", url=url, stream=True)
    writer = frame.writeStream.format("dataspace").option("url", url).option("label", "q")
    writer = writer.option("owner", "query").option("lease", "2s").option("checkpointLocation", checkpoint)
    query = writer.start()
    dataspace.spark.keep(query, url=url, lease="2s")
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
