"""What SPARK.md says of a killed planning process: Spark ends the query, and the recipe starts it again."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from relay.spark import frames
from tests.relay.spark.daemons import Daemon
from tests.relay.spark.queries import PATIENCE, Seen, stream, until
from tests.relay.spark.warm_planners import STAND_IN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.slow, pytest.mark.spark]


def recipe() -> Callable[..., None]:
    """The function ``supervised`` of SPARK.md."""
    text = (Path(frames.__file__).parent / "SPARK.md").read_text()
    (code,) = re.findall(r"```python\n(import time\n.*?def supervised.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)  # as a reader would run it
    return names["supervised"]  # type: ignore[no-any-return]  # a function


def planners(spark: SparkSession) -> list[int]:
    """The planning processes of a session's queries."""
    java = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]  # a classic session has one
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            command = (folder / "cmdline").read_bytes()
        except (OSError, IndexError):  # it has ended meanwhile
            continue
        if parent == java and b"python_streaming_source_runner" in command:
            found.append(int(folder.name))
    return found


def test_a_query_goes_on_after_its_planning_process_was_killed(
    spark: SparkSession, daemon: Daemon, label: str, tmp_path: Path
) -> None:
    seen = Seen()
    started: list[StreamingQuery] = []
    failed: list[BaseException] = []

    def start() -> StreamingQuery:
        frame = stream(spark, daemon.url, f"{label}($n:int)")
        writer = frame.writeStream.foreachBatch(seen.take).option("checkpointLocation", str(tmp_path / "c"))
        started.append(writer.start())
        return started[-1]

    def run() -> None:
        try:
            recipe()(start, pause=0.0)
        except BaseException as error:
            failed.append(error)
            raise

    before = planners(spark)
    daemon.turn(f"+{label}(1)")
    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: [row[0] for row in seen.rows] == [1] and started[0].lastProgress is not None)
    (planner,) = set(planners(spark)) - set(before)
    assert STAND_IN.name.encode() in Path(f"/proc/{planner}/cmdline").read_bytes(), "it was forked"
    os.kill(planner, signal.SIGKILL)
    daemon.turn(f"+{label}(2)")
    until(lambda: [row[0] for row in seen.rows] == [1, 2])
    assert len(started) == 2 and isinstance(started[0].exception(), StreamingQueryException)
    started[-1].stop()
    thread.join(PATIENCE)
    assert not thread.is_alive() and not failed
