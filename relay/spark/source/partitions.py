"""Partitions: the epochs and the daemon that a task reads, and the number of tasks that share a batch.

Streams and batch reads both use partitions once they know where they begin and end.  Spark pickles a
partition into every task.  The rows of a small batch need no task: the driver reads them, and they travel in
the plan.

Always: a partition and the options of its reader are enough to read it; missing epochs are found out before a
task is made for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition

from relay.spark.common.connections import DaemonPeer, asked
from relay.spark.common.schema import Columns, columns
from relay.spark.source import offsets
from relay.spark.source.frontiers import FrontierWatch, together
from relay.spark.source.offsets import Span
from relay.spark.source.readings import reading_of
from relay.spark.source.tasks import Task, rows
from relay.spark.tuning import inline_rows
from relay.spark.tuning.workers import spare_collections

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from dataspace.client.bulk.client import LogFrontier
    from relay.spark.common.options import ReadOptions, StreamOptions


class SpanPartition(InputPartition):
    """The epochs of one daemon that one task reads; ``at`` says which of the daemons it is."""

    def __init__(self, at: int, span: Span, space: str) -> None:
        self.at = at
        self.span = span
        self.space = space


def columns_of(options: StreamOptions | ReadOptions, schema: StructType) -> Columns:
    """The columns that the options and a schema ask for; raises as ``columns`` does."""
    return columns(
        options.pattern,
        schema,
        include_value=options.include_value,
        malformed=options.malformed,
        topic=options.topic is not None,
    )


def rows_of(
    partition: InputPartition, options: StreamOptions | ReadOptions, columns: Columns
) -> Iterator[pa.RecordBatch]:
    """The rows of a partition."""
    if isinstance(partition, SpanPartition):  # else it is Spark's own stand-in for "no partitions"
        peer = options.peers[partition.at]
        yield from rows(Task(options, columns, peer, partition.span, partition.space))
    spare_collections()


def partitions_of(part: SpanPartition, options: StreamOptions | ReadOptions) -> list[SpanPartition]:
    """Returns a span as the partitions that tasks read, or nothing; ``DataLoss`` for missing epochs."""
    peer, span, space = options.peers[part.at], part.span, part.space
    now = frontier(peer, options, span.after)
    left: Span | None = span
    loss = offsets.missing(span, space, now)
    if loss is not None:
        offsets.tolerate(loss, fail=options.fail_on_loss)
        left = offsets.remaining(span, space, now)
    if left is None or left.empty:
        return []
    count = -(-options.partitions // len(options.peers))
    return [SpanPartition(part.at, each, space) for each in offsets.divided(left, count, now.gaps)]


def watch(options: StreamOptions | ReadOptions) -> FrontierWatch:
    """What knows how far all daemons are."""
    return FrontierWatch(len(options.peers), partial(_frontier_at, options))


def _frontier_at(
    options: StreamOptions | ReadOptions, at: int, after: int | None, timeout: float
) -> LogFrontier:
    return frontier(options.peers[at], options, after, timeout)


def check_rights(options: StreamOptions | ReadOptions, columns: Columns) -> None:
    """Raises ``Refused`` on the driver for what a task would be refused, with all daemons asked at once."""
    reading, bound = reading_of(options.topic), options.connect_timeout
    check = partial(reading.check_rights, pattern=columns.pattern)
    together([partial(asked, peer, bound, check) for peer in options.peers])


def frontier(
    peer: DaemonPeer, options: StreamOptions | ReadOptions, after: int | None = None, timeout: float = 0.0
) -> LogFrontier:
    """How far a daemon is, as soon as that is beyond an epoch or the seconds are over."""
    reading = reading_of(options.topic)
    return asked(peer, options.connect_timeout, lambda link: reading.frontier(link, after, timeout))


def before_time(
    peer: DaemonPeer, options: StreamOptions | ReadOptions, time: tuple[int, ...], space: str
) -> int:
    """The epoch of a topic after which those at or after a time begin."""
    reading = reading_of(options.topic)
    return asked(peer, options.connect_timeout, lambda link: reading.before(link, time, space))


EPOCHS: Final = 256
ROWS: Final = 5_000
"""Bounds on rows that travel in the plan: epochs that are read to look for them, and rows."""


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
    if not inline_rows.supported() or any(_large(part) for part in parts):
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
