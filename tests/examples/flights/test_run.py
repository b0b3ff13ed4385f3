"""The demo ends with equal figures, on three days of flights, whatever is killed in the middle of it."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

from dataspace.client.connect import connect
from examples.flights.check import compared
from examples.flights.expected import figures
from examples.flights.flights import Flight, Turn, found, read
from examples.flights.processes import Daemon, Program
from examples.flights.replay import Report, replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from examples.flights.queries import Watched

pytestmark = [pytest.mark.slow, pytest.mark.spark]

PATIENCE = 120.0
"""Seconds after which a test gives up; far above what any run takes."""

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "1"))


@pytest.fixture(scope="module")
def three_days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The header and the first three days of the real file."""
    path = tmp_path_factory.mktemp("flights") / "flights.csv"
    with zipfile.ZipFile(found()) as archive, archive.open("flights.csv") as lines:
        wanted = [next(lines), *(next(lines) for _ in range(3 * 950))]
    path.write_bytes(b"".join(line for line in wanted if re.match(rb"year|2013,1,[123],", line)))
    return path


@pytest.fixture(scope="module")
def flights(three_days: Path) -> list[Flight]:
    return read(path=three_days)


# -- the whole demo ---------------------------------------------------------------------------------------


def demo(three_days: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "examples.flights", "--file", str(three_days), *more]


def test_the_figures_are_equal_and_a_second_run_repeats_nothing_and_archives_all(
    three_days: Path, tmp_path: Path
) -> None:
    command = demo(three_days, "--keep", str(tmp_path), "--rules")
    first = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (first.returncode, "equal in all" in first.stdout) == (0, True), first.stdout + first.stderr
    assert re.search(r"peak of resident memory: \d+ MB", first.stdout)
    right = re.search(r"derived is right in all \d+ epochs: (\d+) times another crowd", first.stdout)
    hours = re.search(r"by Spark's windows: equal in all (\d+); .*right in all (\d+) epochs", first.stdout)
    assert hours and int(hours[1]) and int(hours[2]), first.stdout
    assert right and int(right[1]), first.stdout  # how many depends on the turns, and so on the machine
    second = subprocess.run([*command, "--archive"], capture_output=True, text=True, timeout=PATIENCE)
    assert (second.returncode, "equal in all" in second.stdout) == (0, True), second.stdout + second.stderr
    assert "disk: 0 changes" in second.stdout
    assert re.search(r"^the archive: \d[\d ]+ changes in \d+ ranges", second.stdout, re.M), second.stdout
    asked = re.findall(r"^(\w+) from the archive, the daemon stopped: equal in all", second.stdout, re.M)
    assert asked == (["Spark", "DuckDB"] if find_spec("duckdb") else ["Spark"]), second.stdout


@pytest.mark.torture(
    long=True
)  # below is the same with a store, and successions over one log are in tests/torture
def test_the_figures_are_equal_when_leaders_are_killed(three_days: Path) -> None:
    led = hand_overs(demo(three_days, "--followers", "2", "--rules"))
    assert led[0][0] == "1", led
    assert [killed for killed, _ in led[1:]] == [leader for _, leader in led[:-1]], led


def test_the_figures_are_equal_in_a_cluster_whose_leaders_are_killed(
    three_days: Path, postgres_url: str
) -> None:
    led = hand_overs(demo(three_days, "--cluster", "3", "--store", postgres_url, "--rules"))
    assert all(killed != leader for killed, leader in led), led


def hand_overs(command: list[str]) -> list[tuple[str, str]]:
    """Returns the leaders that a demo with equal figures has killed, each with the next one."""
    ran = subprocess.run(command, capture_output=True, text=True, timeout=4 * PATIENCE)
    assert (ran.returncode, "equal in all" in ran.stdout) == (0, True), ran.stdout + ran.stderr
    assert re.search(r"derived is right in all \d+ epochs", ran.stdout), ran.stdout
    report = ran.stdout.partition("the leader was killed 3 times:\n")[2]
    led: list[tuple[str, str]] = re.findall(r"daemon (\d) was killed: daemon (\d) led after", report)
    assert len(led) == 3, report
    return led


def test_an_interrupted_demo_leaves_nothing_behind(three_days: Path, tmp_path: Path) -> None:
    child = subprocess.Popen(
        demo(three_days), stdout=subprocess.PIPE, text=True, env=os.environ | {"TMPDIR": str(tmp_path)}
    )
    assert child.stdout is not None
    with child, child.stdout as out:
        assert "the daemon listens on" in out.readline()
        child.send_signal(signal.SIGINT)
        assert child.wait(PATIENCE) == 130
    assert [path for path in tmp_path.iterdir() if path.name.startswith("dataspace-demo-")] == []


# -- killed in the middle ---------------------------------------------------------------------------------


class KillingReport(Report):
    """Kills the daemon when so many changes were accepted, and starts it again."""

    def __init__(self, daemon: Daemon, after: int) -> None:
        super().__init__()
        self.kills = 0
        self._daemon = daemon
        self._after = after

    def accepted(self, turn: Turn, epoch: int) -> None:
        super().accepted(turn, epoch)
        if not self.kills and self.replayed >= self._after:
            self.kills += 1
            self._daemon.kill()
            self._daemon.start()


async def count(
    spark: SparkSession, daemon: Daemon, folder: Path, epoch: int, streams: list[Watched]
) -> None:
    """Waits until all is counted; a query that lost its daemon is started again from its checkpoint."""
    with trio.fail_after(PATIENCE):
        while min(stream.epoch for stream in streams) < epoch:
            await trio.sleep(0.05)
            for at, stream in enumerate(streams):
                try:
                    await trio.to_thread.run_sync(stream.look)
                except Exception:  # noqa: BLE001  # whatever ended it: it must be able to go on
                    streams[at] = await trio.to_thread.run_sync(
                        partial(started, spark, daemon, folder, stream.query.name)
                    )


def started(spark: SparkSession, daemon: Daemon, folder: Path, name: str | None) -> Watched:
    from examples.flights import queries

    start = {"airborne": queries.airborne, "kept": queries.kept}[name or ""]
    return queries.Watched(start(spark, daemon.url, folder))


@asynccontextmanager
async def both_queries(spark: SparkSession, daemon: Daemon, folder: Path) -> AsyncIterator[list[Watched]]:
    streams = [
        await trio.to_thread.run_sync(partial(started, spark, daemon, folder, name))
        for name in ("airborne", "kept")
    ]
    try:
        yield streams
    finally:
        for stream in streams:
            stream.query.stop()


async def spark_figures_equal(
    spark: SparkSession, daemon: Daemon, folder: Path, flights: list[Flight]
) -> None:
    from examples.flights import queries

    async with connect(daemon.url) as space:
        airborne = {str(row[0]): int(str(row[1])) for row in await space.matches(queries.AIRBORNE)}
    said = partial(queries.figures, spark, daemon.url, folder, airborne)
    different = [
        line for line in compared(figures(flights), await trio.to_thread.run_sync(said)) if not line.equal
    ]
    assert not different


@pytest.mark.torture(long=True)  # as is the daemon of the test below
@pytest.mark.parametrize("seed", range(ROUNDS))
async def test_the_daemon_is_killed_between_acceptances(
    spark: SparkSession, tmp_path: Path, flights: list[Flight], seed: int
) -> None:
    with Daemon(tmp_path) as daemon:
        report = KillingReport(daemon, after=random.Random(seed).randrange(500, 4500))
        async with both_queries(spark, daemon, tmp_path) as streams:
            epoch = await replay(daemon.url, flights, report)
            await count(spark, daemon, tmp_path, epoch, streams)
        await spark_figures_equal(spark, daemon, tmp_path, flights)
    assert report.kills == 1
    assert report.sent == sum(1 if flight.landed is None else 2 for flight in flights)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(ROUNDS))
async def test_the_replay_is_killed_and_goes_on_and_then_the_daemon_is_killed(
    spark: SparkSession, tmp_path: Path, flights: list[Flight], three_days: Path, seed: int
) -> None:
    with Daemon(tmp_path) as daemon:
        async with both_queries(spark, daemon, tmp_path) as streams:
            arguments = ("--url", daemon.url, "--file", str(three_days), "--speed", "24")
            with Program("examples.flights.replay", *arguments, log=tmp_path / "replay.log") as program:
                async with connect(daemon.url) as space:
                    async for change in space.observe("flight($carrier, $number, _, $origin, _, $scheduled)"):
                        if change.epoch > 20 + random.Random(seed).randrange(300):
                            break
                program.kill()
            report = KillingReport(daemon, after=random.Random(seed).randrange(500, 4500))
            epoch = await replay(daemon.url, flights, report)
            await count(spark, daemon, tmp_path, epoch, streams)
        await spark_figures_equal(spark, daemon, tmp_path, flights)
    assert report.kills == 1
    assert 0 < report.sent < report.replayed
