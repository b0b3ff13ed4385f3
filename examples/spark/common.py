"""What the examples share: daemons of their own, a session, a scratch directory, and somebody who watches.

Always: what an example started is gone when it ends, also when it fails.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import dataspace.spark
from dataspace import Closed, DataspaceError, UsageError, connect_blocking
from dataspace.client.bulk.client import BulkClient
from examples.flights.processes import Daemon

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FAILED: Final = 1
INTERRUPTED: Final = 130


def told(
    title: str,
    run: Callable[..., Sequence[tuple[object, ...]]],
    *,
    count: int = 1,
    prepared: Callable[[Path], None] | None = None,
    needs: Sequence[str] = (),
) -> None:
    """Runs an example on ``count`` daemons and a session of its own, and prints the rows that came of it."""
    with ready(title, count, prepared, needs) as (spark, folder, urls):
        show(title, run(spark, folder, *urls))


@contextmanager
def ready(
    title: str, count: int = 1, prepared: Callable[[Path], None] | None = None, needs: Sequence[str] = ()
) -> Iterator[tuple[SparkSession, Path, list[str]]]:
    """What an example runs with; what it is waiting for is said on the standard error.

    Ends the program with 130 where it is interrupted, and with 1 where something fails or is missing: Java,
    or a module that it ``needs``.
    """
    try:
        _check_there("pyspark", "pyarrow", *needs)
        say(f"starting {count} {'daemon' if count == 1 else 'daemons'} and Spark, which takes some seconds")
        with daemons(count, prepared=prepared) as (folder, urls), session(title) as spark:
            say(f"running, on {' and '.join(urls)}")
            yield spark, folder, urls
    except KeyboardInterrupt:
        say("interrupted")
        sys.exit(INTERRUPTED)
    except Exception as error:
        if not isinstance(error, DataspaceError | TimeoutError) and "pyspark" not in type(error).__module__:
            raise
        say(f"failed: {error}")
        sys.exit(FAILED)


def say(what: str) -> None:
    """Tells who waits what an example is at."""
    print(what, file=sys.stderr, flush=True)


def _check_there(*modules: str) -> None:
    """Raises ``UsageError`` for what an example cannot do without."""
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        extras = "the extras `spark` and `connect` of dataspace-server bring it, and so does make venv"
        raise UsageError(f"this example needs {' and '.join(missing)}, not installed here: {extras}")
    if not ("JAVA_HOME" in os.environ or shutil.which("java")):
        raise UsageError(
            "Spark needs a Java runtime, 17 or newer: no java is on the path, and JAVA_HOME is not set"
        )


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
    builder = SparkSession.builder.master("local[2]").appName(name)
    with _unhurried():
        spark = dataspace.spark.session(builder.config("spark.ui.showConsoleProgress", "false"))
    try:
        spark.sparkContext.setLogLevel("OFF")
        yield spark
    finally:
        if before is None:
            spark.stop()


@contextmanager
def _unhurried() -> Iterator[None]:
    """Holds Ctrl-C back until the block is over: a JVM whose start is interrupted stays for ever."""
    pressed = False

    def press(_number: int, _frame: object) -> None:
        nonlocal pressed
        pressed = True
        say("interrupted: this ends as soon as Spark has started")

    before = signal.signal(signal.SIGINT, press)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


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
    with BulkClient(url) as link:
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
