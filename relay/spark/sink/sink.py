"""The sink: a micro-batch becomes one turn, once, however often it is tried.

What Spark calls, of streams and of batch writes: whose facts these are, and which batch.  The writer of a
task, the writer that commits and the writer of the next batch are three objects in as many processes: the
data for the commit travels in the messages.

A task packs what its rows assert, retract or send.  A few bytes ride along with the message that Spark takes
to the driver anyway, so that a small batch needs one request to the daemon: the publishing one.  More is
staged at the daemon, by all tasks at once, each attempt under keys of its own; staged operations are not
visible.  The driver publishes what the attempts that Spark kept have handed in, as one turn that carries the
query's id and the number of the batch.  The daemon remembers that pair in the same transaction, so a batch
that Spark runs again after a crash changes nothing.

Always: nothing is visible before ``commit``; a batch is one epoch or none; operations staged by a losing or
forgotten attempt are discarded with its batch, and its late operations are refused; the query id belongs to
the checkpoint, so a new checkpoint under the same ``writer`` is a new sequence of batches, not a replay.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    WriterCommitMessage,
)

from dataspace.client.bulk.packed import PackedColumns, Pairs, unpacked
from dataspace.codec import most_elements
from dataspace.errors import DataspaceError, InternalError, Refused, UsageError
from dataspace.faults import reach
from relay.spark.common.connections import DaemonPeer, asked, lent
from relay.spark.common.errors import plainly
from relay.spark.common.versions import StreamArrowWriter
from relay.spark.sink.facts import FactWriter
from relay.spark.tuning.internals import spare_collections

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from dataspace.client.bulk.client import BulkClient
    from index.values.values import Value
    from relay.spark.common.options import SinkOptions
    from relay.spark.sink.facts import FactWriter, Part


OWNER: Final = "spark"
"""Whose the facts of a batch write are that names no writer."""


class StreamSink(StreamArrowWriter):
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


# -- batches ---------------------------------------------------------------------------------------


log: Final = logging.getLogger("dataspace.spark")

Key: TypeAlias = tuple[str, ...]

_CHUNK_ROWS: Final = 8_000
_CHUNK_BYTES: Final = 192 * 1024
"""How much is packed into one piece: a frame is limited in bytes and in elements."""

FORGETTING: Final = 1.0
"""Seconds for which a daemon may be away if the only task left is to discard staged operations."""

_SHOWN_BYTES: Final = 16 * 1024
"""From how many bytes on it is worth a message to have the daemon read ahead what rides along."""

_CARRIERS: Final = 64
"""Tasks of a batch whose rows may ride along, which bounds what comes together at the driver."""


@dataclass(frozen=True)
class StagedBatch(WriterCommitMessage):
    """Identifies a batch: its application and number, by which a replay is recognized, and the run."""

    application: str
    number: int
    run: str

    @property
    def prefix(self) -> Key:
        """What the keys of everything staged for this batch begin with, in whichever run."""
        return (self.application, str(self.number))

    @property
    def attempt(self) -> Key:
        """What the keys of this run begin with; they are closed once the batch is through."""
        return (*self.prefix, self.run)


@dataclass(frozen=True)
class Handed(WriterCommitMessage):
    """The operations that one task handed in for its batch: its additions and retractions, in order.

    Each piece is the key under which it is staged, or the packed operations themselves.  The two are apart
    because partitions have no order among them: a fact that moves from one to another within a batch must
    have come before it goes.
    """

    batch: StagedBatch
    adding: tuple[Key | bytes, ...] = ()
    retracting: tuple[Key | bytes, ...] = ()


def hand_in(
    options: SinkOptions, facts: FactWriter, batch: StagedBatch, rows: Iterator[pa.RecordBatch]
) -> Handed:
    """Hands in the rows of one task: packed, as long as they are few, else staged; on an executor."""
    reach("spark-before-stage")
    carried: dict[bool, list[bytes]] = {False: [], True: []}
    parts = (part for chunk in _chunks(rows) for part in facts.parts(chunk))
    room = options.carry_bytes if _partition() < _CARRIERS else 0
    passed: list[Part] = []
    for part in parts:
        passed.append(part)
        body = part[1].packed()
        room -= len(body)
        if room < 0:
            return _staged(options, batch, passed, parts)
        carried[part[0]].append(body)
    _show(options, carried[False] + carried[True])
    reach("spark-after-stage")
    return Handed(batch, tuple(carried[False]), tuple(carried[True]))


def publish(
    options: SinkOptions,
    batch: StagedBatch,
    handed: Sequence[Handed],
    *,
    owner: str,
    replace: bool,
    by: Value = None,
    exclusive: bool = False,
) -> int | None:
    """Publishes a batch as one turn and returns its epoch; the same batch again changes nothing.

    ``owner`` is whose the facts are where the options name no writer.  A batch without rows makes no turn
    unless it replaces.  With ``exclusive`` the writer is this application's until another one begins.
    """
    pieces = [piece for each in handed for piece in each.adding]
    pieces += [piece for each in handed for piece in each.retracting]
    owner = options.writer or owner
    client, sequence = f"spark:{batch.application}", batch.number + 1

    def turn(link: BulkClient) -> int:
        return link.publish(
            _fitting(link, batch, pieces),
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
    if not pieces and not replace:
        discard(options, handed)
        return None
    try:
        epoch = asked(options.peer, options.connect_timeout, turn)
    except Refused as refusal:
        raise _explained(refusal, options, batch) from None
    reach("spark-after-commit")
    return epoch


def _explained(refusal: Refused, options: SinkOptions, batch: StagedBatch) -> Refused:
    """A refusal in the words of options, where the daemon's are about turns."""
    if refusal.code not in ("old-sequence", "not-applied"):
        return refusal
    if options.application is None:
        said = f"batch {batch.number} of query {batch.application} is behind what the query has published"
        return Refused(refusal.code, f"{said}: its checkpoint was set back; give the query a new one")
    said = f"option txnVersion is {batch.number}, but txnAppId {batch.application!r} has written a higher one"
    return Refused(refusal.code, f"{said}: give a number that is higher with every write")


_permitted: Final[set[tuple[DaemonPeer, str]]] = set()
"""Pairs of peer and owner that were checked in this process: each batch of a stream makes a new writer."""


def check_rights(options: SinkOptions, owner: str) -> None:
    """Raises ``Refused`` on the driver if the token may not write for an owner; nothing is written.

    What facts it may assert shows only with the facts.
    """
    if (options.peer, owner) not in _permitted:
        asked(options.peer, options.connect_timeout, partial(_check_owner, owner=owner))
        _permitted.add((options.peer, owner))


def _check_owner(link: BulkClient, owner: str) -> None:
    try:  # a publication without a number is none, but the daemon looks at the rights before
        link.request("publish", {"keys": (), "owner": owner, "client": "spark:"})
    except Refused as refusal:
        if refusal.code != "bad-request":
            raise


def discard(options: SinkOptions, handed: Sequence[Handed]) -> None:
    """Discards everything that was staged for the batch of some messages, and whatever comes too late."""
    for batch in {each.batch for each in handed}:
        _forget(options, batch.prefix, close=batch.attempt)


def _staged(options: SinkOptions, batch: StagedBatch, first: Sequence[Part], rest: Iterator[Part]) -> Handed:
    """Stages the operations of one task, piece by piece.

    The keys hold a random word, because the number of an attempt begins anew with every start of the
    query: what an attempt of a killed run left behind never mixes with this one's.
    """
    attempt = (*batch.attempt, *_attempt(), secrets.token_hex(8))
    keys: dict[bool, list[Key]] = {False: [], True: []}
    try:
        for some in (first, rest):
            for retracts, operations in some:
                key = (*attempt, str(len(keys[retracts])), "-" if retracts else "+")
                _stage_piece(options, key, operations)
                keys[retracts].append(key)
    except DataspaceError:
        _forget(options, attempt)
        raise
    reach("spark-after-stage")
    return Handed(batch, tuple(keys[False]), tuple(keys[True]))


def _show(options: SinkOptions, bodies: Sequence[bytes]) -> None:
    """Sends the riding bytes to the daemon while Spark takes them to the driver; nothing happens if the
    daemon is away."""
    if sum(map(len, bodies)) >= _SHOWN_BYTES:
        with contextlib.suppress(DataspaceError), lent(options.peer) as link:
            for body in bodies:
                link.prepare(body)


def _stage_piece(options: SinkOptions, key: Key, operations: PackedColumns | Pairs) -> None:
    """Stages one piece; a link that broke may have carried it or not, so trying again begins anew."""
    tried = False

    def turn(link: BulkClient) -> None:
        nonlocal tried
        if tried:
            link.discard(key)
        tried = True
        link.stage(key, operations)

    asked(options.peer, options.connect_timeout, turn)


def _fitting(link: BulkClient, batch: StagedBatch, pieces: Sequence[Key | bytes]) -> list[Key | bytes]:
    """Returns the pieces as one request can take them: pieces beyond its size are staged after all.

    Half of a frame is left to the keys.
    """
    room, most = link.limits.frame_bytes // 2, link.limits.portion_bytes
    fitting: list[Key | bytes] = []
    for piece in pieces:
        if isinstance(piece, bytes):
            if len(piece) > room or most_elements(piece) > most:
                key = (*batch.prefix, "driver", secrets.token_hex(8))  # which is not closed with the attempt
                link.stage(key, unpacked(piece))
                piece = key
            else:
                room -= len(piece)
        fitting.append(piece)
    return fitting


def _forget(options: SinkOptions, prefix: Key, close: Key | None = None) -> None:
    """Discards what is not needed, or leaves it to the daemon to drop in time.

    A batch that failed must fail for its own reason, and not wait once more for the daemon that was away; a
    published batch must not fail for this.
    """
    bound = min(options.connect_timeout, FORGETTING)
    try:
        asked(options.peer, bound, partial(_discard, prefix=prefix, close=close))
    except DataspaceError as error:
        log.warning("%s; what is staged under %s goes when the daemon finds it too old", error, prefix)


def _discard(link: BulkClient, prefix: Key, close: Key | None) -> None:
    link.discard(prefix, close=close)


def _chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Record batches cut to what one frame can carry."""
    for batch in batches:
        if not batch.num_rows:
            continue
        rows = max(1, min(_CHUNK_ROWS, _CHUNK_BYTES * batch.num_rows // max(1, batch.nbytes)))
        for at in range(0, batch.num_rows, rows):
            yield batch.slice(at, rows)


def _partition() -> int:
    """Which of the tasks of a batch runs here."""
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def _attempt() -> Key:
    context = TaskContext.get()
    return (str(_partition()), str(context.attemptNumber() if context else 0))
