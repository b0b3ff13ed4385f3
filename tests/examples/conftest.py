"""The Spark session of the tests of Spark serves the examples as well."""

from tests.relay.spark.conftest import spark as spark, spark_home as spark_home
