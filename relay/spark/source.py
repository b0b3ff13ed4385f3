"""The source: what Spark's planner, driver and executors ask, and what a dataspace answers.

The driver keeps the place (``offsets``), the executors read the rows (``rows``) straight from the daemon
over links that outlive their tasks (``links``).  This file is the meeting of the three with Spark's data
source protocol, whose surprises are listed in SPARK.md.

Always: the rows of a batch follow from its two offsets alone, so that a batch read again after a crash is
the same batch; data that is gone fails the query unless ``failOnDataLoss`` says otherwise; a daemon that
is away for less than ``connectTimeout`` delays a query and does not fail it.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from dataspace.errors import Refused, UsageError
from relay.spark import offsets
from relay.spark.links import AWAY, Patience, asked, close_all, lent
from relay.spark.offsets import DataLoss, Json, Span
from relay.spark.rows import batches, in_order, without
from relay.spark.schema import Columns, columns, parsed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from dataspace.client.blocking_link import Frontier, Link
    from dataspace.client.changes import EpochChanges
    from index.values import Value
    from relay.spark.options import ReadOptions, StreamOptions

log: Final = logging.getLogger("dataspace.spark")


class ChangesStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What a streaming query reads: the changes of one pattern, in batches of whole epochs."""

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        self._options = options
        self._columns = columns(options.pattern, schema)
        self._beginning: Json | None = None
        self._target: Frontier | None = None
        self._newest: Json | None = None

    def initialOffset(self) -> Json:
        """Where the query begins.  Spark asks twice, and what "latest" is must not move in between."""
        _end_on_sigterm()
        if self._beginning is None:
            self._beginning = offsets.beginning(self._options.start, self._frontier()).json()
        return self._beginning

    def getDefaultReadLimit(self) -> ReadLimit:
        """``maxEpochsPerTrigger``; Spark has no limit in epochs, so its rows stand for them."""
        limit = self._options.max_epochs
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        """Ends the query with what is on disk now."""
        self._target = self._frontier()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        """The end of the next batch, or the start again when nothing came within ``pollTimeout``."""
        _end_on_sigterm()
        here = offsets.offset(start)
        now = self._target or self._awaited(here)
        self._newest = offsets.Offset(now.epoch, now.space).json()
        loss = offsets.lost(here, now)
        if loss is not None:
            _tolerate(loss, self._options)
            here = offsets.anew(here, now)
        end = offsets.following(here, now, limit.max_rows if isinstance(limit, ReadMaxRows) else None)
        return start if end.json() == start else end.json()

    def reportLatestOffset(self) -> Json | None:
        """The newest epoch that was seen; Spark asks this all the time, so it costs nothing."""
        return self._newest

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """One partition: the epochs of a batch come in order, and so do its rows."""
        _end_on_sigterm()
        last = offsets.offset(end)
        span = offsets.span(offsets.offset(start), last)
        return _partitions(span, last.space, self._frontier(), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition, on an executor."""
        assert isinstance(partition, SpanPartition)
        return rows(Task(self._options, self._columns, partition.span, partition.space))

    def commit(self, end: Json) -> None:
        """Nothing: it lags one batch and never comes for the last, so nothing may depend on it."""

    def stop(self) -> None:
        close_all()

    def _frontier(self) -> Frontier:
        return asked(self._options.url, self._options.connect_timeout, _now)

    def _awaited(self, here: offsets.Offset) -> Frontier:
        """The frontier as soon as it is past ``here``, or after ``pollTimeout``."""
        origin = here.pending
        waits = origin is None or origin.kind == "after"
        timeout = self._options.poll_timeout if waits else 0.0
        return asked(
            self._options.url,
            self._options.connect_timeout,
            lambda link: link.frontier(here.reached, timeout),
        )


class ChangesReader(DataSourceReader):
    """What a batch reads: the changes of some epochs, or the state at one."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._columns = columns(options.pattern, schema)

    def partitions(self) -> Sequence[InputPartition]:
        """One partition; what "latest" means is settled here, so that a task run again reads the same."""
        options = self._options
        now = asked(options.url, options.connect_timeout, _now)
        span = _range(options, now) if options.as_of is None else _at(options.as_of, now)
        return _partitions(span, now.space, now, options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition, on an executor."""
        if not isinstance(partition, SpanPartition):  # Spark's own stand-in for "no partitions"
            return iter(())
        return rows(Task(self._options, self._columns, partition.span, partition.space))


class SpanPartition(InputPartition):
    """The epochs that one task reads."""

    def __init__(self, span: Span, space: str) -> None:
        self.span = span
        self.space = space


def _partitions(
    span: Span, space: str, now: Frontier, options: StreamOptions | ReadOptions
) -> list[InputPartition]:
    """One partition, or none where there is nothing to read; ``DataLoss`` for what is gone."""
    left: Span | None = span
    loss = offsets.missing(span, space, now)
    if loss is not None:
        _tolerate(loss, options)
        left = offsets.remaining(span, space, now)
    return [] if left is None or left.empty else [SpanPartition(left, space)]


def _now(link: Link) -> Frontier:
    return link.frontier()


def _at(as_of: Literal["latest"] | int, now: Frontier) -> Span:
    at = now.epoch if as_of == "latest" else as_of
    if at > now.epoch:
        raise UsageError(f"asOfEpoch {at} has not come yet, the newest epoch is {now.epoch}")
    return Span(at, at, as_of=at or None)


def _range(options: ReadOptions, now: Frontier) -> Span:
    first = now.oldest if options.first == "earliest" else max(options.first, 1)
    last = now.epoch if options.last == "latest" else options.last
    if last > now.epoch:
        raise UsageError(f"endingEpoch {last} has not come yet, the newest epoch is {now.epoch}")
    if first > last + 1:
        raise UsageError(f"startingEpoch {first} is after endingEpoch {last}")
    return Span(first - 1, last)


def _tolerate(loss: str, options: StreamOptions | ReadOptions) -> None:
    if options.fail_on_loss:
        raise DataLoss(f"{loss} (failOnDataLoss=false goes on with what there is)")
    log.warning("%s; going on with what there is, as failOnDataLoss=false asks", loss)


# -- reading, on an executor --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Task:
    """What one task reads, and how patiently."""

    options: StreamOptions | ReadOptions
    columns: Columns
    span: Span
    space: str


def rows(task: Task) -> Iterator[pa.RecordBatch]:
    """The rows of a task: the state first, if it begins with one, then the changes.

    Raises ``DataLoss`` when they are gone, ``Misfit`` for a value that its column cannot hold, and
    ``Unreachable`` after ``connectTimeout`` without a daemon.
    """
    options, columns = task.options, task.columns
    if task.span.as_of is not None:
        state = asked(options.url, options.connect_timeout, partial(_state, task=task))
        yield from in_order(state, columns, options.batch_rows)
        task = replace(task, span=Span(task.span.after, task.span.upto))
    if not task.span.empty:
        yield from batches(changes(task), columns, options.batch_rows)


def _state(link: Link, task: Task) -> list[pa.RecordBatch]:
    """The whole state with which a task begins: it is read again from its start where the link breaks."""
    alone = replace(task.span, upto=task.span.after)
    return list(batches(_asked_for(link, task, alone), task.columns, task.options.batch_rows))


@dataclass(frozen=True, slots=True)
class _Place:
    """How far a task has come: what is left to read, and how many rows of its first epoch it has had."""

    left: Span
    epoch: int = -1
    rows: int = 0

    def after(self, part: EpochChanges) -> _Place:
        """The place once a part has been passed on; where a new epoch begins, the one before was whole."""
        if part.number == self.epoch:
            return replace(self, rows=self.rows + len(part))
        left = self.left if self.epoch < 0 else replace(self.left, after=self.epoch)
        return _Place(left, part.number, len(part))


def changes(task: Task) -> Iterator[EpochChanges]:
    """All parts of a task's epochs, once each, however often the link breaks in between."""
    place = _Place(task.span)
    patience = Patience(task.options.connect_timeout)
    while True:
        try:
            with lent(task.options.url) as link:
                for part in _rest(link, task, place):
                    patience.answered()
                    place = place.after(part)
                    yield part
            return
        except AWAY as error:
            patience.spent(error)


def _rest(link: Link, task: Task, place: _Place) -> Iterator[EpochChanges]:
    """What is left of a task, over one link: the rows of a half-read epoch are not passed on twice."""
    had = place.rows
    for part in _asked_for(link, task, place.left):
        had = had if part.number == place.epoch else 0
        skipped = min(had, len(part))
        had -= skipped
        if skipped < len(part):
            yield without(part, skipped) if skipped else part


def _asked_for(link: Link, task: Task, span: Span) -> Iterator[EpochChanges]:
    pattern = parsed(task.options.pattern)
    try:
        _check_space(link, task)
        yield from _spanned(link, pattern, span)
    except Refused as refusal:
        if refusal.code not in ("epoch-gone", "epoch-ahead"):
            raise
        _tolerate(refusal.text, task.options)
        left = offsets.remaining(span, task.space, link.frontier())
        if left is not None:
            yield from _spanned(link, pattern, left)


def _check_space(link: Link, task: Task) -> None:
    space = link.welcome.space
    if space != task.space:
        raise Refused("epoch-gone", f"the dataspace is another one now: it is {space}, it was {task.space}")


def _spanned(link: Link, pattern: Value, span: Span) -> Iterator[EpochChanges]:
    if span.as_of is not None:
        return link.changes(pattern, as_of=span.as_of, upto=span.upto)
    return link.changes(pattern, after=span.after, upto=span.upto)


def _end_on_sigterm() -> None:
    """Says goodbye to the daemon when Spark ends a query, which it does with SIGTERM and without ``stop``.

    Only the process that plans a stream comes here, and only a handler that nobody set is replaced.
    """
    ours = threading.current_thread() is threading.main_thread()
    if ours and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _part)


def _part(number: int, _frame: object) -> None:
    close_all()
    signal.signal(number, signal.SIG_DFL)  # an exception here would be reported as the query's failure
    os.kill(os.getpid(), number)
