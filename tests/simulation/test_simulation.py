"""Lives break no promise; a planted mistake is found, shrunk, and found again in what is left.

Lives take the place of clocks, sockets and files for the whole process, so each test has them in one of its
own.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from tests.simulation.occurrences import COUNTED, ENOUGH, Kind, Occurrence, Total, counted
from tests.simulation.plan import draw
from tests.simulation.planted import OF_CLUSTERS, OF_FOLLOWERS, PLANTED
from tests.simulation.scheduling import check_trio

CHECKOUT: Final = Path(__file__).parents[2]
ROUNDS: Final = int(os.environ.get("TORTURE_ROUNDS", "0"))

SEEDS: Final = 40
"""Lives within which each mistake has to be found."""

AT_ONCE: Final = ("leases_end_early",)
"""The mistake that is looked for in every run: the first few lives show it."""


def run(*arguments: str, hashing: str = "0", status: int = 0) -> str:
    """Returns what ``python -m tests.simulation`` says."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        cwd=CHECKOUT,
        env={**os.environ, "PYTHONHASHSEED": hashing},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == status, done.stdout
    return done.stdout


def test_trio_schedules_as_it_is_taken_to_here() -> None:
    check_trio()


def test_a_plan_is_a_function_of_its_seed() -> None:
    assert [draw(seed) for seed in range(50)] == [draw(seed) for seed in range(50)]
    assert len({str(draw(seed).faults) for seed in range(50)}) > 40


@pytest.mark.slow
def test_lives_break_no_promise() -> None:
    said = run("--first", "39", "--seeds", "13", "--processes", "1", "--progress", "10")  # 50 is lived twice
    assert "to go on from here: --first 49\n" in said
    assert "\n13 lives in " in said
    counts = {what: int(count) for count, what in re.findall(r"^ +(\d+) (.+)$", said, re.MULTILINE)}
    assert list(counts) == list(counted(Kind.FILES).values())
    assert sum(map(bool, counts.values())) > len(counts) * 2 / 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["--memory", "--followers"])
def test_lives_with_logs_in_memory_break_no_promise(kind: str) -> None:
    """A write may be done there although the daemon is told, or dies before it is told, that it failed."""
    assert "4 lives in " in run(kind, "--first", "39", "--seeds", "4", "--processes", "1")


@pytest.mark.slow
def test_lives_of_a_cluster_over_a_store_break_no_promise() -> None:
    pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")
    assert "2 lives in " in run("--cluster", "--first", "43", "--seeds", "2", "--processes", "1")


def test_a_long_run_in_which_something_never_happened_is_found_out() -> None:
    total = Total(0.0, lives=ENOUGH, counts=Counter(dict.fromkeys(COUNTED, 1)))
    assert not total.missing
    del total.counts[Occurrence.TORN.name]
    assert total.missing == [Occurrence.TORN.value]
    total.lives -= 1
    assert not total.missing
    for kind in (Kind.FOLLOWERS, Kind.CLUSTER):
        assert Total(0.0, kind, total.lives + 1, counts=total.counts).missing == []


@pytest.mark.slow
@pytest.mark.torture
@pytest.mark.skipif(not ROUNDS, reason="a thousand lives are a step of .ci/run; make torture has more")
@pytest.mark.parametrize("kind", [Kind.FILES, Kind.FOLLOWERS, Kind.CLUSTER])
def test_further_lives_break_no_promise(kind: Kind) -> None:
    options = filter(None, [kind.value])
    assert f"{20 * ROUNDS} lives in " in run(*options, "--first", "1000", "--seeds", str(20 * ROUNDS))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Kind.FILES, Kind.FOLLOWERS, Kind.CLUSTER])
def test_a_life_is_the_same_in_each_process_although_much_happens_at_once(kind: Kind) -> None:
    options = [*filter(None, [kind.value]), "--seed", "22", "--trace"]
    first, second = (run(*options, hashing=hashing) for hashing in "12")
    assert first == second
    events = Counter(line.split()[0] for line in first.splitlines())
    assert sum(events.values()) > 200
    assert max(events.values()) > 5, "events in one instant"


@pytest.mark.slow
@pytest.mark.torture
@pytest.mark.skipif(not ROUNDS, reason="for make torture")
@pytest.mark.parametrize(
    "name", ["gate_open", "secret_unchecked", "grace_not_renewed", "half_a_segment_shown"]
)
def test_a_cluster_shows_what_is_wrong_with_one_daemon_too(name: str) -> None:
    pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")
    run("--cluster", "--seeds", "80", "--plant", name, status=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=[] if each in AT_ONCE else [pytest.mark.torture]) for each in PLANTED],
)
def test_a_planted_mistake_is_found_and_shrunk(name: str) -> None:
    if name not in AT_ONCE and not ROUNDS:
        pytest.skip("the others are for make torture")
    if name in OF_CLUSTERS:
        pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")
    kind = [Kind.FOLLOWERS.value] if name in OF_FOLLOWERS else []
    kind = [Kind.CLUSTER.value] if name in OF_CLUSTERS else kind
    seeds = OF_CLUSTERS.get(name, SEEDS)
    said = run(*kind, "--seeds", str(seeds), "--processes", "1", "--plant", name, status=1)
    command = re.search(r"python -m tests\.simulation (.*) --trace", said)
    assert command is not None, said
    assert "--without-" in command[1], "something could be left out"
    assert "WRONG" in run(*shlex.split(command[1]), status=1)
    without = [each for each in shlex.split(command[1]) if each not in ("--plant", name)]
    assert "WRONG" not in run(*without), "it is the mistake that is found"
