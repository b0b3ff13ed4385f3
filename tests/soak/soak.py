"""A soak: a steady mixed load for hours, under which nothing may grow and nothing become slower.

    python -m tests.soak --hours 8

A daemon runs in a process of its own, with retention, so that its disk is bounded.  At equal distances its
memory, descriptors, threads, log and the latency of a probe are taken.  At the end what every writer was
acknowledged is what there is, and the log is verified.
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
from tests.server.processes import DaemonProcess
from tests.server.proxies import Proxy
from tests.soak.load import WRITERS, Load
from tests.soak.verdict import Sample, drifts, table

KEEP: Final = ("--keep-bytes", "32MiB", "--keep-for", "10m")
SAMPLES: Final = 240
PROBES: Final = 20


class Soak:
    """One soak of a daemon whose data is in a directory."""

    def __init__(self, data: Path, seed: int) -> None:
        self.daemon = DaemonProcess(data, *KEEP)
        self.seed = seed
        self.samples: list[Sample] = []
        self.done: dict[str, int] = {}

    async def run(self, seconds: float) -> list[str]:
        """Runs for so long; returns what is wrong, in words: nothing, if all is well."""
        self.daemon.start()
        wrong: list[str] = []
        try:
            proxy = Proxy(self.daemon.url)
            async with trio.open_nursery() as nursery:
                await nursery.start(proxy.run)
                load = Load(self.daemon.url, proxy, self.seed)
                async with trio.open_nursery() as busy:
                    busy.start_soon(load.run)
                    await self._watch(seconds)
                    load.stopping.set()
                nursery.cancel_scope.cancel()
            self.done = dict(load.done)
            wrong += await self._differences(load)
        finally:
            code = self.daemon.stop()
        wrong += [f"the daemon ended with {code}: {self.daemon.errors[-500:]}"] if code else []
        wrong += drifts(self.samples)
        return wrong + self._damages()

    async def _watch(self, seconds: float) -> None:
        """Takes samples until the time is over."""
        began = trio.current_time()
        async with dataspace.connect(self.daemon.url, name="probe", owner="probe") as probe:
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
            sum(each.stat().st_size for each in self.daemon.data.rglob("*") if each.is_file()),
            median(latencies),
            max(latencies),
        )

    async def _differences(self, load: Load) -> list[str]:
        """Returns what differs from what the writers were acknowledged, and what is left of the gone."""
        async with dataspace.connect(self.daemon.url) as space:
            facts = {row[:2]: row[2] for row in await space.matches("level($who, $key, $value)")}
            hot = set(await space.matches("hot($who, $key)"))
            with trio.move_on_after(10):
                while await self._gone_left(space):  # noqa: ASYNC110  # any of them may be the last
                    await trio.sleep(0.1)
            left = await self._gone_left(space)
        wanted = {(who, key): value for who, held in load.held.items() for key, value in held.items()}
        assert len(load.held) == WRITERS
        wrong = [] if facts == wanted else [f"{len(facts)} facts of writers, {len(wanted)} were acknowledged"]
        derived = {at for at, value in wanted.items() if value > 900}
        wrong += [] if hot == derived else [f"{len(hot)} facts are derived, {len(derived)} should be"]
        return wrong + ([f"{left} facts of clients that have gone are left"] if left else [])

    async def _gone_left(self, space: dataspace.RemoteSpace) -> int:
        """Returns how many facts there are of clients that have gone."""
        return len(await space.matches("doomed($n)")) + len(await space.matches("guest($n)"))

    def _damages(self) -> list[str]:
        """Returns what ``log verify`` says, if that is not that all is well."""
        command = [sys.executable, "-m", "dataspace", "log", "verify", "--data", str(self.daemon.data)]
        done = subprocess.run(command, capture_output=True, text=True)
        return [f"log verify: {done.stdout}{done.stderr}"] if done.returncode else []

    def report(self) -> str:
        """Returns the samples as a table, and how much was done."""
        did = ", ".join([f"{number} {what}" for what, number in sorted(self.done.items())])
        return f"{table(self.samples)}\n{did}"
