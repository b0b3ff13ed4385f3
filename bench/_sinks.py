"""Batches into a sink, ours and one that drops what it gets, by turns and from the same source.

Part of ``bench/spark.py``.  The source is Spark's own ``rate-micro-batch``, of which the JVM makes three
columns in two partitions, so that what is measured is the sink and what Spark does for each batch.  The JVM
compiles what it runs often, for some hundred batches: a rate is that of a query after others, not measured.

The two share Spark's Python workers, and with them what spares those their collections
(``relay/spark/tuning/internals.py``): rows are dropped more quickly here than by a query without us.

Always: the two take their turns right after one another, each with a new checkpoint, ours with a new daemon.
"""

from __future__ import annotations

import os
import statistics
import time
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench._processes import serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

SMALL: Final = 10_000
LARGE: Final = 1_000_000
BATCHES: Final = 40
"""Batches in one turn of a sink; an owner may have a million facts, which is a hundred small batches."""

WARMING: Final = 3
"""Turns of each sink that are not measured."""

PHASES: Final = ("triggerExecution", "addBatch", "queryPlanning", "walCommit", "commitOffsets")


@dataclass
class Turn:
    """One query's batches: how long each took, phase by phase in ms; the seconds of all, and CPU of each."""

    rows: int
    phases: list[dict[str, int]]
    seconds: float
    spark_cpu: float
    daemon_cpu: float

    @property
    def rate(self) -> float:
        return self.rows * len(self.phases) / self.seconds

    def median(self, phase: str) -> float:
        return statistics.median([each.get(phase, 0) for each in self.phases])


def measure_sink(spark: SparkSession, folder: Path, *, rounds: int, quick: bool) -> dict[str, float]:
    """The figures of both sizes."""
    small, large, count = (SMALL, LARGE // 50, 5) if quick else (SMALL, LARGE, BATCHES)
    turns: dict[str, list[Turn]] = {}
    for at in range(rounds + (0 if quick else WARMING)):
        for name, rows, batches in (("_10k", small, count), ("", large, 1)):
            if name or quick or at >= WARMING:
                for sink in ("dropped", "sink"):
                    turn = _turn(spark, sink, folder / f"{sink}{name} {at}", rows, batches)
                    turns.setdefault(sink + name, []).append(turn)
    measured = {name: each[-rounds:] for name, each in turns.items()}
    return _rates(measured) | _small(measured["sink_10k"], measured["dropped_10k"])


def _rates(turns: dict[str, list[Turn]]) -> dict[str, float]:
    figures: dict[str, float] = {}
    for size in ("_10k", ""):
        ours, dropped = turns[f"sink{size}"], turns[f"dropped{size}"]
        figures[f"sink_rows_per_s{size}"] = max(each.rate for each in ours)
        figures[f"dropped_rows_per_s{size}"] = max(each.rate for each in dropped)
        figures[f"sink_ratio_dropped{size}"] = statistics.median(
            [one.rate / other.rate for one, other in zip(ours, dropped, strict=True)]
        )
        figures[f"sink_daemon_cpu_us{size}"] = 1e6 * min(each.daemon_cpu / each.rows for each in ours)
    return figures


def _small(ours: list[Turn], dropped: list[Turn]) -> dict[str, float]:
    """Where the time of a small batch goes, in the best turn of each sink."""
    figures: dict[str, float] = {}
    for sink, turns in (("sink", ours), ("dropped", dropped)):
        best = max(turns, key=lambda each: each.rate)
        for phase in PHASES:
            figures[f"{sink}_ms_10k_{phase}"] = best.median(phase)
        figures[f"{sink}_ms_10k_spark_cpu"] = 1000 * min(each.spark_cpu for each in turns)
    return figures


def _turn(spark: SparkSession, sink: str, checkpoint: Path, rows: int, count: int) -> Turn:
    """Some batches of so many rows into a sink."""
    if sink == "dropped":
        return _run(_stream(spark, "dropped", rows), checkpoint, rows, count, None)
    with serving() as served:
        writer = _stream(spark, "dataspace", rows).option("url", served.url)
        return _run(writer.option("template", "row($n, $name, $x)"), checkpoint, rows, count, served.pid)


def _stream(spark: SparkSession, sink: str, rows: int) -> DataStreamWriter:
    """A stream of batches of so many rows, into a sink."""
    ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
    frame = ticks.option("numPartitions", 2).load()
    frame = frame.selectExpr("value AS n", "concat('name ', value % 1000) AS name", "value / 8D AS x")
    return frame.writeStream.format(sink)


def _run(writer: DataStreamWriter, checkpoint: Path, rows: int, count: int, daemon: int | None) -> Turn:
    """From the start of one trigger to that of another, so many batches later.

    The first batches start processes and are left out, unless there is only one: then it is its trigger.
    """
    first = 3 if count > 1 else 0
    spark_cpu, daemon_cpu = _spark_cpu(daemon), _cpu(daemon)
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    begun = -1
    if first:
        begun = _wait(query, first - 1)
        spark_cpu, daemon_cpu = _spark_cpu(daemon), _cpu(daemon)
    batches = _wait(query, first + count - (count == 1)) - begun
    spent, served = (_spark_cpu(daemon) - spark_cpu) / batches, (_cpu(daemon) - daemon_cpu) / batches
    query.stop()
    done = {each["batchId"]: each for each in query.recentProgress}
    phases = [dict(done[at]["durationMs"]) for at in range(first, first + count)]
    seconds = phases[0]["triggerExecution"] / 1000
    if count > 1:
        seconds = _moment(done[first + count]) - _moment(done[first])
    return Turn(rows, phases, seconds, spent, served)


def _wait(query: Any, number: int) -> int:
    """Waits for the end of a batch, and says which was the last by then.

    Asks seldom, because the answer costs the JVM something too.
    """
    while (last := query.lastProgress) is None or last["batchId"] < number:
        time.sleep(0.4)
        if query.exception() is not None:
            raise RuntimeError(str(query.exception()))
    return int(last["batchId"])


def _moment(progress: dict[str, Any]) -> float:
    return datetime.fromisoformat(progress["timestamp"]).timestamp()


def _cpu(pid: int | None) -> float:
    """Seconds that a process has spent so far."""
    return 0.0 if pid is None else _stat(pid)[1]


def _spark_cpu(other: int | None) -> float:
    """Seconds that the processes below this one have spent, Spark's that is, but for one."""
    stats = {int(each.name): _stat(int(each.name)) for each in Path("/proc").iterdir() if each.name.isdigit()}
    below, found = {os.getpid()}, Counter[int]()
    while True:
        new = {pid for pid, (parent, _) in stats.items() if parent in below and pid not in below}
        if not new:
            return sum(spent for pid, spent in found.items() if pid != other)
        below |= new
        found.update({pid: stats[pid][1] for pid in new})


def _stat(pid: int) -> tuple[int, float]:
    """The parent of a process, and the seconds it has spent; zeros if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0, 0.0
    return int(fields[1]), (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
