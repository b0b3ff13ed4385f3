"""Spark: a dataspace as a source and a sink of DataFrames (SPARK.md); public as ``dataspace.spark``."""
