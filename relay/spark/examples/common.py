"""What the examples share: daemons of their own, a session, a scratch directory, and somebody who watches.

Always: what an example started is gone when it ends, also when it fails.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import relay.spark
from dataspace import connect_blocking
from dataspace.client.blocking_link import Link
from dataspace.errors import Closed
from relay.spark.demo.processes import Daemon

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def told(
    title: str,
    run: Callable[..., Sequence[tuple[object, ...]]],
    *,
    count: int = 1,
    prepared: Callable[[Path], None] | None = None,
) -> None:
    """Runs an example on ``count`` daemons and a session of its own, and prints the rows that came of it."""
    with daemons(count, prepared=prepared) as (folder, urls), session(title) as spark:
        show(title, run(spark, folder, *urls))


@contextmanager
def daemons(
    count: int, *, prepared: Callable[[Path], None] | None = None
) -> Iterator[tuple[Path, list[str]]]:
    """A scratch directory, and so many daemons on free ports; their addresses.

    ``prepared`` may put something into the data directory of each before it starts.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        yield folder, [_started(stack, folder / f"daemon {at}", prepared) for at in range(count)]


def _started(stack: ExitStack, folder: Path, prepared: Callable[[Path], None] | None) -> str:
    folder.mkdir()
    if prepared is not None:
        prepared(folder / "data")
    return stack.enter_context(Daemon(folder)).url


@contextmanager
def session(name: str) -> Iterator[SparkSession]:
    """A quiet local session, which ends with the block unless it was there before."""
    from pyspark.sql import SparkSession

    before = SparkSession.getActiveSession()
    spark = relay.spark.session(SparkSession.builder.master("local[2]").appName(name))
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        if before is None:
            spark.stop()


class Watcher(threading.Thread):
    """Observes a pattern, as a display would, and keeps what it was told."""

    def __init__(self, url: str, pattern: str) -> None:
        super().__init__(daemon=True)
        self._space = connect_blocking(url, name="watcher")
        self._changes = self._space.observe(pattern)
        self.told: list[tuple[object, ...]] = []
        self._news = threading.Condition()

    def run(self) -> None:
        with contextlib.suppress(Closed):  # that is how it ends
            for change in self._changes:
                with self._news:
                    self.told.append((change.kind, *change.captures))
                    self._news.notify_all()

    def wait(self, count: int) -> None:
        """Returns once it was told so many changes; ``TimeoutError`` after a minute."""
        with self._news:
            if not self._news.wait_for(lambda: len(self.told) >= count, 60):
                raise TimeoutError(f"{count} changes expected, told were {self.told}")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._space.close()
        self.join()


def drain(frame: DataFrame, folder: Path, name: str, mode: str = "append") -> list[tuple[object, ...]]:
    """Runs a query over all that is there, to its end, and answers with what its result table holds."""
    writer = frame.writeStream.format("memory").queryName(name).outputMode(mode)
    writer = writer.option("checkpointLocation", str(folder / name)).trigger(availableNow=True)
    writer.start().awaitTermination()
    return sorted(map(tuple, frame.sparkSession.table(name).collect()), key=repr)


def caught_up(query: StreamingQuery, spark: SparkSession, table: str, url: str) -> list[tuple[object, ...]]:
    """What a table in memory holds once its query has taken in all that the daemon has on disk now."""
    with Link(url) as link:
        now = link.frontier().epoch
    end = time.monotonic() + 60
    while time.monotonic() < end:
        error = query.exception()
        if error is not None:
            raise error
        progress = query.lastProgress
        if progress and json.loads(progress["sources"][0]["endOffset"] or "{}").get("epoch", -1) >= now:
            return sorted(map(tuple, spark.table(table).collect()), key=repr)
        time.sleep(0.05)
    raise TimeoutError(f"epoch {now} did not come to {table} within a minute")


def show(title: str, rows: Sequence[tuple[object, ...]]) -> None:
    """Prints a small table."""
    print(title)
    for row in rows:
        print("   ", *row)
