"""Streaming queries as tests need them: started, fed to a list batch by batch, and waited for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from relay.spark.common.versions import ADMITS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PATIENCE = 180.0
"""Seconds after which a test gives up; far above what any step takes."""

Row = tuple[object, ...]

limited = pytest.mark.skipif(not ADMITS, reason="this PySpark has no limits for Python sources")
"""A test of what PySpark 4.2 brought: how much a micro-batch may be."""


@dataclass
class Seen:
    """What a query handed on: the rows of every batch, a batch tried again in place of the first try."""

    batches: dict[int, list[Row]] = field(default_factory=dict)
    fail_on: int | None = None

    def take(self, frame: DataFrame, batch: int) -> None:
        rows = [tuple(row) for row in frame.drop("_epoch_timestamp").collect()]
        self.batches[batch] = rows
        if self.fail_on == batch:
            raise RuntimeError("the test fails this batch")

    @property
    def rows(self) -> list[Row]:
        return [row for batch in sorted(self.batches) for row in self.batches[batch]]


def stream(spark: SparkSession, url: str, pattern: str, **options: object) -> DataFrame:
    reader = spark.readStream.format("dataspace").option("url", url).option("pattern", pattern)
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load()


def read(spark: SparkSession, url: str, pattern: str, **options: object) -> list[Row]:
    reader = spark.read.format("dataspace").option("url", url).option("pattern", pattern)
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return [tuple(row) for row in reader.load().drop("_epoch_timestamp").collect()]


def run_now(frame: DataFrame, seen: Seen, checkpoint: str) -> StreamingQuery:
    """Runs a query over all that is there, to its end; raises what ended it."""
    writer = frame.writeStream.foreachBatch(seen.take).option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(int(PATIENCE)), "the query did not come to its end"
    return query


@contextmanager
def running(frame: DataFrame, seen: Seen, checkpoint: str) -> Iterator[StreamingQuery]:
    """A query that goes on until the block ends."""
    query = frame.writeStream.foreachBatch(seen.take).option("checkpointLocation", checkpoint).start()
    try:
        yield query
    finally:
        query.stop()


def until(condition: Callable[[], bool], query: StreamingQuery | None = None) -> None:
    """Waits for a condition; fails with the query's own error, or after ``PATIENCE``."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if query is not None and query.exception() is not None:
            raise AssertionError(f"the query ended: {query.exception()}")
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
