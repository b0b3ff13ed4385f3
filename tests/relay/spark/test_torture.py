"""Whatever is killed, and wherever, the facts that Spark writes are those of a plain computation."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.relay.spark.cluster import Cluster, python_workers
from tests.relay.spark.daemons import Daemon
from tests.relay.spark.wires import Wire
from tests.relay.spark.worlds import Flow, World

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.torture]

POINTS = ("spark-before-stage", "spark-after-stage", "spark-before-commit", "spark-after-commit")
RUNS = 4 + int(os.environ.get("TORTURE_ROUNDS", "0"))
"""Four runs have each victim once, and each place twice."""

VICTIMS = ("worker", "daemon", "link", "query")
PIECES = 115
"""What passes between Spark and the daemon while a flow runs undisturbed, at the least."""

BATCH_0 = 32
"""What has passed when the first batch of the first query is committed, at the least."""

TRIES = 3
"""Starts of a flow: two queries of one session now and then break a task of Spark's (SPARK.md, traps), and on
a busy machine Spark gives up a Python worker that takes more than ten seconds to start."""


def finish(
    daemon: Daemon, checkpoints: Path, *, master: str = "local[2, 4]", start: str = "earliest"
) -> None:
    """Lets the flow catch up undisturbed."""
    for _ in range(TRIES):
        with Flow(daemon.url, checkpoints, master=master, start=start) as last:
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
            with Flow(own_daemon.url, checkpoints, fault=fault) as flow:
                flow.end()
            if flow.struck(point):
                break
        assert flow.struck(point), f"{point} was not reached: {flow.last_words()}"
    finish(own_daemon, checkpoints)
    world.check()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.mark.parametrize("run", range(RUNS))
def test_whatever_is_killed_at_any_moment(
    own_daemon: Daemon, tmp_path: Path, run: int, request: pytest.FixtureRequest
) -> None:
    """The query, a Python worker, the daemon or the link; in every third run early, in batch 0.

    Then one of the queries begins with a snapshot, which is another one when the query is started again.
    """
    world, checkpoints = World(own_daemon, seed=run), tmp_path / "checkpoints"
    victim, locally, early = VICTIMS[run % 4], (run + run // 4) % 2, run % 3 == 0
    shared: Cluster | None = None if locally else request.getfixturevalue("cluster")
    master = shared.master if shared else "local[2, 4]"
    start = "snapshot" if early else "earliest"
    world.turns(12)
    moment = world.random.randrange(1, BATCH_0 if early else PIECES)
    for _ in range(TRIES):
        with (
            Wire(own_daemon.port) as wire,
            Flow(wire.url, checkpoints, master=master, start=start) as flow,
        ):
            reached = wait(wire, moment, flow)
            done = len(list(checkpoints.glob("*/commits/[0-9]*")))
            if reached:
                strike(victim, own_daemon, wire, flow, shared)
            code = flow.end()
        if reached:
            break
    assert reached, f"{wire.pieces} of {moment} pieces, ended with {code}: {flow.last_words()}"
    place = "locally" if locally else "on a cluster"
    print(
        f"run {run}: {victim} {place}, {moment} pieces and {done} batches after the start; ended with {code}"
    )
    if code:
        world.turns(4)
        finish(own_daemon, checkpoints, master=master, start=start)
    world.check()


def wait(wire: Wire, pieces: int, flow: Flow) -> bool:
    """Whether so many pieces passed before the flow ended."""
    while not wire.wait(pieces, 0.1):
        if flow.process.poll() is not None:
            return False
    return True


def strike(victim: str, daemon: Daemon, wire: Wire, flow: Flow, cluster: Cluster | None) -> None:
    """Kills what is to be killed; the daemon comes back."""
    if victim == "query":
        flow.kill()
    elif victim == "daemon":
        daemon.kill()
        daemon.start()
    elif victim == "link":
        wire.cut()
    else:
        for worker in python_workers(cluster.sessions if cluster else {flow.process.pid})[-1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
