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
from functools import partial
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
from relay.spark.places import offsets_of, place
from relay.spark.reading import Task, rows
from relay.spark.schema import Columns, columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from dataspace.client.blocking_link import Frontier, Link
    from relay.spark.options import ReadOptions, StreamOptions


class ChangesStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What a streaming query reads: the changes of one pattern, in batches of whole epochs."""

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        self._options = options
        self._columns = _columns(options, schema)
        self._beginning: Json | None = None
        self._target: list[Frontier] | None = None
        self._newest: Json | None = None

    def initialOffset(self) -> Json:
        """Where the query begins.  Spark asks twice, and what "latest" is must not move in between."""
        _end_on_sigterm()
        if self._beginning is None:
            pairs = zip(self._options.starts, self._frontiers(), strict=True)
            begun = [offsets.beginning(start, now) for start, now in pairs]
            self._acknowledge([each.reached for each in begun])
            self._beginning = self._place(begun)
        return self._beginning

    def getDefaultReadLimit(self) -> ReadLimit:
        """That there is a limit: Spark has none in epochs, so rows stand for them, and ours decide."""
        options = self._options
        limit = options.max_epochs or options.max_changes
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        """Ends the query with what is on disk now."""
        self._target = self._frontiers()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        """The end of the next batch, or the start again when nothing came within ``pollTimeout``."""
        _end_on_sigterm()
        here = self._offsets(start)
        now = self._target or self._awaited(here)
        self._newest = self._place(
            [offsets.Offset(max(f.epoch, at.epoch), f.space) for f, at in zip(now, here, strict=True)]
        )
        limited = isinstance(limit, ReadMaxRows)
        end = [
            self._following(url, at, frontier, limited=limited)
            for url, at, frontier in zip(self._options.urls, here, now, strict=True)
        ]
        return start if end == here else self._place(end)

    def reportLatestOffset(self) -> Json | None:
        """The newest epoch that was seen; Spark asks this all the time, so it costs nothing."""
        return self._newest

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """The epochs of a batch, those of each daemon apart, divided as ``minPartitions`` asks."""
        _end_on_sigterm()
        made: list[InputPartition] = []
        for url, first, last in zip(
            self._options.urls, self._offsets(start), self._offsets(end), strict=True
        ):
            span = offsets.span(first, last)
            if not span.empty:
                made += _partitions(url, span, last.space, self._options)
        return made

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition, on an executor."""
        return _rows(partition, self._options, self._columns)

    def commit(self, end: Json) -> None:
        """Lets the log drop what a named reader has done: it lags one batch, so that is always too little."""
        self._acknowledge([each.epoch for each in self._offsets(end)])

    def _acknowledge(self, epochs: Sequence[int]) -> None:
        reader = self._options.reader
        if reader is not None:
            for url, epoch in zip(self._options.urls, epochs, strict=True):
                asked(url, self._options.connect_timeout, partial(_done, reader=reader, epoch=epoch))

    def stop(self) -> None:
        close_all()

    def _place(self, of: Sequence[offsets.Offset]) -> Json:
        return place(of, self._options.pattern)

    def _offsets(self, said: Json) -> list[offsets.Offset]:
        return offsets_of(said, self._options.urls, self._options.pattern)

    def _following(self, url: str, here: offsets.Offset, now: Frontier, *, limited: bool) -> offsets.Offset:
        """Where the next batch ends for one daemon; ``here`` where there is nothing to read."""
        options = self._options
        loss = offsets.lost(here, now)
        if loss is not None:
            offsets.tolerate(loss, fail=options.fail_on_loss)
            here = offsets.anew(here, now)
        end = offsets.following(here, now, options.max_epochs if limited else None)
        if limited and options.max_changes is not None and end.epoch > here.reached + 1:
            most = options.max_changes
            upto = asked(
                url, options.connect_timeout, lambda link: link.within(here.reached, end.epoch, most)
            )
            end = offsets.Offset(upto, end.space, end.origin)
        return end

    def _frontiers(self) -> list[Frontier]:
        return [asked(url, self._options.connect_timeout, _now) for url in self._options.urls]

    def _awaited(self, here: Sequence[offsets.Offset]) -> list[Frontier]:
        """The frontiers as soon as one is past ``here``, or after ``pollTimeout``."""
        urls, bound = self._options.urls, self._options.connect_timeout
        if len(urls) > 1:
            now = self._frontiers()
            if any(_is_news(at, frontier) for at, frontier in zip(here, now, strict=True)):
                return now
        timeout = self._options.poll_timeout / len(urls)
        waited: list[Frontier] = []
        for url, at in zip(urls, here, strict=True):
            wait = timeout if _waits(at) and not any(map(_is_news, here, waited)) else 0.0
            waited.append(asked(url, bound, partial(_beyond, epoch=at.reached, timeout=wait)))
        return waited


class ChangesReader(DataSourceReader):
    """What a batch reads: the changes of some epochs, or the state at one."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._columns = _columns(options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        """The epochs of each daemon; "latest" is settled here, so that a task run again reads the same."""
        options = self._options
        made: list[InputPartition] = []
        for url in options.urls:
            now = asked(url, options.connect_timeout, _now)
            span = _range(options, now) if options.as_of is None else _at(options.as_of, now)
            if not span.empty:
                made += _partitions(url, span, now.space, options)
        return made

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition, on an executor."""
        return _rows(partition, self._options, self._columns)


class SpanPartition(InputPartition):
    """The epochs of one daemon that one task reads."""

    def __init__(self, url: str, span: Span, space: str) -> None:
        self.url = url
        self.span = span
        self.space = space


def _columns(options: StreamOptions | ReadOptions, schema: StructType) -> Columns:
    return columns(options.pattern, schema, include_value=options.include_value, malformed=options.malformed)


def _rows(
    partition: InputPartition, options: StreamOptions | ReadOptions, columns: Columns
) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, SpanPartition):  # Spark's own stand-in for "no partitions"
        return iter(())
    return rows(Task(options, columns, partition.url, partition.span, partition.space))


def _partitions(
    url: str, span: Span, space: str, options: StreamOptions | ReadOptions
) -> list[SpanPartition]:
    """What is to be read of one daemon, or nothing; ``DataLoss`` for what is gone."""
    now = asked(url, options.connect_timeout, partial(_beyond, epoch=span.after, timeout=0.0))
    left: Span | None = span
    loss = offsets.missing(span, space, now)
    if loss is not None:
        offsets.tolerate(loss, fail=options.fail_on_loss)
        left = offsets.remaining(span, space, now)
    if left is None or left.empty:
        return []
    count = -(-options.partitions // len(options.urls))
    return [SpanPartition(url, each, space) for each in offsets.divided(left, count, now.gaps)]


def _now(link: Link) -> Frontier:
    return link.frontier()


def _beyond(link: Link, epoch: int, timeout: float) -> Frontier:
    return link.frontier(epoch, timeout)


def _done(link: Link, reader: str, epoch: int) -> None:
    link.acknowledge(reader, epoch)


def _waits(here: offsets.Offset) -> bool:
    """Whether the next batch needs news: a snapshot is one even when nothing follows it."""
    return here.pending is None or here.pending.kind == "after"


def _is_news(here: offsets.Offset, now: Frontier) -> bool:
    return not _waits(here) or now.epoch > here.reached or now.space != here.space


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
