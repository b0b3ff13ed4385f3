"""How fast does Spark read from a dataspace and write to it, beside what Spark can do at best?

One Spark session (``local[2]``, configured by ``dataspace.spark.configure``) and one daemon in a process of
its own.  The *replay* is a batch read of CHANGES changes with three captured fields, from the daemon's log
into ``noop``; beside it, in turn and in the same run, the same rows come prepared from a Python data source,
as tuples and as Arrow batches, and from Parquet.  The *latency* is from the moment before an assertion to the
function of ``foreachBatch`` that has collected its row, beside a line sent to Spark's own socket source.

    replay_rows_per_s            one partition
    replay_rows_per_s_2, _4      as many partitions
    replay_ratio_tuples, _arrow, _parquet    ours ÷ that source, of the same rows
    latency_p50_ms, latency_ratio_socket     ours ÷ Spark's socket source
    sink_rows_per_s              one batch of a million rows, from Spark to the daemon's disk, seen
    sink_rows_per_s_10k          batches of ten thousand, of a query that has been running
    sink_ratio_dropped, _10k     ours ÷ a Python sink that drops what it gets
    sink_daemon_cpu_us, _10k     what a row costs the daemon
    cold_…, hot_…, archive_…     archived history, see bench/_cold.py
    state_batch_cpu_ms           what 50 000 rows of 300 MB cost the daemon: their end, and the rows
    state_batch_ratio_small      that ÷ the same of 30 MB
    state_sort_cpu_us            what a row costs once, when the state is sorted (_ratio_small: ÷ the small)
    state_memory_mb, state_peak_mb    memory of the daemon with 300 MB before it sorts, and at most then
    sink_ms_10k_PHASE            a batch of ten thousand at the median: Spark's phases, and its CPU time
    dropped_…                    the same of the sink that drops
"""

from __future__ import annotations

import os
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trio

HERE: Final = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH", "")]))

from _prepared import PATTERN, Dropped, Prepared  # type: ignore[import-not-found]  # noqa: E402  # beside this file

import dataspace  # noqa: E402  # after the path that Spark's workers are to inherit
import dataspace.spark  # noqa: E402  # as above
from bench._cold import measure_cold  # noqa: E402  # as above
from bench._figures import command_line, show  # noqa: E402  # as above
from bench._processes import serving_on  # noqa: E402  # as above
from bench._shares import measure_shares  # noqa: E402  # as above
from bench._sinks import measure_sink  # noqa: E402  # as above
from index.values.values import Record  # noqa: E402  # as above

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHANGES: Final = 1_000_000
TURN: Final = 100
"""Changes in one turn: fifty facts that take the place of fifty others."""

ENTITIES: Final = 10_000

PARTS: Final = ("replay", "cold", "latency", "sink", "state")


async def fill(url: str, changes: int) -> None:
    """Facts that are replaced again and again, until there have been so many changes."""
    async with dataspace.connect(url, name="bench fill", owner="bench") as space:
        claims: dict[int, Any] = {}
        made = 0
        while made < changes:
            draft = space.draft()
            for _ in range(TURN // 2):
                entity = made % ENTITIES
                if entity in claims:
                    draft.retract(claims[entity])
                claims[entity] = draft.assert_(Record("seat", entity, f"name {entity}", made / 8))
                made += 1
            made += TURN // 2 if made > ENTITIES else 0
            await space.submit(draft)
        await space.drain(600)


# -- reading ------------------------------------------------------------------------------------------


def seconds_into_noop(frame: DataFrame) -> float:
    """How long it takes to read all of a frame."""
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def replay(spark: SparkSession, url: str, partitions: int = 1) -> DataFrame:
    reader = spark.read.format("dataspace").option("url", url).option("pattern", PATTERN)
    return (reader.option("minPartitions", partitions) if partitions > 1 else reader).load()


def prepared(spark: SparkSession, kind: str, rows: int) -> DataFrame:
    return spark.read.format("prepared").option("rows", rows).option("as", kind).load()


def measure_replay(spark: SparkSession, url: str, folder: Path, rounds: int) -> dict[str, float]:
    ours = replay(spark, url)
    ours.write.parquet(str(folder / "rows"))
    rows = spark.read.parquet(str(folder / "rows")).count()
    frames: dict[str, Callable[[], DataFrame]] = {
        "": lambda: replay(spark, url),
        "tuples": lambda: prepared(spark, "tuples", rows),
        "arrow": lambda: prepared(spark, "arrow", rows),
        "parquet": lambda: spark.read.parquet(str(folder / "rows")),
        "2": lambda: replay(spark, url, 2),
        "4": lambda: replay(spark, url, 4),
    }
    best: dict[str, float] = {}
    for at in range(rounds + 1):  # the first warms up the workers and the JVM
        for name, frame in frames.items():
            rate = rows / seconds_into_noop(frame())
            best[name] = max(best.get(name, 0.0), rate) if at else 0.0
    figures = {"replay_rows_per_s": best[""], "replay_rows": float(rows)}
    for name in ("tuples", "arrow", "parquet"):
        figures[f"replay_ratio_{name}"] = best[""] / best[name]
        figures[f"{name}_rows_per_s"] = best[name]
    return figures | {f"replay_rows_per_s_{count}": best[count] for count in ("2", "4")}


# -- latency ------------------------------------------------------------------------------------------


class Arrivals:
    """When each numbered event was seen by ``foreachBatch``."""

    def __init__(self) -> None:
        self.seen: dict[int, float] = {}
        self.news = threading.Condition()

    def take(self, frame: DataFrame, _batch: int) -> None:
        rows = frame.collect()
        now = time.perf_counter()
        with self.news:
            self.seen.update({int(row[0]): now for row in rows})
            self.news.notify_all()

    def wait(self, number: int) -> float:
        with self.news:
            assert self.news.wait_for(lambda: number in self.seen, 60), f"event {number} was not seen"
        return self.seen[number]


def measure_latency(spark: SparkSession, url: str, folder: Path, events: int) -> dict[str, float]:
    listener = socket.create_server(("127.0.0.1", 0))
    lines = (
        spark.readStream.format("socket")
        .option("host", "127.0.0.1")
        .option("port", listener.getsockname()[1])
    ).load()
    ours = (
        spark.readStream.format("dataspace").option("url", url).option("pattern", "tick($n:int)")
        .option("startingEpoch", "latest").load()
    )  # fmt: skip
    figures: dict[str, list[float]] = {}
    for at in range(2):
        for name, frame in (("socket", lines), ("ours", ours)):
            arrivals = Arrivals()
            query = (
                frame.writeStream.foreachBatch(arrivals.take)
                .option("checkpointLocation", str(folder / f"latency {name} {at}")).start()
            )  # fmt: skip
            with _sender(name, listener, url) as send:
                figures.setdefault(name, []).extend(_latencies(send, arrivals, events))
            query.stop()
    ours_p50, sockets_p50 = (statistics.median(figures[name]) * 1000 for name in ("ours", "socket"))
    return {
        "latency_p50_ms": ours_p50,
        "latency_p90_ms": statistics.quantiles(figures["ours"], n=10)[-1] * 1000,
        "socket_latency_p50_ms": sockets_p50,
        "latency_ratio_socket": ours_p50 / sockets_p50,
    }


def _latencies(send: Callable[[int], None], arrivals: Arrivals, events: int) -> list[float]:
    samples = []
    while not arrivals.seen:  # the query is there once it has seen something
        send(1_000_000)
        time.sleep(0.5)
    for number in range(events + 10):
        began = time.perf_counter()
        send(number)
        samples.append(arrivals.wait(number) - began)
        time.sleep(0.05 + (number * 7 % 11) / 50)  # so that no rhythm of Spark's is met
    return samples[10:]


@contextmanager
def _sender(name: str, listener: socket.socket, url: str) -> Iterator[Callable[[int], None]]:
    """What sends an event to one of the two."""
    if name == "socket":
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection:
            yield lambda number: connection.sendall(b"%d\n" % number)
    else:
        with dataspace.connect_blocking(url, name="bench ticks") as space:

            def send(number: int) -> None:
                space.send(Record("tick", number))

            yield send


# -- the run ------------------------------------------------------------------------------------------


def measure(changes: int, rounds: int, events: int, parts: Sequence[str]) -> dict[str, float]:
    """The figures of some parts, with so many changes to replay, rounds, and events to time."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("bench").config("spark.driver.memory", "2g")
    spark = dataspace.spark.session(builder)
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(Prepared)
    spark.dataSource.register(Dropped)
    try:
        with tempfile.TemporaryDirectory() as folder, serving_on(f"{folder}/data") as served:
            figures: dict[str, float] = {}
            url, place = served.url, Path(folder)
            if "replay" in parts or "cold" in parts:
                trio.run(fill, url, changes)
            if "replay" in parts:
                figures |= measure_replay(spark, url, place, rounds)
            if "cold" in parts:
                figures |= measure_cold(spark, url, served.pid, place / "data", place, PATTERN, rounds)
            if "latency" in parts:
                figures |= measure_latency(spark, url, place, events)
            if "sink" in parts:
                figures |= measure_sink(spark, place, rounds=rounds, quick=changes < CHANGES)
            if "state" in parts:
                figures |= measure_shares(rounds=rounds, quick=changes < CHANGES)
            return figures
    finally:
        spark.stop()


def main() -> None:
    arguments = command_line(__doc__, quick="one round of a fiftieth of the work")
    arguments.add_argument("--only", action="append", choices=PARTS, help="only this part; may be repeated")
    args = arguments.parse_args()
    changes, rounds, events = (CHANGES // 50, 1, 10) if args.quick else (CHANGES, args.rounds, 60)
    figures = measure(changes, rounds, events, args.only or PARTS)
    show(figures, as_json=args.json, note=f"turns of {TURN} changes; {os.cpu_count()} cores; local[2]")


if __name__ == "__main__":
    main()
