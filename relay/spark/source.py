"""The source: what Spark's planner, driver and executors ask, and what a dataspace answers.

The driver keeps the place (``offsets``), the executors read the rows (``reading``) straight from the daemon
over links that outlive their tasks (``links``).  This file is the meeting of the three with Spark's data
source protocol, whose surprises are listed in SPARK.md.

Always: the rows of a batch follow from its two offsets alone, so that a batch read again after a crash is
the same batch; data that is gone fails the query unless ``failOnDataLoss`` says otherwise; a daemon that
is away for less than ``connectTimeout`` delays a query and does not fail it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from dataspace.errors import UsageError
from relay.spark import offsets
from relay.spark.links import asked, close_all
from relay.spark.offsets import Json, Span
from relay.spark.reading import Task, rows
from relay.spark.schema import columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from dataspace.client.blocking_link import Frontier, Link
    from relay.spark.options import ReadOptions, StreamOptions


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
            offsets.tolerate(loss, fail=self._options.fail_on_loss)
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
        offsets.tolerate(loss, fail=options.fail_on_loss)
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
