"""Whatever is killed, and wherever, the facts that Spark writes are those of a plain computation."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from tests.relay.spark.cluster import Cluster
from tests.relay.spark.daemons import Daemon
from tests.relay.spark.queries import PATIENCE

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.torture]

POINTS = ("spark-before-stage", "spark-after-stage", "spark-before-commit", "spark-after-commit")
ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "0"))


class World:
    """Facts ``on(k, n)`` that come and go at random, and what a plain computation makes of them."""

    def __init__(self, daemon: Daemon, seed: int) -> None:
        self.daemon = daemon
        self.random = random.Random(seed)
        self.now: set[tuple[str, int]] = set()
        self.came: Counter[tuple[str, int]] = Counter()

    def turns(self, count: int) -> None:
        for _ in range(count):
            going = self.random.sample(sorted(self.now), min(len(self.now), self.random.randrange(3)))
            coming = {(self.random.choice("abc"), self.random.randrange(1000)) for _ in range(4)} - self.now
            self.now = (self.now | coming) - set(going)
            self.came.update(coming)
            operations = [f'+on("{k}", {n})' for k, n in sorted(coming)]
            self.daemon.turn(*operations, *[f'-on("{k}", {n})' for k, n in going])

    def check(self) -> None:
        assert self.daemon.facts("copy($k, $n)") == sorted(self.now, key=repr)
        messages = Counter(row for kind, _, row in self.daemon.changes("copy($k, $n)") if kind == "!")
        assert messages == self.came
        totals = Counter(k for k, _ in self.now)
        assert self.daemon.facts("total($k, $n)") == sorted(totals.items())


TRIES = 3
"""Starts of a flow: two queries of one session now and then break a task of Spark's (SPARK.md, traps)."""


class Flow:
    """One run of ``flow.py``, which dies whole when a named point is reached, or when it is told to."""

    def __init__(
        self, daemon: Daemon, checkpoints: Path, *, fault: str | None = None, master: str = "local[2, 4]"
    ) -> None:
        environment = os.environ | {"PYTHONUNBUFFERED": "1", "FLOW_MASTER": master}
        if fault is not None:
            environment["DATASPACE_FAULT"] = fault
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.relay.spark.flow", daemon.url, str(checkpoints)],
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        self.said: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            if line.startswith("fault reached"):
                self.kill()

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)

    def end(self) -> int:
        return self.process.wait(PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.kill()
            self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        assert self.process.stderr is not None
        self.process.stderr.close()

    def last_words(self) -> str:
        """What went wrong, out of the many lines in which Spark says it."""
        telling = [line for line in self.said if "rror" in line or "Refused" in line or "Broken" in line]
        return "".join(telling[:40])

    def struck(self, point: str) -> bool:
        return f"fault reached: {point}\n" in self.said


def finish(daemon: Daemon, checkpoints: Path, *, master: str = "local[2, 4]") -> None:
    """Lets the flow catch up undisturbed."""
    for _ in range(TRIES):
        with Flow(daemon, checkpoints, master=master) as last:
            code = last.end()
        if code == 0:
            break
    assert code == 0, last.last_words()


def test_a_query_killed_at_each_point_and_started_again_does_everything_once(
    own_daemon: Daemon, tmp_path: Path
) -> None:
    world, checkpoints = World(own_daemon, seed=1), tmp_path / "checkpoints"
    for point in POINTS:
        world.turns(4)
        fault = f"{point}:{world.random.randint(1, 2)}"
        for _ in range(TRIES):
            with Flow(own_daemon, checkpoints, fault=fault) as flow:
                flow.end()
            if flow.struck(point):
                break
        assert flow.struck(point), f"{point} was not reached: {flow.last_words()}"
    finish(own_daemon, checkpoints)
    world.check()


@pytest.mark.parametrize("seed", range(1, 1 + ROUNDS))
def test_query_and_daemon_killed_at_any_moment(own_daemon: Daemon, tmp_path: Path, seed: int) -> None:
    world, checkpoints = World(own_daemon, seed), tmp_path / "checkpoints"
    for _ in range(3):
        world.turns(6)
        with Flow(own_daemon, checkpoints) as flow:
            time.sleep(world.random.uniform(4, 14))
            if world.random.random() < 0.5:
                own_daemon.kill()
                own_daemon.start()
            else:
                flow.kill()
            flow.end()
    finish(own_daemon, checkpoints)
    world.check()


@pytest.mark.parametrize("seed", range(1 + ROUNDS // 2))
def test_on_a_cluster_whatever_is_killed_at_any_moment(own_daemon: Daemon, tmp_path: Path, seed: int) -> None:
    """A Python worker of an executor, the query or the daemon; seed 0 is always a worker."""
    world, checkpoints = World(own_daemon, seed), tmp_path / "checkpoints"
    tmp_path.joinpath("cluster").mkdir()
    with Cluster(tmp_path / "cluster") as cluster:
        world.turns(12)
        victim = world.random.choice(["worker", "query", "daemon"]) if seed else "worker"
        with Flow(own_daemon, checkpoints, master=cluster.master) as flow:
            if victim == "worker":
                kill_a_worker(cluster, flow, world.random)
            else:
                time.sleep(world.random.uniform(6, 16))
            if victim == "daemon":
                own_daemon.kill()
                own_daemon.start()
            elif victim == "query":
                flow.kill()
            flow.end()
        world.turns(4)
        finish(own_daemon, checkpoints, master=cluster.master)
    world.check()


def kill_a_worker(cluster: Cluster, flow: Flow, chance: random.Random) -> None:
    """Kills one of the processes in which executors run Python, as soon as there are some."""
    while not (workers := cluster.python_workers()):
        assert flow.process.poll() is None, flow.last_words()
        time.sleep(0.05)
    time.sleep(chance.uniform(0, 1))
    for worker in cluster.python_workers()[-1:] or workers[-1:]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
