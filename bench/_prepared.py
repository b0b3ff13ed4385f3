"""Rows that are there already, and a sink that drops what it gets: what ``bench/spark.py`` compares us with.

A module of its own because Spark's workers import it by name; the rows are kept by the module, so that a
warm worker makes none while the clock runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from relay.spark.common.schema import inferred

PATTERN: Final = "seat($entity:int, $name:str, $value:float)"
BATCH: Final = 8192


@cache
def batches(rows: int) -> list[pa.RecordBatch]:
    """Rows of the schema of ``PATTERN``, as record batches."""
    at = range(rows)
    table = pa.table(
        [
            [n % 10_000 for n in at],
            [f"name {n % 10_000}" for n in at],
            [n / 8 for n in at],
            [("insert", "delete")[n & 1] for n in at],
            [n // 100 for n in at],
            pa.array([n // 100 for n in at], pa.timestamp("us", tz="UTC")),
            [n % 100 for n in at],
        ],
        schema=to_arrow_schema(inferred(PATTERN), timezone="UTC"),
    )
    return list(table.to_batches(max_chunksize=BATCH))


@cache
def tuples(rows: int) -> list[tuple[Any, ...]]:
    """The same rows as tuples."""
    return [tuple(row.values()) for batch in batches(rows) for row in batch.to_pylist()]


class Prepared(DataSource):
    """``format("prepared")`` with ``rows``, ``as`` (tuples or arrow) and ``partitions``."""

    @classmethod
    def name(cls) -> str:
        return "prepared"

    def schema(self) -> StructType:
        return inferred(PATTERN)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self.options
        return _Reader(int(options["rows"]), options["as"] == "tuples", int(options.get("partitions", 1)))


class _Reader(DataSourceReader):
    def __init__(self, rows: int, plain: bool, count: int) -> None:
        self._rows = rows // count
        self._plain = plain
        self._count = count

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(at) for at in range(self._count)]

    def read(self, _partition: InputPartition) -> Iterator[Any]:
        return iter(tuples(self._rows) if self._plain else batches(self._rows))


class Dropped(DataSource):
    """``format("dropped")``: takes record batches as our sink does, and does nothing with them."""

    @classmethod
    def name(cls) -> str:
        return "dropped"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return _Dropping()


class _Dropping(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()
