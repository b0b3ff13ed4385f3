"""Examples of streaming queries over a dataspace, each a program: ``python -m relay.spark.examples.NAME``."""
