"""A report by Spark: how many results each worker has, as facts that everybody can observe.

python report.py checkpoint                 # goes on where it was, however it was ended
dataspace watch 'report($who, $results)'    # one fact for each worker, replaced whenever it changes
"""

import sys

from pyspark.sql import functions as F

import dataspace.spark

spark = dataspace.spark.session()
results = dataspace.spark.frame(spark, "done($id:int, $answer:int, $who:str)", stream=True)
step = F.when(F.col("_change_type") == "insert", 1).when(F.col("_change_type") == "delete", -1)
counts = results.groupBy("who").agg(F.sum(step).alias("results"))
write = dataspace.spark.updates(template="report($who, $results)", keyColumns="who", writer="report")
report = counts.writeStream.outputMode("update").foreachBatch(write).option("checkpointLocation", sys.argv[1])
report.start().awaitTermination()
