"""Examples of streaming queries over a dataspace: ``python -m examples.spark.NAME``."""
