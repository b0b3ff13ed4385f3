"""Carrying: the rows of a small batch ride along with its plan.

A task in Python costs more than the rows of most micro-batches.  Spark takes rows along with a plan, so that
its tasks find them in memory and start no Python, from one class of readers only, its own private wrapper
for simple ones.  That wrapper has neither read limits nor a latest offset to report, so a reader is one
for just the moment between its plan and the question for rows, and itself again afterwards.  Where a
version of Spark has no such class, nothing rides along, and all is as it is for large batches.

Always: the rows that ride along are those that a task would read; what is too much for the driver, or was
not just seen to be there, is left to the tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from relay.spark.source.partitions import SpanPartition, rows_of

if TYPE_CHECKING:
    import pyarrow as pa

    from relay.spark.common.options import StreamOptions
    from relay.spark.common.schema import Columns

try:
    from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper as Wrapper
except ImportError:  # private, so another version may do without
    Wrapper = None  # type: ignore[assignment,misc]  # which is asked for before it is used

EPOCHS: Final = 256
ROWS: Final = 5_000
"""What may ride along: no more epochs than so many are tried, and no more rows are taken."""


class CarriedPartition(InputPartition):
    """Spans whose rows rode along; they can still be read from the daemons."""

    def __init__(self, parts: Sequence[SpanPartition]) -> None:
        self.parts = tuple(parts)


def carried(
    parts: Sequence[SpanPartition], options: StreamOptions, columns: Columns
) -> list[pa.RecordBatch] | None:
    """All rows of some spans, or None where they are better read by tasks.

    A span that begins with a state is left to the tasks: only the daemon knows how large that is.
    """
    if Wrapper is None or any(_large(part) for part in parts):
        return None
    batches: list[pa.RecordBatch] = []
    count = 0
    for part in parts:
        for batch in rows_of(part, options, columns):
            batches.append(batch)
            count += batch.num_rows
            if count > ROWS:
                return None
    return batches


def _large(part: SpanPartition) -> bool:
    return part.span.as_of is not None or part.span.upto - part.span.after > EPOCHS


def carrier(reader: type[DataSourceStreamReader]) -> type[DataSourceStreamReader]:
    """A class of readers whose ``getCache`` Spark will ask; without Spark's wrapper the class itself."""
    if Wrapper is None:
        return reader
    return type(f"Carrying{reader.__name__}", (reader, Wrapper), {})
