"""The source, streaming and for batches, as Spark's planner, driver and executors call it.

The driver keeps the offsets (``offsets``), and executors read the rows (``tasks``) straight from the daemon
over connections that outlive their tasks (``connections``).  This file joins the three with Spark's data
source protocol, whose traps are listed in SPARK.md.

Always: the rows of a batch follow from its two offsets alone, so that a batch read again after a crash is
the same batch; data that is gone fails the query unless ``failOnDataLoss`` says otherwise; a daemon that
is away for less than ``connectTimeout`` delays a query and does not fail it.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from dataspace.errors import UsageError
from dataspace.wire.observing import NUMBERS
from relay.spark.common.connections import DaemonPeer, asked, close_all
from relay.spark.common.errors import plain_rows, plainly
from relay.spark.common.frontiers import SourceFrontier
from relay.spark.common.parsing import Moment
from relay.spark.common.schema import EPOCH, Columns, columns
from relay.spark.common.versions import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from relay.spark.common.where import bounds, condition, kept
from relay.spark.source import moments, offsets
from relay.spark.source.admission import BatchAdmission, waits, within
from relay.spark.source.erasures import check_erased
from relay.spark.source.frontiers import FrontierWatch, together
from relay.spark.source.offsets import Json, Span, offsets_by_name, offsets_of, place, state_at
from relay.spark.source.readings import reading_of
from relay.spark.source.shares import StateDivider
from relay.spark.source.spaces import names_of, source_name
from relay.spark.source.tasks import Task, rows
from relay.spark.tuning import internals
from relay.spark.tuning.internals import carrier, spare_collections

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from relay.spark.cold.plans import ColdPlan
    from relay.spark.common.options import ReadOptions, StreamOptions
    from relay.spark.common.parsing import Start


class ChangesStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What a streaming query reads: the changes of one pattern, in batches of whole epochs."""

    def __init__(
        self,
        options: StreamOptions,
        schema: StructType,
        found: Callable[[], StreamOptions] | None = None,
    ) -> None:
        """``found`` returns the options with the spaces that there are by now, where a pattern names them."""
        self._options = options
        self._found = found
        self._next_look = time.monotonic() + LOOK_SECONDS
        self._columns = columns_of(options, schema)
        self._watch = watch(options)
        self._done: Sequence[offsets.Offset | None] = ()
        self._later: dict[int, offsets.Offset] = {}
        self._beginning: Json | None = None
        self._target: Sequence[SourceFrontier] | None = None
        self._seen: Sequence[SourceFrontier] = ()
        self._newest: Json | None = None
        self._planned: Json | None = None
        self._riding: list[pa.RecordBatch] = []
        self._permitted = False
        self._admission = BatchAdmission(options.least, options.connect_timeout)

    @plainly
    def initialOffset(self) -> Json:
        """Returns where the query begins; cached, since Spark asks twice and "latest" must not move."""
        _end_on_sigterm()
        self._check_rights()
        if self._beginning is None:
            starts = zip(self._options.peers, self._options.starts, self._watch.now(), strict=True)
            begun = [replace(self._begun(*each), erased=each[2].erased) for each in starts]
            self._acknowledge(begun)
            self._beginning = self._place(begun)
        return self._beginning

    def getDefaultReadLimit(self) -> ReadLimit:
        """Returns that there is a limit: Spark has none in epochs, so a limit of rows stands for ours."""
        options = self._options
        limit = options.max_epochs or options.max_changes or options.max_bytes
        if limit is None and options.least is not None:
            limit = options.least.changes
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    @plainly
    def prepareForTriggerAvailableNow(self) -> None:
        """Ends the query with the epochs that are on disk now."""
        self._target = self._watch.now()

    @plainly
    def latestOffset(self, start: Json | None = None, limit: ReadLimit | None = None) -> Json:
        """Returns the end of the next batch, or the start if nothing came within ``pollTimeout``.

        Before 4.2 Spark passes neither.  The start is then where the last plan ended, since a query that goes
        on from a checkpoint begins with an empty plan at its newest offset; a new query has no plan yet.
        """
        _end_on_sigterm()
        self._check_rights()
        if start is None:
            start = self._planned or self.initialOffset()
        self._look_for_spaces()
        here = [each or self._late(at) for at, each in enumerate(self._offsets(start))]
        now = self._seen = self._target or self._awaited(here)
        self._newest = self._place(
            [offsets.Offset(max(f.epoch, at.epoch), f.space) for f, at in zip(now, here, strict=True)]
        )
        limited = isinstance(limit, ReadMaxRows)
        if limited and self._target is None and not self._admission.admits(self._options.peers, here, now):
            return start
        end = [
            self._following(peer, at, there, limited=limited)
            for peer, at, there in zip(self._options.peers, here, now, strict=True)
        ]
        if end == here:
            return start
        self._admission.begun()
        if not self._options.fail_on_erasure:
            end = [replace(each, erased=there.erased) for each, there in zip(end, now, strict=True)]
        return self._place(end)

    def reportLatestOffset(self) -> Json | None:
        """Returns the newest epoch that was seen, for the query's progress, and what is read there.

        No request, since Spark asks after every batch.  Spark itself names a Python source by a Java class.
        """
        return None if self._newest is None else {"source": source_name(self._options), **self._newest}

    @plainly
    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """Returns the epochs of a batch, each daemon's apart, divided as ``minPartitions`` asks."""
        _end_on_sigterm()
        self._check_rights()
        self._planned = end
        if start == end:
            return []
        spans = [
            SpanPartition(at, offsets.span(first or offsets.Offset(0, last.space), last), last.space)
            for at, (first, last) in enumerate(zip(self._offsets(start), self._offsets(end), strict=True))
            if last is not None
        ]
        wanted = [each for each in spans if not each.span.empty]
        for each, last in zip(spans, [of for of in self._offsets(end) if of is not None], strict=True):
            self._check_erased(each, last.erased)
        riding = carried(wanted, self._options, self._columns) if self._has_seen(wanted) else None
        if riding is None:
            return [part for each in wanted for part in partitions_of(each, self._options, self._columns)]
        if not riding:
            return []
        self._riding = riding
        self.__class__ = _Carrier  # type: ignore[assignment]  # until getCache, which Spark calls next
        return [CarriedPartition(wanted)]

    def getCache(self, _start: Json, _end: Json) -> Iterator[pa.RecordBatch]:
        """Yields the rows that go with the plan that was just made (see ``inline_rows``)."""
        self.__class__ = ChangesStream
        riding, self._riding = self._riding, []
        return iter(riding)

    @plain_rows
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a partition, on an executor."""
        parts = partition.parts if isinstance(partition, CarriedPartition) else [partition]
        return chain.from_iterable(rows_of(part, self._options, self._columns) for part in parts)

    @plainly
    def commit(self, end: Json) -> None:
        """Allows the log to drop the epochs that a named reader has committed, less one batch."""
        self._acknowledge(self._offsets(end))

    def _acknowledge(self, done: Sequence[offsets.Offset | None]) -> None:
        reader, reading = self._options.reader, reading_of(self._options.topic)
        if reader is not None:
            for at, (peer, last) in enumerate(zip(self._options.peers, done, strict=True)):
                if (
                    last is not None and last not in self._done[at : at + 1]
                ):  # a daemon that is away has told nothing that could be done with
                    says = partial(reading.acknowledge, reader=reader, epoch=last.reached, space=last.space)
                    asked(peer, self._options.connect_timeout, says)
            self._done = done

    def _begun(self, peer: DaemonPeer, start: Start, now: SourceFrontier) -> offsets.Offset:
        """Where reading begins at one daemon."""
        if isinstance(start, tuple | Moment):
            return offsets.beginning_after(moments.before(peer, self._options, start, now), now)
        return offsets.beginning(start, now, fail=self._options.fail_on_loss)

    def _check_erased(self, part: SpanPartition, known: int) -> None:
        """Raises ``RowsErased`` where changes of a batch were erased since the query began."""
        options, span = self._options, part.span
        if options.topic is not None or span.after >= span.upto:
            return
        peer = options.peers[part.at]
        now = self._seen[part.at] if self._seen else frontier(peer, options)
        if now.erased > known:
            check_erased(peer, options, span, part.space, known)

    def stop(self) -> None:
        close_all()

    def _check_rights(self) -> None:
        """Fails the query here rather than in a task; once, whichever of its methods Spark calls first."""
        if not self._permitted:
            check_rights(self._options, self._columns)
            self._permitted = True

    def _look_for_spaces(self) -> None:
        """Takes spaces in that a pattern finds by now; they come behind the others, whose numbers stay."""
        if self._found is None or self._target or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + LOOK_SECONDS
        known = self._options.peers
        names = {(peer.url, peer.space) for peer in known}
        more = [peer for peer in self._found().peers if (peer.url, peer.space) not in names]
        if more:
            starts = self._options.starts
            self._options = replace(
                self._options, peers=(*known, *more), starts=(*starts, *starts[:1] * len(more))
            )
            self._watch, self._seen = watch(self._options), ()

    def _late(self, at: int) -> offsets.Offset:
        """Where reading begins in a space that was not there when the query began."""
        if at not in self._later:
            options = self._options
            peer = options.peers[at]
            now = frontier(peer, options)
            self._later[at] = replace(self._begun(peer, options.starts[at], now), erased=now.erased)
        return self._later[at]

    def _place(self, of: Sequence[offsets.Offset]) -> Json:
        return place(of, self._options.pattern, names_of(self._options))

    def _offsets(self, form: Json) -> Sequence[offsets.Offset | None]:
        names = names_of(self._options)
        if names:
            return offsets_by_name(form, names, self._options.pattern)
        peers = self._options.peers
        return offsets_of(
            form,
            [peer.url for peer in peers],
            self._options.pattern,
            lambda: [f.space for f in self._watch.now()],
        )

    def _following(
        self, peer: DaemonPeer, here: offsets.Offset, now: SourceFrontier, *, limited: bool
    ) -> offsets.Offset:
        """Where the next batch ends for one daemon; ``here`` where there is nothing to read."""
        options = self._options
        loss = offsets.lost(here, now)
        if loss is not None:
            offsets.tolerate(loss, fail=options.fail_on_loss)
            here = offsets.anew(here, now)
        pending = here.pending
        bounded = limited and not options.max_changes is options.max_bytes is None
        if bounded and pending is not None and pending.kind == "snapshot":
            state = StateDivider(peer, options, self._columns, now)
            rows, size = options.max_changes or NUMBERS, options.max_bytes
            return offsets.within_state(here, state.end(pending.epoch, pending.low, rows, size))
        end = offsets.following(here, now, options.max_epochs if limited else None)
        if bounded and end.epoch > here.reached + 1:
            end = replace(end, epoch=within(peer, options, here, end.epoch))
        return end

    def _has_seen(self, parts: Sequence[SpanPartition]) -> bool:
        """True if this process has just seen all epochs to be read, and need not ask for them again."""
        return bool(self._seen) and all(
            part.space == seen.space
            and part.span.upto <= seen.epoch
            and part.span.after >= seen.held_from - 1
            for part, seen in [(part, self._seen[part.at]) for part in parts]
        )

    def _awaited(self, here: Sequence[offsets.Offset]) -> Sequence[SourceFrontier]:
        """The frontiers as soon as one is past ``here``, or after ``pollTimeout``."""
        timeout = self._options.poll_timeout if all(map(waits, here)) else 0.0
        timeout = min(timeout, self._admission.left)
        after = [max(each.reached, self._admission.seen(at, each)) for at, each in enumerate(here)]
        return self._watch.beyond(after, lambda at, now: _is_news(here[at], now, after[at]), timeout)


_Carrier = carrier(ChangesStream)

LOOK_SECONDS: Final = 10.0
"""Seconds between two looks for spaces that a pattern finds."""


def _is_news(here: offsets.Offset, now: SourceFrontier, seen: int) -> bool:
    return not waits(here) or now.epoch > seen or now.space != here.space


def _end_on_sigterm() -> None:
    """Closes the connections when Spark ends a query, which it does with SIGTERM and without ``stop``.

    Called only in the process that plans a stream; a handler that is already set stays.
    """
    ours = threading.current_thread() is threading.main_thread()
    if ours and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _part)


def _part(number: int, _frame: object) -> None:
    close_all()
    signal.signal(number, signal.SIG_DFL)  # an exception here would be reported as the query's failure
    os.kill(os.getpid(), number)


# -- batch reads -----------------------------------------------------------------------------------
#
# Time travel for ``spark.read``: the changes between two epochs, or the state at one. A batch has no place to
# keep: its range is settled once, when Spark plans the read. "latest" and "earliest" are settled on the
# driver, so that a task that is run again reads the same.


class ChangesReader(DataSourceReader):
    """What a batch reads: the changes of some epochs, or the state at one."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        # A state is there or not: unlike a range of epochs, it has no part that could be left.
        self._options = options if options.as_of is None else replace(options, fail_on_loss=True)
        self.schema: Final = schema
        self.columns: Final = columns_of(options, schema)

    @plainly
    def partitions(self) -> Sequence[InputPartition]:
        """Returns the epochs of each daemon; raises ``Refused`` for what the token may not observe."""
        options = self._options
        check_rights(options, self.columns)
        work: list[InputPartition] = []
        for at, now in enumerate(watch(options).now()):
            span = self._span(at, now)
            if not span.empty:
                work += partitions_of(SpanPartition(at, span, now.space), options, self.columns)
        return work

    def span(self, at: int) -> tuple[Span, SourceFrontier]:
        """Returns what is to be read of one daemon now, and how far that is."""
        now = frontier(self._options.peers[at], self._options)
        return self._span(at, now), now

    def _span(self, at: int, now: SourceFrontier) -> Span:
        options = self._options
        if options.as_of is None:
            return self._range(at, now)
        epoch = options.as_of[at]
        if isinstance(epoch, Moment):
            epoch = moments.state_epoch(options.peers[at], options, epoch, now)
        return state_at(epoch, now)

    def _range(self, at: int, now: SourceFrontier) -> Span:
        """The epochs of one daemon that the options ask for."""
        options, peer = self._options, self._options.peers[at]
        first, last = options.firsts[at], options.lasts[at]
        if isinstance(first, tuple | Moment):
            first = moments.before(peer, options, first, now) + 1
        if isinstance(last, tuple | Moment):
            last = moments.upto(peer, options, last, now)
        return _range(
            now.oldest if first == "earliest" else max(first, 1), now.epoch if last == "latest" else last, now
        )

    @plain_rows
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a partition, on an executor."""
        return rows_of(partition, self._options, self.columns)


def _range(first: int, last: int, now: SourceFrontier) -> Span:
    if last > now.epoch:
        raise UsageError(f"endingEpoch {last} has not come yet, the newest epoch is {now.epoch}")
    if first > last + 1:
        raise UsageError(f"startingEpoch {first} is after endingEpoch {last}")
    return Span(first - 1, last)


# -- Partitions ------------------------------------------------------------------------------------
# Streams and batch reads both use partitions once they know where they begin and end. Spark pickles
# a partition into every task. The rows of a small batch need no task: the driver reads them, and
# they travel in the plan.
#
# Always: a partition and the options of its reader are enough to read it; missing epochs are found
# out before a task is made for them.


class SpanPartition(InputPartition):
    """The epochs of one daemon that one task reads; ``at`` says which of the daemons it is."""

    def __init__(self, at: int, span: Span, space: str) -> None:
        self.at = at
        self.span = span
        self.space = space


def columns_of(options: StreamOptions | ReadOptions, schema: StructType) -> Columns:
    """The columns that the options and a schema ask for; raises as ``columns`` does."""
    result = columns(
        options.pattern,
        schema,
        include_value=options.include_value,
        malformed=options.malformed,
        topic=options.topic is not None,
    )
    return replace(result, where=condition(options.where, schema)) if options.where else result


class ArchivedPartition(InputPartition):
    """Archived epochs of one daemon's space that one task reads, as a plan says."""

    def __init__(self, at: int, plan: ColdPlan) -> None:
        self.at = at
        self.plan = plan


def rows_of(
    partition: InputPartition, options: StreamOptions | ReadOptions, columns: Columns
) -> Iterator[pa.RecordBatch]:
    """The rows of a partition, those for which the option ``where`` is true."""
    batches = _all_rows_of(partition, options, columns)
    where = columns.where
    if where is None:
        yield from batches
    else:
        yield from filter(len, (kept(where, batch) for batch in batches))
    spare_collections()


def _all_rows_of(
    partition: InputPartition, options: StreamOptions | ReadOptions, columns: Columns
) -> Iterator[pa.RecordBatch]:
    if isinstance(partition, SpanPartition):  # else it is Spark's own stand-in for "no partitions"
        peer = replace(options.peers[partition.at], read=options.read)
        yield from rows(Task(options, columns, peer, partition.span, partition.space))
    elif isinstance(partition, ArchivedPartition):
        from relay.spark.source import archived  # as above

        yield from archived.cold_rows(partition.plan, columns, options.peers[partition.at], options)


def partitions_of(
    part: SpanPartition, options: StreamOptions | ReadOptions, columns: Columns
) -> list[InputPartition]:
    """Returns a span as the partitions that tasks read, or nothing; ``DataLoss`` for missing epochs.

    Archived epochs come from the archive; the newest state comes from the daemon, which has it at hand.
    """
    peer, span, space = options.peers[part.at], part.span, part.space
    now = frontier(peer, options, span.after)
    left: Span | None = span
    loss = offsets.missing(span, space, now)
    if loss is not None:
        offsets.tolerate(loss, fail=options.fail_on_loss)
        left = offsets.remaining(span, space, now)
    if left is not None and left.as_of is None and columns.where is not None:
        after, upto = bounds(columns.where, EPOCH)
        left = Span(max(left.after, after), left.upto if upto is None else min(left.upto, upto))
    if left is None or left.empty:
        return []
    count = -(-options.partitions // len(options.peers))
    work: list[InputPartition] = []
    for portion in StateDivider(peer, options, columns, now).divided(left, count):
        rest = portion
        if now.archived:
            from relay.spark.source import archived  # loaded where there is an archive

            plans, rest = archived.divided(part.at, portion, now, options, columns)
            work += [ArchivedPartition(part.at, plan) for plan in plans]
        if not rest.empty:
            work += [SpanPartition(part.at, piece, space) for piece in offsets.divided(rest, count, now.gaps)]
    return work


def watch(options: StreamOptions | ReadOptions) -> FrontierWatch[SourceFrontier]:
    """What knows how far all daemons are."""
    return FrontierWatch(len(options.peers), partial(_frontier_at, options))


def _frontier_at(
    options: StreamOptions | ReadOptions, at: int, after: int | None, timeout: float
) -> SourceFrontier:
    return frontier(options.peers[at], options, after, timeout)


def check_rights(options: StreamOptions | ReadOptions, columns: Columns) -> None:
    """Raises ``Refused`` on the driver for what a task would be refused, with all daemons asked at once."""
    reading, bound = reading_of(options.topic), options.connect_timeout
    check = partial(reading.check_rights, wanted=columns)
    together([partial(asked, peer, bound, check) for peer in options.peers if peer.url])


def frontier(
    peer: DaemonPeer, options: StreamOptions | ReadOptions, after: int | None = None, timeout: float = 0.0
) -> SourceFrontier:
    """How far a space is, as soon as that is beyond an epoch or the seconds are over."""
    reading, bound = reading_of(options.topic), options.connect_timeout
    if peer.url:
        now = asked(peer, bound, lambda link: reading.frontier(link, after, timeout))
        if not peer.archive:
            return SourceFrontier(now.epoch, now.oldest, now.space, now.gaps, now.oldest, erased=now.erased)
    from relay.spark.cold import archives  # loaded where there is one

    if peer.url:
        return archives.widened(peer, bound, now, after)
    return archives.archived_frontier(peer, bound, after, timeout)


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
    if not internals.supported() or any(_large(part) for part in parts):
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
