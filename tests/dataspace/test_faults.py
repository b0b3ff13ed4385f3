"""A named point kills exactly when it was told to, and costs nothing otherwise."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from dataspace import faults

PROGRAM = """
from dataspace.faults import reach
for number in range(5):
    reach("other")
    print(number, flush=True)
    reach("here")
"""


def run(wish: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DATASPACE_FAULT": wish, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_it_strikes_at_the_count_and_says_so() -> None:
    ended = run("here:3")
    assert ended.returncode == -signal.SIGKILL
    assert ended.stdout.split() == ["0", "1", "2"]
    assert ended.stderr == "fault reached: here\n"


@pytest.mark.slow
@pytest.mark.parametrize("wish", ["here:9", "nowhere:1"])
def test_it_does_not_strike_where_it_was_not_told_to(wish: str) -> None:
    assert run(wish).returncode == 0


@pytest.mark.slow
def test_a_wish_that_makes_no_sense_is_refused() -> None:
    assert "expected name:count with a count from 1" in run("here").stderr


def test_without_a_wish_nothing_happens() -> None:
    assert faults.reach is faults._ignore
