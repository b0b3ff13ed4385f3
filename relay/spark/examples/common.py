"""What the examples share: a daemon of their own, a session, and a scratch directory.

Always: what an example started is gone when it ends, also when it fails.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import relay.spark
from relay.spark.demo.processes import Daemon

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@contextmanager
def daemons(count: int) -> Iterator[tuple[Path, list[str]]]:
    """A scratch directory, and so many daemons on free ports; their addresses."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        yield folder, [_started(stack, folder / f"daemon {at}") for at in range(count)]


def _started(stack: ExitStack, folder: Path) -> str:
    folder.mkdir()
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


def drain(frame: DataFrame, folder: Path, name: str, mode: str = "append") -> list[tuple[object, ...]]:
    """Runs a query over all that is there, to its end, and answers with what its result table holds."""
    writer = frame.writeStream.format("memory").queryName(name).outputMode(mode)
    writer = writer.option("checkpointLocation", str(folder / name)).trigger(availableNow=True)
    writer.start().awaitTermination()
    return sorted(map(tuple, frame.sparkSession.table(name).collect()), key=repr)


def show(title: str, rows: Sequence[tuple[object, ...]]) -> None:
    """Prints a small table."""
    print(title)
    for row in rows:
        print("   ", *row)
