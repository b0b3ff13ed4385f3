"""The sink: a micro-batch becomes one turn, once, however often it is tried.

What Spark calls, of streams and of batch writes: whose facts these are, and which batch.  How a batch is
handed in and becomes a turn is in ``batches.py``.  The writer of a task, the writer that commits and the
writer of the next batch are three objects in as many processes: the data for the commit travels in the
messages.

Always: nothing is visible before ``commit``; the query id belongs to the checkpoint, so a new checkpoint
under the same ``writer`` is a new sequence of batches, not a replay.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from dataspace.errors import InternalError, UsageError
from relay.spark.common.errors import plainly
from relay.spark.sink.batches import Handed, StagedBatch, check_rights, discard, hand_in, publish
from relay.spark.sink.facts import FactWriter
from relay.spark.tuning.workers import spare_collections

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from relay.spark.common.options import SinkOptions


OWNER: Final = "spark"
"""Whose the facts of a batch write are that names no writer."""


class StreamSink(DataSourceStreamArrowWriter):
    """What a streaming query writes with; Spark makes one for each batch, and others to commit it."""

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        if options.application is not None:
            raise UsageError(
                "txnAppId and txnVersion are for batch writes: a stream has its query id and batches"
            )
        self._options = options
        self._facts = facts(options, schema)
        self._overwrite = overwrite

    @plainly
    def check_rights(self) -> None:
        """Raises ``Refused`` if the writer may not be written for; without a writer the commit does."""
        owner = self._options.writer or (query_owner(self._options, "check") if self._options.lease else None)
        if owner is not None:
            check_rights(self._options, owner)

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Handed:
        handed = hand_in(self._options, self._facts, _running_batch(), iterator)
        spare_collections()
        return handed

    @plainly
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        handed = _handed(messages)
        if not handed:  # a result without partitions: nothing is there, nor an id to say so under
            return
        batch = handed[0].batch
        owner = query_owner(self._options, batch.application)
        publish(
            self._options,
            batch,
            handed,
            owner=owner,
            replace=self._overwrite,
            by=self._facts.by,
            exclusive=True,
        )
        spare_collections()

    @plainly
    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        discard(self._options, _handed(messages))


class BatchSink(DataSourceArrowWriter):
    """What ``df.write`` writes with; it travels to the executors and back to the commit."""

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        if options.lease is not None:
            raise UsageError("owner=query is for streams: nothing runs on after a batch write")
        if overwrite and options.writer is None:
            raise UsageError("overwrite replaces the whole set of a writer: say whose, with option writer")
        self._options = options
        self._facts = facts(options, schema)
        self._overwrite = overwrite
        run = secrets.token_hex(16)
        self._batch = StagedBatch(options.application or run, options.version or 0, run)

    @plainly
    def check_rights(self) -> None:
        """Raises ``Refused`` if the writer may not be written for."""
        check_rights(self._options, self._options.writer or OWNER)

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Handed:
        handed = hand_in(self._options, self._facts, self._batch, iterator)
        spare_collections()
        return handed

    @plainly
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        handed = _handed(messages)
        publish(
            self._options,
            self._batch,
            handed,
            owner=OWNER,
            replace=self._overwrite,
            by=self._facts.by,
            exclusive=self._options.application is not None,
        )
        spare_collections()

    @plainly
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        discard(self._options, [Handed(self._batch)])


def facts(options: SinkOptions, schema: StructType) -> FactWriter:
    """How rows of a schema become facts."""
    return FactWriter(
        schema,
        template=options.template,
        label=options.label,
        keys=options.keys,
        messages=options.messages,
        dead_letter=options.dead_letter,
    )


def query_owner(options: SinkOptions, query: str) -> str:
    """Whose the facts of a query are that names no writer: a lease's if they are to go with it."""
    if options.lease is None:
        return f"spark:{query}"
    return f"lease:{max(1, round(options.lease * 1000))}:spark-{query}"


def _running_batch() -> StagedBatch:
    """The batch of the task that runs here."""
    context = TaskContext.get()
    query = context and context.getLocalProperty("sql.streaming.queryId")
    number = context and context.getLocalProperty("streaming.sql.batchId")
    run = context and context.getLocalProperty("spark.jobGroup.id")  # Spark's name for this run of the query
    if not query or not number or not run:
        raise InternalError("Spark does not say which query, run and batch this task belongs to")
    return StagedBatch(query, int(number), run)


def _handed(messages: Sequence[WriterCommitMessage | None]) -> list[Handed]:
    """Returns the messages of the tasks that came to their end; None stands for a task that did not."""
    return [message for message in messages if isinstance(message, Handed)]
