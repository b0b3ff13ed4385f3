"""A soak: a steady mixed load for hours, under which nothing may grow and nothing become slower.

    python -m tests.soak --hours 8

A daemon runs in a process of its own, with retention, so that its disk is bounded.  At equal distances its
memory, descriptors, threads, log and the latency of a probe are taken.  The load comes in rounds, after each
of which the validators of ``tests/guarantees`` judge its history; at the end the log is verified.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Final

import trio

import dataspace
from dataspace import Record
from tests.guarantees.validators import broken, judged
from tests.server.processes import DaemonProcess
from tests.server.proxies import Proxy
from tests.soak.load import Load
from tests.soak.verdict import Sample, drifts, table

KEEP: Final = ("--keep-bytes", "32MiB", "--keep-for", "10m")
SAMPLES: Final = 240
PROBES: Final = 20

WRITE_AHEAD: Final = 16 << 20
"""Bytes that a write-ahead log of SQLite has before its next checkpoint (LOG.md); it counts as this much."""

ROUND: Final = 300.0
"""Seconds of a round, at most; there are two at least."""


class Soak:
    """One soak of a daemon whose data is in a directory."""

    def __init__(self, data: Path, seed: int) -> None:
        self.daemon = DaemonProcess(data, *KEEP)
        self.seed = seed
        self.samples: list[Sample] = []
        self.done: dict[str, int] = {}
        self.judged: set[str] = set()
        """The validators that had something to judge."""

    async def run(self, seconds: float) -> list[str]:
        """Runs for so long; returns what is wrong, in words: nothing, if all is well."""
        self.daemon.start()
        wrong: list[str] = []
        try:
            proxy = Proxy(self.daemon.url)
            async with trio.open_nursery() as nursery:
                await nursery.start(proxy.run)
                nursery.start_soon(self._watch, seconds)
                load = Load(self.daemon.url, proxy, self.seed, self.daemon.data)
                await load.add_rule()
                ends = trio.current_time() + seconds
                while (left := ends - trio.current_time()) > 1 and not wrong:
                    await load.run(min(ROUND, seconds / 2, left))
                    history = load.notes.history
                    wrong += await trio.to_thread.run_sync(broken, history)
                    self.judged |= judged(history)
                    history.views.clear()
                    load.notes.history = history.continued()
                nursery.cancel_scope.cancel()
            self.done = dict(load.done)
        finally:
            code = self.daemon.stop()
        wrong += [f"the daemon ended with {code}: {self.daemon.errors[-500:]}"] if code else []
        wrong += drifts(self.samples)
        return wrong + self._damages()

    async def _watch(self, seconds: float) -> None:
        """Takes samples until the time is over."""
        began = trio.current_time()
        async with dataspace.connect(self.daemon.url, name="probe") as probe:
            every = max(seconds / SAMPLES, 0.5)
            while (passed := trio.current_time() - began) < seconds:
                self.samples.append(await self._sample(passed, probe, every))

    async def _sample(self, passed: float, probe: dataspace.RemoteSpace, every: float) -> Sample:
        latencies = []
        for number in range(PROBES):
            before = time.perf_counter()
            await probe.send(Record("probed", number))
            latencies.append((time.perf_counter() - before) * 1e3)
            await trio.sleep(every / PROBES)
        process = Path(f"/proc/{self.daemon.process.pid}")
        status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
        return Sample(
            passed,
            int(status["VmRSS"].split()[0]) << 10,
            len(list((process / "fd").iterdir())),
            int(status["Threads"]),
            sum(_size(each) for each in self.daemon.data.rglob("*") if each.is_file()),
            median(latencies),
            max(latencies),
        )

    def _damages(self) -> list[str]:
        """Returns what ``log verify`` says, if that is not that all is well."""
        command = [sys.executable, "-m", "dataspace", "log", "verify", "--data", str(self.daemon.data)]
        done = subprocess.run(command, capture_output=True, text=True)
        return [f"log verify: {done.stdout}{done.stderr}"] if done.returncode else []

    def report(self) -> str:
        """Returns the samples as a table, and how much was done."""
        did = ", ".join([f"{number} {what}" for what, number in sorted(self.done.items())])
        return f"{table(self.samples)}\n{did}"


def _size(file: Path) -> int:
    try:
        size = file.stat().st_size
    except FileNotFoundError:  # it was deleted meanwhile
        return 0
    return max(size, WRITE_AHEAD) if file.name.endswith("-wal") else size
