"""Do readers of history slow a writer down, if they read the archive instead of the daemon?

A daemon has a log of CHANGES changes, which is archived.  A writer sends one change at a time, and an
observer sees it, alone and beside READERS processes that read all history again and again: out of the
archive, as the format ``dataspace`` does where it replays, and through the daemon (``observe`` from the first
epoch).  The daemon, the writer and the observer are on one half of the cores, with priority where that is
permitted, so that what else runs on the machine counts little; the readers are on the other half.
Ratios are medians of the ratios of the rounds, to the figures of the same round without readers.

    alone_p50_ms, _p99_ms          from the call of the writer to the observer, without readers
    again_p50_ratio, _p99          the same once more ÷ the first time: the noise
    archive_p50_ratio, _p99        beside readers of the archive
    daemon_p50_ratio, _p99         beside readers through the daemon
    archive_changes_per_s, daemon_changes_per_s      what the readers read meanwhile, all together
    archive_cpu_ratio, daemon_cpu_ratio              CPU time of the daemon for a change ÷ without readers
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import trio

import dataspace
from bench._figures import command_line, show
from bench._latency import hear, latency_between, tick
from bench._processes import Served, Side, cpu_seconds, on_half, running, serving_on
from index.patterns.text import parse_pattern
from index.values.values import Record
from relay.archive.archive import only_archive
from relay.archive.reading import ReadArchive
from relay.log.columns import ColumnReplay
from relay.objects.opening import open_objects

CHANGES: Final = 100_000
TURN: Final = 20
READERS: Final = 50
TICKS: Final = 300
PRIORITY: Final = -10
PATTERN: Final = "seat($entity:int, $place:str, $value:float)"


async def fill(url: str, changes: int) -> None:
    """Makes the history."""
    async with dataspace.connect(url, name="bench filler", owner="bench") as space:
        for first in range(0, changes, TURN):
            draft = space.draft()
            for n in range(first, first + TURN):
                draft.send(Record("seat", n, f"place {n % 100}", n / 7))
            await space.submit(draft)
        await space.sync()


async def read_archive(place: str, report: Connection) -> None:
    """Replays an archive until its parent ends it; reports how many changes it has read."""
    archive = only_archive(open_objects(place), "main")
    log, pattern = ReadArchive(archive), parse_pattern(PATTERN)
    report.send("ready")
    count = 0
    while not report.poll():
        for block in ColumnReplay(log, pattern, 0).blocks(archive.upto):
            count += len(block)
            if report.poll():
                break
    report.send(count)


async def read_daemon(url: str, upto: int, report: Connection) -> None:
    """Observes the same history through the daemon until its parent ends it."""
    count = 0
    async with dataspace.connect(url, name="bench reader") as space:
        report.send("ready")
        while not report.poll():
            async with space.observe(PATTERN, after=0, upto=upto, quiet=True) as observed:
                async for _ in observed:
                    count += 1
                    if not count % 100 and report.poll():
                        break
    report.send(count)


@contextmanager
def preferred() -> Iterator[None]:
    """Has the processes that start while the block runs be preferred to others, where that is permitted."""
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
    with on_half(0):
        try:
            yield
        finally:
            os.setpriority(os.PRIO_PROCESS, 0, 0)


class Beside:
    """The times of a writer beside readers, what these have read, and what the daemon has used."""

    def __init__(
        self, served: Served, ticks: int, readers: int, read: Callable[..., Any], *args: object
    ) -> None:
        with ExitStack() as stack:
            sides: list[Side] = []
            with on_half(1):
                for _ in range(readers):
                    sides.append(stack.enter_context(running(read, *args)))
            for each in sides:
                assert each.pipe.recv() == "ready"
            before, began = cpu_seconds(served.pid), time.perf_counter()
            with preferred():
                self.p50, self.p99 = latency_between(tick, hear, (served.url, served.url), ticks)
            seconds = time.perf_counter() - began
            self.cpu = (cpu_seconds(served.pid) - before) / ticks
            for each in sides:
                each.pipe.send("end")
            self.rate = sum([each.pipe.recv() for each in sides]) / seconds


def measure(served: Served, place: str, upto: int, ticks: int, readers: int) -> dict[str, float]:
    """Returns one round."""
    alone = Beside(served, ticks, 0, read_archive)
    archive = Beside(served, ticks, readers, read_archive, place)
    daemon = Beside(served, ticks, readers, read_daemon, served.url, upto)
    again = Beside(served, ticks, 0, read_archive)
    figures = {"alone_p50_ms": alone.p50, "alone_p99_ms": alone.p99}
    for name, each in (("again", again), ("archive", archive), ("daemon", daemon)):
        figures |= {f"{name}_p50_ratio": each.p50 / alone.p50, f"{name}_p99_ratio": each.p99 / alone.p99}
    return figures | {
        "archive_changes_per_s": archive.rate,
        "daemon_changes_per_s": daemon.rate,
        "again_cpu_ratio": again.cpu / alone.cpu,
        "archive_cpu_ratio": archive.cpu / alone.cpu,
        "daemon_cpu_ratio": daemon.cpu / alone.cpu,
    }


def main() -> None:
    parser = command_line(__doc__, rounds=3)
    parser.add_argument("--readers", type=int, default=READERS)
    args = parser.parse_args()
    changes, ticks = (2_000, 40) if args.quick else (CHANGES, TICKS)
    readers = min(args.readers, 4) if args.quick else args.readers
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        data, place = str(Path(folder, "data")), str(Path(folder, "archive"))
        with preferred():
            served = stack.enter_context(serving_on(data))
        trio.run(fill, served.url, changes)
        command = [sys.executable, "-m", "dataspace", "log", "archive", place, "--data", data, "--quiet"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        upto = only_archive(open_objects(place), "main").upto
        rounds = [
            measure(served, place, upto, ticks, readers) for _ in range(1 if args.quick else args.rounds)
        ]
    figures = {name: statistics.median([each[name] for each in rounds]) for name in rounds[0]}
    show({"readers": float(readers), **figures}, as_json=args.json)


if __name__ == "__main__":
    main()
