"""Whatever is killed, and wherever, the facts that Spark writes are those of a plain computation."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from relay.spark.common.versions import ADMITS
from tests.relay.spark.cluster import Cluster, python_workers
from tests.relay.spark.daemons import Daemon
from tests.relay.spark.wires import Traffic, Wire
from tests.relay.spark.worlds import Flow, World

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.torture]

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "0"))
RUNS = range(2 + ROUNDS if ROUNDS else 1)
RUNS_OF_TWO = range(ROUNDS) if ROUNDS else range(1, 2)
"""Four runs have each victim once, and each place twice.  Without rounds a worker dies on a cluster, and a
daemon beside another one."""

VICTIMS = ("worker", "daemon", "link", "query")


@dataclass(frozen=True)
class Size:
    """What passes between Spark and all daemons while a flow runs undisturbed, at the least.

    And what has passed when the first batch of the first query is committed, at the least.
    """

    pieces: int
    batch_0: int


ONE = Size(pieces=70 if ADMITS else 30, batch_0=26)
TWO = Size(pieces=70 if ADMITS else 48, batch_0=26)
"""The flow's size with one daemon, and with two that are read; without limits all is one batch."""

POINTS = ("spark-before-commit", "spark-after-commit") if ROUNDS else ("spark-after-commit",)
"""Whole programs die when all is staged and when all is published; other points of a batch, and the death of
Python alone, are in ``test_sink_failures``."""

LOCAL = "local[2, 4]"
"""A task that fails is tried again, as on a cluster: see the traps in SPARK.md."""

TRIES = 3
"""Starts of a flow: two queries of one session now and then break a task of Spark's (SPARK.md, traps), and on
a busy machine Spark gives up a Python worker that takes more than ten seconds to start."""


def finish(world: World, checkpoints: Path, *, master: str = LOCAL, start: str = "earliest") -> None:
    """Lets the flow catch up undisturbed; without limits a start that tries a batch again ends with that."""
    if not ADMITS:
        _catch_up(world, checkpoints, master=master, start=start)
    _catch_up(world, checkpoints, master=master, start=start)


def _catch_up(world: World, checkpoints: Path, *, master: str, start: str) -> None:
    sources = [daemon.url for daemon in world.sources]
    for _ in range(TRIES):
        with Flow(sources, world.sink.url, checkpoints, master=master, start=start) as last:
            code = last.end()
        if code == 0:
            break
        _start_torn_anew(checkpoints, last.last_words())
    assert code == 0, last.last_words()


def _start_torn_anew(checkpoints: Path, words: str) -> None:
    """Does what SPARK.md says about a query whose first offsets a kill has torn: Spark names their folder.

    Offsets are on disk before anything of their batch is published, so nothing was.
    """
    for query in checkpoints.iterdir():
        if "STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY" in words and f"{query}/offsets " in words:
            for name in ("offsets", "state"):
                shutil.rmtree(query / name, ignore_errors=True)


def test_a_query_killed_at_each_point_and_started_again_does_everything_once(
    own_daemon: Daemon, tmp_path: Path
) -> None:
    world, checkpoints = World(own_daemon, seed=1), tmp_path / "checkpoints"
    for point in POINTS:
        world.turns(4)
        fault = f"{point}:{world.random.randint(1, 2)}"
        for _ in range(TRIES):
            with Flow([own_daemon.url], own_daemon.url, checkpoints, fault=fault) as flow:
                flow.end()
            if flow.struck(point):
                break
        assert flow.struck(point), f"{point} was not reached: {flow.last_words()}"
    finish(world, checkpoints)
    world.check()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


Run = Callable[[World, Size], None]


@pytest.fixture
def killed(run: int, tmp_path: Path, request: pytest.FixtureRequest) -> Run:
    """A flow over a world in which something is killed; by its number on a cluster or locally, early or not.

    The early ones, in batch 0, have a query that begins with a snapshot, which is another one when the query
    is started again.
    """
    victim, locally, early = VICTIMS[run % 4], (run + run // 4) % 2, run % 3 == 0
    shared: Cluster | None = None if locally else request.getfixturevalue("cluster")
    master = shared.master if shared else LOCAL
    start = "snapshot" if early else "earliest"
    checkpoints = tmp_path / "checkpoints"

    def kill(world: World, size: Size) -> None:
        world.turns(12)
        moment = world.random.randrange(1, size.batch_0 if early else size.pieces)
        for _ in range(TRIES):
            with ExitStack() as stack:
                traffic = Traffic()
                wires = {each: stack.enter_context(Wire(each.port, traffic)) for each in world.daemons}
                urls = [wires[daemon].url for daemon in world.sources]
                flow = Flow(urls, wires[world.sink].url, checkpoints, master=master, start=start)
                stack.enter_context(flow)
                reached = wait(traffic, moment, flow)
                done = len(list(checkpoints.glob("*/commits/[0-9]*")))
                if reached:
                    strike(victim, world, wires, flow, shared)
                code = flow.end()
            if reached:
                break
        assert reached, f"{traffic.pieces} of {moment} pieces, ended with {code}: {flow.last_words()}"
        place = f"{victim} {'locally' if locally else 'on a cluster'}"
        print(f"run {run}: {place}, {moment} pieces and {done} batches after the start; ended with {code}")
        if code:
            world.turns(4)
            finish(world, checkpoints, master=master, start=start)
        world.check()

    return kill


@pytest.mark.parametrize("run", RUNS)
def test_whatever_is_killed_at_any_moment(own_daemon: Daemon, run: int, killed: Run) -> None:
    """The query, a Python worker, the daemon or the link; in every third run early, in batch 0."""
    killed(World(own_daemon, seed=run), ONE)


@pytest.mark.parametrize("run", RUNS_OF_TWO)
def test_whatever_is_killed_while_two_daemons_are_read(
    own_daemon: Daemon, tmp_path: Path, run: int, killed: Run
) -> None:
    """One of the daemons or the link to one, too; results go to the first, the second or a third."""
    with Daemon(tmp_path / "second") as second, Daemon(tmp_path / "third") as third:
        sink = (own_daemon, second, third)[run // 3 % 3]
        killed(World(own_daemon, second, seed=run, sink=sink), TWO)


def wait(traffic: Traffic, pieces: int, flow: Flow) -> bool:
    """Whether so many pieces passed before the flow ended."""
    while not traffic.wait(pieces, 0.1):
        if flow.process.poll() is not None:
            return False
    return True


def strike(
    victim: str, world: World, wires: Mapping[Daemon, Wire], flow: Flow, cluster: Cluster | None
) -> None:
    """Kills what is to be killed; a daemon comes back."""
    daemon = world.random.choice(world.daemons)
    if victim == "query":
        flow.kill()
    elif victim == "daemon":
        daemon.kill()
        daemon.start()
    elif victim == "link":
        wires[daemon].cut()
    else:
        for worker in python_workers(cluster.sessions if cluster else {flow.process.pid})[-1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
