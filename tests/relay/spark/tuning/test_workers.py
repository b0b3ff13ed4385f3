"""A worker of Spark keeps what it has loaded out of its collections; other processes are left alone."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

from relay.spark.tuning.internals import is_worker, spare_collections
from tests.relay.spark.daemons import Daemon

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


class Counting(DataSource):
    """``format("counting")``, which fails with what a worker that writes need not collect."""

    @classmethod
    def name(cls) -> str:
        return "counting"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return _Counting()


class _Counting(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        raise RuntimeError(f"{gc.get_freeze_count()} objects frozen")


def test_who_is_no_worker_is_left_alone() -> None:
    before = gc.get_freeze_count()
    spare_collections()
    assert not is_worker()
    assert gc.get_freeze_count() == before


@pytest.mark.slow
@pytest.mark.spark
def test_a_worker_that_has_written_collects_next_to_nothing_from_then_on(
    spark: SparkSession, daemon: Daemon, label: str
) -> None:
    spark.dataSource.register(Counting)
    rows = spark.range(0, 4, numPartitions=4)
    rows.write.format("dataspace").mode("append").option("url", daemon.url).option("label", label).save()
    with pytest.raises(PySparkException) as raised:
        rows.write.format("counting").mode("append").save()
    said = re.search(r"(\d+) objects frozen", str(raised.value))
    assert said is not None, str(raised.value)
    assert int(said[1]) > 10_000
