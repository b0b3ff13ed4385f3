"""Programs of clients are carried out by a real daemon as the model says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.generated.clients import FURTHER, Burst, draw, is_wide, less
from tests.generated.covering import Covered
from tests.generated.daemon import POOL, failure
from tests.generated.runs import ROOT, Run
from tests.generated.shrinking import check

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "0"))
SEEDS = range(40)
"""Programs of the quick form, in some fifteen seconds of CPU: two with bursts of up to 200 steps, one with a
daemon that is killed."""
STEPS = 20_000
"""Steps of each round, so that 50 rounds have a million."""


@pytest.fixture(autouse=True)
def _daemons() -> Iterator[None]:
    yield
    POOL.close()


@pytest.mark.slow
def test_programs() -> None:
    check(SEEDS, draw, failure, less)


@pytest.mark.torture(long=True)
def test_further_programs(capsys: pytest.CaptureFixture[str]) -> None:
    """``$TORTURE_KEPT`` names a file from which they go on, and whose steps count."""
    kept = os.environ.get("TORTURE_KEPT")
    run = Run(Path(kept).absolute() if kept else None)
    with capsys.disabled():
        print()
        failed = run.go_on(STEPS * ROUNDS)
        print(run.covered)
    assert not failed, "\n".join(failed)


@pytest.mark.slow
def test_a_run_goes_on_from_what_it_has_kept(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    first = Run(kept, 1)
    assert first.go_on(1, programs=2) == []
    assert (first.next, first.covered.programs) == (3, 2)
    second = Run(kept, 1)
    assert (second.next, second.cpu) == (3, first.cpu) and second.covered.kept() == first.covered.kept()
    assert second.go_on(first.steps) == []  # there were as many before
    assert second.next == 3
    assert second.go_on(first.steps + 1, processes=2, programs=1) == []
    assert second.covered.programs == 3 and second.steps > first.steps
    assert json.loads(kept.read_text())["next"] == second.next == 4


@pytest.mark.slow
def test_a_run_that_is_interrupted_ends_its_daemons_and_says_how_it_goes_on() -> None:
    with TemporaryDirectory() as made:  # a short path, as sockets need
        kept = Path(made, "kept")
        command = [sys.executable, "-m", "tests.generated", "--door", "daemon", "--steps", "1000000"]
        command += ["--keep", str(kept)]
        run = subprocess.Popen(
            command, cwd=ROOT, env=os.environ | {"TMPDIR": made}, stdout=subprocess.PIPE, text=True
        )
        while not [*Path(made).glob("door-*/data/*")]:  # its first daemon has begun
            assert run.poll() is None
            time.sleep(0.05)
        run.send_signal(signal.SIGINT)
        said, _ = run.communicate()
        assert run.returncode == 130
        assert said.splitlines()[-1].endswith(f"--steps 1000000 --keep {kept} goes on")
        assert not [*Path(made).glob("door-*")]


def test_counts_are_kept_and_come_together() -> None:
    covered, both = Covered(), Covered()
    for seed in range(20):
        covered.add(draw(seed), [], 7)
    for _ in range(2):
        both.merge(json.loads(json.dumps(covered.kept())))
    assert (both.programs, both.steps) == (40, 280)
    assert both.missing() == covered.missing()
    assert {at: count // 2 for at, count in both.pairs.items()} == covered.pairs


def test_most_programs_of_a_long_run_have_bursts_of_hundreds() -> None:
    wide = [draw(seed) for seed in range(FURTHER, FURTHER + 40) if is_wide(seed)]
    sizes = [len(burst.steps) for each in wide for burst in each if isinstance(burst, Burst)]
    assert len(wide) == 30 and sizes.count(200) > 30


def test_any_two_things_come_together_in_a_program() -> None:
    covered = Covered()
    for seed in range(1_600):
        covered.add(draw(seed), [])
    wanted = {"Post", "Restart", "Strike", "Stall", "with cut", "renew", "sweep", "several owners", "Outlast"}
    wanted |= {"pipelined", "a value at a limit", "Forget"}
    assert covered.things.keys() > wanted
    assert not covered.missing(), covered
