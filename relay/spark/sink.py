"""The sink: a micro-batch becomes one turn, once, however often it is tried.

Executors stage what their rows assert, retract or send at the daemon, each attempt of a task under keys
of its own; nobody sees any of it.  When all tasks are done the driver publishes the attempts that Spark
kept, as one turn that carries the query's id and the number of the batch.  The daemon remembers that pair
in the same transaction, so a batch that Spark runs again after a crash changes nothing.

The writer that stages, the one that commits and the one of the next batch are three objects in as many
processes: what the commit must know travels in the messages.

Always: nothing is visible before ``commit``; a batch is one epoch or none; what a losing or forgotten
attempt staged is discarded with its batch, and what one is late with is refused.  The query id belongs to
the checkpoint: a new checkpoint under the same ``writer`` is a new sequence of batches, not a replay.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from dataspace.errors import DataspaceError, InternalError, UsageError
from relay.faults import reach
from relay.spark.errors import plainly
from relay.spark.facts import Facts, Operation
from relay.spark.links import asked

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from dataspace.client.blocking_link import Link
    from dataspace.client.staged import Columns
    from index.values import Value
    from relay.spark.options import SinkOptions

log: Final = logging.getLogger("dataspace.spark")

Key: TypeAlias = tuple[str, ...]

CHUNK_ROWS: Final = 8_000
CHUNK_BYTES: Final = 192 * 1024
"""How much is staged at once: a frame is limited in bytes and in elements."""


FORGETTING: Final = 1.0
"""Seconds for which a daemon may be away that is only to be told what nobody needs."""


@dataclass(frozen=True)
class Batch(WriterCommitMessage):
    """Which batch of which application this is: what a replay is recognized by; and which run makes it."""

    application: str
    number: int
    run: str

    @property
    def prefix(self) -> Key:
        """What the keys of everything staged for this batch begin with, in whichever run."""
        return (self.application, str(self.number))

    @property
    def attempt(self) -> Key:
        """What those of this run begin with: nobody may be late with them once the batch is through."""
        return (*self.prefix, self.run)


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What one task staged: its batch, and the keys of what it adds and of what it retracts, in order.

    They are apart because partitions have no order among them: a fact that moves from one to another
    within a batch must have come before it goes.
    """

    batch: Batch
    adding: tuple[Key, ...] = ()
    retracting: tuple[Key, ...] = ()


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
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return stage(self._options, self._facts, _running_batch(), iterator)

    @plainly
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        staged = _staged(messages)
        if not staged:  # a result without partitions: nothing was staged, nor is there an id to say so under
            return
        batch = staged[0].batch
        owner = query_owner(self._options, batch.application)
        publish(
            self._options,
            batch,
            staged,
            owner=owner,
            replace=self._overwrite,
            by=self._facts.by,
            exclusive=True,
        )

    @plainly
    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        discard(self._options, _staged(messages))


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
        self._batch = Batch(options.application or run, options.version or 0, run)

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return stage(self._options, self._facts, self._batch, iterator)

    @plainly
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        staged = _staged(messages)
        publish(
            self._options,
            self._batch,
            staged,
            owner="spark",
            replace=self._overwrite,
            by=self._facts.by,
            exclusive=self._options.application is not None,
        )

    @plainly
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        discard(self._options, [Staged(self._batch)])


def facts(options: SinkOptions, schema: StructType) -> Facts:
    """How rows of a schema become facts."""
    return Facts(
        schema,
        template=options.template,
        label=options.label,
        keys=options.keys,
        messages=options.messages,
        dead_letter=options.dead_letter,
    )


def stage(options: SinkOptions, facts: Facts, batch: Batch, rows: Iterator[pa.RecordBatch]) -> Staged:
    """Stages the rows of one task, in chunks; on an executor.

    The keys hold a random word, because the number of an attempt begins anew with every start of the
    query: what an attempt of a killed run left behind never mixes with this one's.
    """
    reach("spark-before-stage")
    attempt = (*batch.attempt, *_attempt(), secrets.token_hex(8))
    keys: dict[bool, list[Key]] = {False: [], True: []}
    try:
        for number, chunk in enumerate(_chunks(rows)):
            for retracts, operations in facts.parts(chunk):
                key = (*attempt, str(number), "-" if retracts else "+")
                _stage_chunk(options, key, operations)
                keys[retracts].append(key)
    except DataspaceError:
        _forget(options, attempt)
        raise
    reach("spark-after-stage")
    return Staged(batch, tuple(keys[False]), tuple(keys[True]))


def publish(
    options: SinkOptions,
    batch: Batch,
    staged: Sequence[Staged],
    *,
    owner: str,
    replace: bool,
    by: Value = None,
    exclusive: bool = False,
) -> int | None:
    """Publishes a batch as one turn, and answers with its epoch; the same batch again changes nothing.

    ``owner`` is whose the facts are where the options name no writer.  A batch without rows makes no turn
    unless it replaces.  With ``exclusive`` the writer is this application's until another one begins.
    """
    keys = [key for each in staged for key in each.adding]
    keys += [key for each in staged for key in each.retracting]
    owner = options.writer or owner
    client, sequence = f"spark:{batch.application}", batch.number + 1

    def turn(link: Link) -> int:
        return link.publish(
            keys,
            client=client,
            sequence=sequence,
            owner=owner,
            replace=replace,
            by=by,
            exclusive=exclusive,
            discard=batch.prefix,
            close=batch.attempt,
        )

    reach("spark-before-commit")
    if not keys and not replace:
        discard(options, staged)
        return None
    epoch = asked(options.peer, options.connect_timeout, turn)
    reach("spark-after-commit")
    return epoch


def query_owner(options: SinkOptions, query: str) -> str:
    """Whose the facts of a query are that names no writer: a lease's if they are to go with it."""
    if options.lease is None:
        return f"spark:{query}"
    return f"lease:{max(1, round(options.lease * 1000))}:spark-{query}"


def discard(options: SinkOptions, staged: Sequence[Staged]) -> None:
    """Discards everything that was staged for the batch of some messages, and whatever comes too late."""
    for batch in {each.batch for each in staged}:
        _forget(options, batch.prefix, close=batch.attempt)


def _forget(options: SinkOptions, prefix: Key, close: Key | None = None) -> None:
    """Discards what is not needed, or leaves it to the daemon to drop in time.

    A batch that failed must fail for its own reason, and not wait once more for the daemon that was away; one
    that is published must not fail for this.
    """
    bound = min(options.connect_timeout, FORGETTING)
    try:
        asked(options.peer, bound, partial(_discard, prefix=prefix, close=close))
    except DataspaceError as error:
        log.warning("%s; what is staged under %s goes when the daemon finds it too old", error, prefix)


def _discard(link: Link, prefix: Key, close: Key | None) -> None:
    link.discard(prefix, close=close)


def _stage_chunk(options: SinkOptions, key: Key, operations: Columns | Sequence[Operation]) -> None:
    """Stages one chunk; a link that broke may have carried it or not, so trying again begins anew."""
    tried = False

    def turn(link: Link) -> None:
        nonlocal tried
        if tried:
            link.discard(key)
        tried = True
        link.stage(key, operations)

    asked(options.peer, options.connect_timeout, turn)


def _chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Record batches cut to what one frame can carry."""
    for batch in batches:
        if not batch.num_rows:
            continue
        rows = max(1, min(CHUNK_ROWS, CHUNK_BYTES * batch.num_rows // max(1, batch.nbytes)))
        for at in range(0, batch.num_rows, rows):
            yield batch.slice(at, rows)


def _running_batch() -> Batch:
    """The batch of the task that runs here."""
    context = TaskContext.get()
    query = context and context.getLocalProperty("sql.streaming.queryId")
    number = context and context.getLocalProperty("streaming.sql.batchId")
    run = context and context.getLocalProperty("spark.jobGroup.id")  # Spark's name for this run of the query
    if not query or not number or not run:
        raise InternalError("Spark does not say which query, run and batch this task belongs to")
    return Batch(query, int(number), run)


def _attempt() -> Key:
    context = TaskContext.get()
    if context is None:
        return ("0", "0")
    return (str(context.partitionId()), str(context.attemptNumber()))


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    """The messages of the tasks that came to their end; None stands for one that did not."""
    return [message for message in messages if isinstance(message, Staged)]
