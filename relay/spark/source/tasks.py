"""Tasks: what an executor does for one task, over a connection that may break at any moment.

The driver says which epochs, and in which space; here they become record batches.  Apart from the source
because it runs elsewhere, in processes that know nothing of the query, and can be tested without Spark.

Always: the rows of a task come once each and in order, however often the link breaks and however epochs are
cut into parts; a missing epoch is an error unless the query accepts a loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from dataspace.errors import Refused
from relay.spark.common.connections import AWAY, DaemonPeer, RetryPatience, asked, lent
from relay.spark.common.schema import Columns
from relay.spark.source import offsets
from relay.spark.source.offsets import Span
from relay.spark.source.readings import reading_of
from relay.spark.source.rows import batches
from relay.spark.source.sorting import SortedState

if TYPE_CHECKING:
    import pyarrow as pa

    from dataspace.client.bulk.blocks import Block
    from dataspace.client.bulk.client import BulkClient
    from relay.spark.common.options import ReadOptions, StreamOptions


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
    if task.span.as_of is not None:
        state = asked(task.peer, options.connect_timeout, partial(_state, task=task))
        yield from state.batches(options.batch_rows)
        task = replace(task, span=Span(task.span.after, task.span.upto))
    if not task.span.empty:
        yield from batches(blocks(task), columns, options.batch_rows, url=task.peer.url)


def _state(link: BulkClient, task: Task) -> SortedState:
    """The whole state with which a task begins: it is read again from its start where the link breaks."""
    alone = replace(task.span, upto=task.span.after)
    state = SortedState(task.columns)
    blocks = _asked_for(link, task, alone)
    for batch in batches(blocks, task.columns, task.options.batch_rows, url=task.peer.url):
        state.add(batch)
    return state


@dataclass(frozen=True, slots=True)
class _Place:
    """The progress of a task: the rest to be read, and the number of rows of its first epoch that it has
    had."""

    left: Span
    epoch: int = -1
    had: int = 0

    def after(self, block: Block) -> _Place:
        """The place once a block has been passed on."""
        last = block.numbers[-1]
        if not block.more:
            return _Place(replace(self.left, after=last))
        first = block.skipped if len(block.numbers) == 1 else 0
        left = replace(self.left, after=max(self.left.after, last - 1))
        return _Place(left, last, first + block.totals()[-1])


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
    had = place.had
    for block in _asked_for(link, task, place.left):
        repeated = min(had, block.totals()[0]) if block.numbers[0] == place.epoch else 0
        had -= repeated
        if repeated < len(block):
            yield block.without(repeated) if repeated else block


def _asked_for(link: BulkClient, task: Task, span: Span) -> Iterator[Block]:
    reading, pattern = reading_of(task.options.topic), task.columns.pattern
    try:
        yield from reading.blocks(link, pattern, span, task.space)
    except Refused as refusal:
        if refusal.code not in ("epoch-gone", "epoch-ahead"):
            raise
        offsets.tolerate(refusal.text, fail=task.options.fail_on_loss)
        left = offsets.remaining(span, task.space, reading.frontier(link))
        if left is not None:
            yield from reading.blocks(link, pattern, left, task.space)
