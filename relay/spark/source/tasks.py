"""Tasks: what an executor does for one task, over a connection that may break at any moment.

The driver says which epochs, and in which space; here they become record batches.  Apart from the source
because it runs elsewhere, in processes that know nothing of the query, and can be tested without Spark.

Always: the rows of a task come once each and in order, however often the link breaks and however epochs are
cut into parts; a missing epoch is an error unless the query accepts a loss.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from dataspace.errors import Broken, Refused
from relay.spark.common.connections import AWAY, DaemonPeer, RetryPatience, asked, lent
from relay.spark.common.fitting import fitted
from relay.spark.common.schema import (
    ASSERTED_AT,
    ASSERTED_EPOCH,
    CHANGE_TYPE,
    CRASHED,
    DAEMON,
    EPOCH,
    EPOCH_TIMESTAMP,
    OWNER,
    SEQ,
    SPACE,
    TIME,
    TRACED,
    Column,
    Columns,
)
from relay.spark.source import offsets
from relay.spark.source.offsets import Span
from relay.spark.source.readings import reading_of

if TYPE_CHECKING:
    from dataspace.client.bulk.blocks import Block
    from dataspace.client.bulk.client import BulkClient
    from relay.spark.cold.plans import ColdPlan
    from relay.spark.common.options import ReadOptions, StreamOptions
    from relay.spark.common.parsing import Malformed


BEHIND_SECONDS: Final = 5.0
"""How long a task waits for a daemon that is behind, before it asks another one."""


@dataclass(frozen=True, slots=True)
class Task:
    """The range that one task reads, and its patience."""

    options: StreamOptions | ReadOptions
    columns: Columns
    peer: DaemonPeer
    span: Span
    space: str


def rows(task: Task) -> Iterator[pa.RecordBatch]:
    """The rows of a task: the state first, if it begins with one, then the changes.

    Raises ``DataLoss`` when they are gone, ``Misfit`` for a value that its column cannot hold, and
    ``Unreachable`` after ``connectTimeout`` without a daemon.
    """
    options, columns = task.options, task.columns
    if task.span.share is not None:
        yield from batches(_share_blocks(task), columns, options.batch_rows, peer=task.peer)
        task = replace(task, span=Span(task.span.after, task.span.upto))
    elif task.span.as_of is not None:
        state = asked(task.peer, options.connect_timeout, partial(_state, task=task))
        yield from state.batches(options.batch_rows)
        task = replace(task, span=Span(task.span.after, task.span.upto))
    if not task.span.empty:
        yield from batches(blocks(task), columns, options.batch_rows, peer=task.peer)


def _state(link: BulkClient, task: Task) -> SortedState:
    """The whole state with which a task begins: it is read again from its start where the link breaks."""
    alone = replace(task.span, upto=task.span.after)
    state = SortedState(task.columns)
    blocks = _asked_for(link, task, alone)
    for batch in batches(blocks, task.columns, task.options.batch_rows, peer=task.peer):
        state.add(batch)
    return state


def _share_blocks(task: Task) -> Iterator[Block]:
    """The part of a state with which a task begins, in the order of its numbers, once each row."""
    alone = replace(task.span, upto=task.span.after)
    patience = RetryPatience(task.options.connect_timeout)
    had = 0
    while True:
        try:
            with lent(task.peer) as link:
                left = had
                for block in _asked_for(link, task, alone):
                    repeated = min(left, len(block))
                    left -= repeated
                    if repeated < len(block):
                        patience.answered()
                        had += len(block) - repeated
                        yield block.without(repeated) if repeated else block
            return
        except AWAY as error:
            patience.spent(error)


@dataclass(frozen=True, slots=True)
class _Place:
    """The progress of a task: the rest to be read, and the number of rows of its first epoch that it has
    had; ``started`` once it has had a block."""

    left: Span
    epoch: int = -1
    had: int = 0
    started: bool = False

    def after(self, block: Block) -> _Place:
        """The place once a block has been passed on."""
        last = block.numbers[-1]
        if not block.more:
            return _Place(replace(self.left, after=last), started=True)
        first = block.skipped if len(block.numbers) == 1 else 0
        left = replace(self.left, after=max(self.left.after, last - 1))
        return _Place(left, last, first + block.totals()[-1], started=True)


def blocks(task: Task) -> Iterator[Block]:
    """All blocks of a task, once each row, however often the link breaks in between."""
    place = _Place(task.span)
    patience = RetryPatience(task.options.connect_timeout)
    while not place.left.empty:
        try:
            with lent(task.peer) as link:
                for block in _rest(link, task, place):
                    patience.answered()
                    place = place.after(block)
                    yield block
            return
        except AWAY as error:
            patience.spent(error)


def _rest(link: BulkClient, task: Task, place: _Place) -> Iterator[Block]:
    """Yields the rest of a task, over one link: the rows of a half-read epoch are not passed on twice."""
    return _unrepeated(_asked_for(link, task, place.left), place)


def _unrepeated(blocks: Iterable[Block], place: _Place) -> Iterator[Block]:
    """Yields blocks without the rows of a half-read epoch that were passed on before."""
    had = place.had
    for block in blocks:
        repeated = min(had, block.totals()[0]) if block.numbers[0] == place.epoch else 0
        had -= repeated
        if repeated < len(block):
            yield block.without(repeated) if repeated else block


def _asked_for(link: BulkClient, task: Task, span: Span) -> Iterator[Block]:
    reading, wanted = reading_of(task.options.topic), task.columns
    if task.peer.read == "any":
        _wait_for(link, task, span.upto)
    place = _Place(span)
    try:
        for block in reading.blocks(link, wanted, span, task.space):
            place = place.after(block)
            yield block
    except Refused as refusal:
        if refusal.code not in ("epoch-gone", "epoch-ahead"):
            raise
        if task.peer.archive and refusal.code == "epoch-gone":
            if place.left.as_of is not None and place.started:
                raise Broken(refusal.text) from None  # so that the state is read again from its start
            plan = _archived(task, place.left)
            if plan is not None:
                yield from _unrepeated(_archived_blocks(task, plan), place)
                if plan.upto < span.upto:
                    yield from _asked_for(link, task, Span(plan.upto, span.upto))
                return
        offsets.tolerate(refusal.text, fail=task.options.fail_on_loss)
        left = offsets.remaining(place.left, task.space, reading.frontier(link))
        if left is not None:
            yield from _unrepeated(reading.blocks(link, wanted, left, task.space), place)


def _archived(task: Task, left: Span) -> ColdPlan | None:
    """Returns a plan for epochs that a daemon has let go, if they were archived before; None if not."""
    from relay.spark.cold.plans import ColdPlan  # loaded where there is an archive
    from relay.spark.cold.segments import archived_upto

    upto = archived_upto(task.peer, task.options.connect_timeout, task.space, left.after, left.upto)
    if upto > left.after or (upto == left.as_of == left.after):
        return ColdPlan(task.space, left.after, upto, state=left.as_of is not None, share=left.share)
    return None


def _archived_blocks(task: Task, plan: ColdPlan) -> Iterator[Block]:
    """Yields the rows that the daemon would have sent."""
    from relay.spark.cold.segments import archived_blocks  # as above

    return archived_blocks(task.peer, task.options.connect_timeout, plan, task.columns)


def _wait_for(link: BulkClient, task: Task, epoch: int) -> None:
    """Waits until a daemon has an epoch, which another one has; raises ``Broken`` if that takes too long."""
    seconds = min(BEHIND_SECONDS, task.options.connect_timeout)
    now = reading_of(task.options.topic).frontier(link, epoch - 1, seconds)
    if now.epoch < epoch and now.space == task.space:
        link.close()
        raise Broken(f"a daemon of {link.url} is at epoch {now.epoch}, and epoch {epoch} is wanted")


# -- sorting ---------------------------------------------------------------------------------------
#
# A snapshot has no order of its own, and the same one must be the same rows in the same order again. It may
# be larger than an executor: so its rows are sorted in runs, the runs are kept in files, and the files are
# merged as their rows are taken. The order does not depend on how rows came, nor on the size of a run; a file
# has no name any more once it can be read, so that a worker that is killed leaves none behind.


_RUN_ROWS: Final = 500_000
"""Rows that are sorted at once, and so the rows that a task holds: some 50 MB for three columns."""

_CHUNK_ROWS: Final = 20_000
"""Rows of each run that a merge holds."""


class SortedState:
    """The rows of a state: all are added, then taken once, in order; O(n log n), one run in memory."""

    def __init__(self, columns: Columns, *, run_rows: int = _RUN_ROWS, chunk_rows: int = _CHUNK_ROWS) -> None:
        self._columns = columns
        self._captured = [
            column.name for column in columns.all if column.capture is not None or column.name in TRACED
        ]
        self._run_rows = run_rows
        self._chunk_rows = chunk_rows
        self._waiting: list[pa.RecordBatch] = []
        self._count = 0
        self._runs: list[pa.RecordBatchFileReader] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Takes some rows; writes a run to a file when there are enough for one."""
        self._waiting.append(batch)
        self._count += batch.num_rows
        if self._count >= self._run_rows:
            self._runs.append(_in_file(self._run(), self._chunk_rows))

    def batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yields all rows in order, in batches of ``rows``, with their numbers in ``_seq``."""
        last = self._run()
        if self._runs:
            runs = [_chunks(reader) for reader in self._runs]
            merged = self._merged(
                [*runs, iter([last.slice(at, self._chunk_rows) for at in self._starts(last)])]
            )
        else:
            merged = iter([last])
        number = 0
        for table in _sized(merged, rows):
            yield from self._numbered(table, number).to_batches(max_chunksize=rows)
            number += table.num_rows

    def _starts(self, table: pa.Table) -> range:
        return range(0, table.num_rows, self._chunk_rows)

    def _run(self) -> pa.Table:
        """The rows that wait, sorted; none wait any more."""
        table = pa.Table.from_batches(self._waiting, schema=self._columns.arrow)
        self._waiting, self._count = [], 0
        return table.take(self._order(table))

    def _order(self, table: pa.Table) -> pa.Array:
        """The places of rows in their order."""
        if not self._captured:
            return pa.array(range(table.num_rows), pa.int64())
        keys = pa.table({name: _sortable(table.column(name)) for name in self._captured})
        return _compute().sort_indices(keys, sort_keys=[(name, "ascending") for name in self._captured])

    def _merged(self, runs: Sequence[Iterator[pa.Table]]) -> Iterator[pa.Table]:
        """Merges runs: hands on all held rows that no row still to come can precede."""
        held: dict[int, pa.Table] = {}
        while True:
            for at, run in enumerate(runs):
                if at not in held and (chunk := next(run, None)) is not None:
                    held[at] = chunk
            if not held:
                return
            whole = pa.concat_tables(held.values())
            order = self._order(whole)
            bounds, start = [], 0
            for table in held.values():
                bounds.append((start, start + table.num_rows))
                start += table.num_rows
            compute = _compute()
            # The last row of a chunk is followed by rows not yet read; the first such one is the bound.
            sure = 1 + min(compute.index(order, end - 1).as_py() for _, end in bounds)
            taken = order.slice(0, sure)
            yield whole.take(taken)
            for at, (begin, end) in zip(list(held), bounds, strict=True):
                mine = compute.and_(compute.greater_equal(taken, begin), compute.less(taken, end))
                rest = held.pop(at).slice(compute.sum(mine).as_py())  # sorted and stable, so it is the first
                if rest.num_rows:
                    held[at] = rest
            held = dict(sorted(held.items()))

    def _numbered(self, table: pa.Table, first: int) -> pa.Table:
        if SEQ not in table.schema.names:
            return table
        at = table.schema.get_field_index(SEQ)
        numbers = pa.array(range(first, first + table.num_rows), pa.int64())
        return table.set_column(at, table.schema.field(at), numbers)


def _in_file(table: pa.Table, rows: int) -> pa.RecordBatchFileReader:
    """A table in a file without a name, mapped into memory."""
    number, path = tempfile.mkstemp(prefix="dataspace-snapshot-")
    try:
        with os.fdopen(number, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=rows)
        return pa.ipc.open_file(pa.memory_map(path))
    finally:
        os.unlink(path)


def _chunks(reader: pa.RecordBatchFileReader) -> Iterator[pa.Table]:
    for at in range(reader.num_record_batches):
        yield pa.Table.from_batches([reader.get_batch(at)])


def _sized(tables: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """The same rows in tables of a multiple of ``rows``, but for the last."""
    waiting: list[pa.Table] = []
    count = 0
    for table in tables:
        waiting.append(table)
        count += table.num_rows
        if count >= rows:
            whole = pa.concat_tables(waiting).combine_chunks()
            full = count - count % rows
            yield whole.slice(0, full)
            waiting, count = [whole.slice(full)], count - full
    if count:
        yield pa.concat_tables(waiting).combine_chunks()


def _sortable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column by which equal rows only are equal: 0.0 and -0.0 are two values, and NaN is one.

    Arrow does not sort lists and maps, and structs not by their floats; the text of a value stands for it.
    """
    if pa.types.is_nested(column.type):
        texts = [pa.array(list(map(repr, chunk.to_pylist())), pa.string()) for chunk in column.chunks]
        return pa.chunked_array(texts, pa.string())
    if not pa.types.is_floating(column.type):
        return column
    return pa.chunked_array([chunk.view(pa.int64()) for chunk in column.chunks], pa.int64())


def _compute() -> Any:
    """Arrow's functions, which take 50 ms to load: most of Spark's processes plan, and read nothing."""
    import pyarrow.compute

    return pyarrow.compute


# -- Rows ------------------------------------------------------------------------------------------
# Spark checks only the first batch of a task, and reads the memory of the others as whatever the
# schema says. So every batch is built from the one schema that Spark derives from ours: order,
# types, nullability.
#
# Always: one row for each change that an observer of the pattern would be told, in the same order;
# a snapshot, which has no order of its own, is sorted elsewhere (``sorting``); ``_seq`` is the place
# of a row among all changes of its epoch, also when the epoch comes in several blocks; a value that
# does not fit its column is an error that names the epoch and the column, never a conversion.


CHANGE_TYPES: Final = ["insert", "message", "delete"]
"""In the order in which the changes of an epoch come."""


def batches(
    blocks: Iterable[Block], columns: Columns, rows: int, *, peer: DaemonPeer | None = None
) -> Iterator[pa.RecordBatch]:
    """Record batches of at least ``rows`` rows each but the last, cut between blocks.

    Raises ``Misfit`` for a value that does not fit.  Holds one batch at a time, so the memory is ``rows``
    rows and one block.
    """
    waiting: list[pa.RecordBatch] = []
    count = 0
    for block in blocks:
        waiting.append(batch(block, columns, peer=peer))
        count += waiting[-1].num_rows
        if count >= rows:
            yield _joined(waiting)
            waiting, count = [], 0
    if count:
        yield _joined(waiting)


def _joined(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if len(parts) == 1:
        return parts[0]
    (whole,) = pa.Table.from_batches(parts).combine_chunks().to_batches()
    return whole


def batch(block: Block, columns: Columns, *, peer: DaemonPeer | None = None) -> pa.RecordBatch:
    """One block as a record batch; O(rows), nearly all of it in Arrow."""
    own = _own_columns(block, columns, peer)
    bad: set[int] = set()
    record_batch = pa.RecordBatch.from_arrays(
        [
            own[column.name]() if column.capture is None else _captured(column, block, columns.malformed, bad)
            for column in columns.all
        ],
        schema=columns.arrow,
    )
    if bad and columns.malformed == "drop":
        return record_batch.filter(pa.array([at not in bad for at in range(len(block))]))
    return record_batch


def _own_columns(
    block: Block, columns: Columns, peer: DaemonPeer | None
) -> dict[str, Callable[[], pa.Array]]:
    """Returns the makers of the columns that do not come from captures; an unwanted column costs nothing."""
    totals = block.totals()

    def kinds() -> pa.Array:
        counts = chain.from_iterable(zip(block.added, block.messages, block.removed, strict=True))
        return _repeated(CHANGE_TYPES * len(totals), counts, pa.string())

    def seqs() -> pa.Array:
        if block.places is not None:
            return _compute().cast(
                pa.Array.from_buffers(pa.int32(), len(block), [None, pa.py_buffer(block.places)]), pa.int64()
            )
        # Counting goes on over the whole block; each epoch takes away what came before it.
        before = accumulate(totals[:-1], initial=0)
        offsets = [at if number else -block.skipped for number, at in enumerate(before)]
        return _compute().subtract(_ascending(len(block)), _repeated(offsets, totals, pa.int64()))

    def times() -> pa.Array:
        coordinates = pa.array(block.coordinates, columns.arrow.field(TIME).type)  # type: ignore[attr-defined]  # a topic's
        return coordinates.take(_repeated(range(len(totals)), totals, pa.int64()))

    return {
        CHANGE_TYPE: kinds,
        EPOCH: lambda: _repeated(block.numbers, totals, pa.int64()),
        EPOCH_TIMESTAMP: lambda: _repeated(block.times, totals, pa.timestamp("us", tz="UTC")),
        TIME: times,
        CRASHED: lambda: _repeated(block.crashes, totals, pa.string()),  # type: ignore[attr-defined]  # as above
        SEQ: seqs,
        ASSERTED_EPOCH: lambda: _since(block, 0),
        ASSERTED_AT: lambda: _since(block, 1).view(pa.timestamp("us", tz="UTC")),
        OWNER: lambda: pa.array(block.owners, pa.string()),
        DAEMON: lambda: pa.repeat("" if peer is None else peer.shown, len(block)),
        SPACE: lambda: pa.repeat("" if peer is None else peer.space, len(block)),
    }


def _since(block: Block, part: int) -> pa.Array:
    """Returns the epoch, or its time, from which on each row was there; null where that is not known."""
    assert block.since is not None  # as was requested
    known = pa.Array.from_buffers(pa.int64(), len(block), [None, pa.py_buffer(block.since[part])])
    compute = _compute()
    return compute.if_else(compute.less(known, 0), pa.scalar(None, pa.int64()), known)


def _repeated(values: Iterable[object], counts: Iterable[int], kind: pa.DataType) -> pa.Array:
    """Each value as often as its count says; O(values) here, and the rest in Arrow."""
    runs = [(value, count) for value, count in zip(values, counts, strict=True) if count]
    ends = pa.array(accumulate([count for _, count in runs]), pa.int32())
    each = pa.array([value for value, _ in runs], kind)
    return _compute().run_end_decode(pa.RunEndEncodedArray.from_arrays(ends, each))


def _ascending(count: int) -> pa.Array:
    """0, 1, 2 and so on."""
    ones = pa.repeat(pa.scalar(1, pa.int64()), count)
    compute = _compute()
    return compute.subtract(compute.cumulative_sum(ones), 1)


def _captured(column: Column, block: Block, malformed: Malformed, bad: set[int]) -> pa.Array:
    """Returns the values of a capture; values that do not fit are null and in ``bad``, if they do not
    fail."""
    assert column.capture is not None  # as the caller has seen
    return fitted(column, block.columns[column.capture], malformed, bad, partial(_epoch_of, block))


def _epoch_of(block: Block, row: int) -> int:
    for number, count in zip(block.numbers, block.totals(), strict=True):
        if row < count:
            return number
        row -= count
    raise IndexError(row)
