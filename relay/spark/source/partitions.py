"""Partitions: the epochs and the daemon that a task reads, and the number of tasks that share a batch.

Streams and batch reads both use partitions once they know where they begin and end.  Spark pickles a
partition into every task.  The rows of a small batch need no task: the driver reads them, and they travel in
the plan.

Always: a partition and the options of its reader are enough to read it; missing epochs are found out before a
task is made for them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Final, TypeVar

from pyspark.sql.datasource import InputPartition

from relay.spark.common.connections import DaemonPeer, asked
from relay.spark.common.schema import Columns, columns
from relay.spark.source import offsets
from relay.spark.source.offsets import Span
from relay.spark.source.readings import reading_of
from relay.spark.source.tasks import Task, rows
from relay.spark.tuning import internals
from relay.spark.tuning.internals import spare_collections

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


# -- frontiers -------------------------------------------------------------------------------------
#
# How far are several daemons? Asked in turn, a daemon that is slow or away holds up the news of all others,
# once for each question. So each is asked on a thread of its own, and a question that is still open is not
# asked again: its daemon is taken to be where it was last, and the others go on. A daemon that has never
# answered is waited for; a daemon whose question failed fails the next caller; a watch that is pickled leaves
# its questions behind.


T = TypeVar("T")

_MARGIN: Final = 0.05
"""Seconds that an answer may come late: a daemon that has waited as long as it was asked to still answers."""


class FrontierWatch:
    """Keeps the frontiers of ``count`` daemons, and asks several daemons at the same time.

    ``ask(at, after, timeout)`` returns how far one is, once that is beyond ``after`` or the time is over.
    """

    def __init__(self, count: int, ask: Callable[[int, int | None, float], LogFrontier]) -> None:
        self._ask: Final = ask
        self._count: Final = count
        self._known: dict[int, LogFrontier] = {}
        self._open: dict[int, Future[LogFrontier]] = {}

    def now(self) -> list[LogFrontier]:
        """Returns the frontiers of all; takes as long as the slowest daemon, and raises the error of a
        daemon."""
        return together([partial(self._ask, at, None, 0.0) for at in range(self._count)])

    def beyond(
        self, after: Sequence[int], is_news: Callable[[int, LogFrontier], bool], timeout: float
    ) -> list[LogFrontier]:
        """How far all are known to be, as soon as one is news or the seconds are over."""
        if self._count == 1:
            return [self._ask(0, after[0], timeout)]
        end = time.monotonic() + timeout + _MARGIN
        for at in range(self._count):
            if at not in self._open:
                self._open[at] = _started(partial(self._ask, at, after[at], timeout))
        while self._open:
            complete = len(self._known) == self._count
            if complete and any(is_news(at, told) for at, told in self._known.items()):
                break
            left = max(0.0, end - time.monotonic()) if complete else None
            if not wait(self._open.values(), left, FIRST_COMPLETED).done:
                break
            self._take_answers()
        return [self._known[at] for at in range(self._count)]

    def _take_answers(self) -> None:
        for at in [at for at, question in self._open.items() if question.done()]:
            self._known[at] = self._open.pop(at).result()

    def __reduce__(self) -> tuple[object, ...]:
        return FrontierWatch, (self._count, self._ask)


def together(questions: Sequence[Callable[[], T]]) -> list[T]:
    """The answers to some questions asked at the same time; raises the first error in their order."""
    first, *others = questions
    running = [_started(each) for each in others]
    return [first(), *[each.result() for each in running]]


def _started(question: Callable[[], T]) -> Future[T]:
    """Asks on a thread that does not outlive the program."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(question())
        except BaseException as error:  # noqa: BLE001  # raised again where the result is asked for
            future.set_exception(error)

    Thread(target=run, name="dataspace frontier", daemon=True).start()
    return future
