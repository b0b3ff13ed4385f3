"""Archived history in Spark, beside Spark's own scan of the same rows in Parquet.

A log of CHANGES changes is archived by ``dataspace log archive``, and then read in turn: by ``frame()``, by
the format, in part, and at an epoch in the middle.  CPU seconds are of the daemon, and of this process with
all of Spark's; ratios are of times by the clock.

    cold_frame_ratio_parquet, cold_format_ratio_parquet    Spark's scan of the same rows ÷ ours
    cold_format_cpu_ratio_parquet    the same in CPU seconds
    cold_daemon_cores, cold_frame_daemon_cores             what the daemon used meanwhile, in cores
    cold_merged_ratio_parquet        the format where all ranges were merged to one
    cold_column_ratio                one of five columns by its schema ÷ all
    cold_part_ratio_parquet          a pattern that leaves a field out, which must be counted
    cold_asof_daemon_s, hot_asof_daemon_s, cold_asof_s     the state in the middle
    hot_column_daemon_ratio, hot_select_daemon_ratio       from the daemon: a column by schema, select ÷ all
    archive_child_us                 CPU time of archiving a change
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import dataspace.spark
from bench._processes import cpu_seconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PART: Final = "seat($entity:int, _, $value:float)"
COLUMN: Final = "value double"


def measure_cold(
    spark: SparkSession, url: str, pid: int, data: Path, folder: Path, pattern: str, rounds: int
) -> dict[str, float]:
    """The figures of a daemon that has been filled."""
    place = str(folder / "archive")
    command = [sys.executable, "-m", "dataspace", "log", "archive", place, "--data", str(data), "--quiet"]
    merged = [each if each != place else f"{place} merged" for each in command] + ["--merge"]
    subprocess.run(merged, check=True, stdout=subprocess.DEVNULL)
    before = os.times()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    archiving = (after.children_user + after.children_system) - (
        before.children_user + before.children_system
    )

    def format_of(pattern: str = pattern, schema: str | None = None, **options: object) -> DataFrame:
        reader = spark.read.format("dataspace").option("pattern", pattern)
        for name, value in options.items():
            reader = reader.option(name, str(value))
        return (reader if schema is None else reader.schema(schema)).load()

    hot = format_of(url=url)
    hot.write.parquet(str(folder / "same rows"))
    rows = spark.read.parquet(str(folder / "same rows")).count()
    middle = hot.agg({"_epoch": "max"}).collect()[0][0] // 2
    cold = {"url": url, "archive": place}
    frames: dict[str, Callable[[], DataFrame]] = {
        "parquet": lambda: spark.read.parquet(str(folder / "same rows")),
        "frame": lambda: dataspace.spark.frame(spark, pattern, url=url, archive=place),
        "format": lambda: format_of(**cold),
        "merged": lambda: format_of(url=url, archive=f"{place} merged"),
        "column": lambda: format_of(schema=COLUMN, **cold),
        "part": lambda: format_of(PART, **cold),
        "asof": lambda: format_of(asOfEpoch=middle, **cold),
        "hot": lambda: format_of(url=url),
        "hot column": lambda: format_of(schema=COLUMN, url=url),
        "hot select": lambda: format_of(url=url).select("value"),
        "hot asof": lambda: format_of(asOfEpoch=middle, url=url),
    }
    best: dict[str, _Cost] = {}
    for at in range(rounds + 1):  # the first warms up the workers and the JVM
        for name, frame in frames.items():
            cost = _cost(frame(), pid)
            best[name] = cost.least(best[name]) if at > 1 else cost
    parquet, all_hot = best["parquet"], best["hot"]
    return {
        "cold_rows": float(rows),
        "cold_frame_rows_per_s": rows / best["frame"].seconds,
        "cold_format_rows_per_s": rows / best["format"].seconds,
        "cold_frame_ratio_parquet": parquet.seconds / best["frame"].seconds,
        "cold_format_ratio_parquet": parquet.seconds / best["format"].seconds,
        "cold_format_cpu_ratio_parquet": parquet.spark / best["format"].spark,
        "cold_daemon_cores": best["format"].daemon / best["format"].seconds,
        "cold_frame_daemon_cores": best["frame"].daemon / best["frame"].seconds,
        "cold_merged_ratio_parquet": parquet.seconds / best["merged"].seconds,
        "cold_column_ratio": best["column"].seconds / best["format"].seconds,
        "cold_part_ratio_parquet": parquet.seconds / best["part"].seconds,
        "cold_asof_s": best["asof"].seconds,
        "cold_asof_daemon_s": best["asof"].daemon,
        "hot_asof_daemon_s": best["hot asof"].daemon,
        "hot_column_daemon_ratio": best["hot column"].daemon / all_hot.daemon,
        "hot_select_daemon_ratio": best["hot select"].daemon / all_hot.daemon,
        "archive_child_us": archiving / rows * 1e6,
    }


class _Cost:
    """Seconds by the clock, and of CPU time of all of Spark and of the daemon."""

    def __init__(self, seconds: float, spark: float, daemon: float) -> None:
        self.seconds = seconds
        self.spark = spark
        self.daemon = daemon

    def least(self, other: _Cost) -> _Cost:
        return _Cost(
            min(self.seconds, other.seconds), min(self.spark, other.spark), min(self.daemon, other.daemon)
        )


def _cost(frame: DataFrame, daemon: int) -> _Cost:
    before, daemon_before, began = _cpu_of_tree(daemon), cpu_seconds(daemon), time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    seconds = time.perf_counter() - began
    return _Cost(seconds, _cpu_of_tree(daemon) - before, cpu_seconds(daemon) - daemon_before)


def _cpu_of_tree(but: int) -> float:
    """CPU seconds of this process and all below it that live, but for one of them."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                parts = (each / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended
            parents[int(each.name)] = int(parts[1])
            ticks[int(each.name)] = int(parts[11]) + int(parts[12]) + int(parts[13]) + int(parts[14])
    wanted, todo = 0, [os.getpid()]
    while todo:
        pid = todo.pop()
        wanted += ticks.get(pid, 0)
        todo += [child for child, parent in parents.items() if parent == pid and child != but]
    return wanted / os.sysconf("SC_CLK_TCK")
