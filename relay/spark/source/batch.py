"""Batch reads: the changes between two epochs, or the state at one.

Time travel for ``spark.read``.  Apart from the streaming source because it has no place to keep: the range is
settled once, when Spark plans the read.

Always: "latest" and "earliest" are settled on the driver, so that a task that is run again reads the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from dataspace.errors import UsageError
from relay.spark.common.errors import plain_rows, plainly
from relay.spark.source.offsets import Span, state_at
from relay.spark.source.partitions import (
    SpanPartition,
    before_time,
    check_rights,
    columns_of,
    partitions_of,
    rows_of,
    watch,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from dataspace.client.bulk.client import LogFrontier
    from relay.spark.common.options import ReadOptions
    from relay.spark.common.parsing import Last


class ChangesReader(DataSourceReader):
    """What a batch reads: the changes of some epochs, or the state at one."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        # A state is there or not: unlike a range of epochs, it has no part that could be left.
        self._options = options if options.as_of is None else replace(options, fail_on_loss=True)
        self._columns = columns_of(options, schema)

    @plainly
    def partitions(self) -> Sequence[InputPartition]:
        """Returns the epochs of each daemon; raises ``Refused`` for what the token may not observe."""
        options = self._options
        check_rights(options, self._columns)
        made: list[InputPartition] = []
        for at, now in enumerate(watch(options).now()):
            span = self._range(at, now) if options.as_of is None else state_at(options.as_of[at], now)
            if not span.empty:
                made += partitions_of(SpanPartition(at, span, now.space), options)
        return made

    def _range(self, at: int, now: LogFrontier) -> Span:
        """The epochs of one daemon that the options ask for."""
        options, first = self._options, self._options.firsts[at]
        if isinstance(first, tuple):
            first = before_time(options.peers[at], options, first, now.space) + 1
        return _range(now.oldest if first == "earliest" else max(first, 1), options.lasts[at], now)

    @plain_rows
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a partition, on an executor."""
        return rows_of(partition, self._options, self._columns)


def _range(first: int, ending: Last, now: LogFrontier) -> Span:
    last = now.epoch if ending == "latest" else ending
    if last > now.epoch:
        raise UsageError(f"endingEpoch {last} has not come yet, the newest epoch is {now.epoch}")
    if first > last + 1:
        raise UsageError(f"startingEpoch {first} is after endingEpoch {last}")
    return Span(first - 1, last)
