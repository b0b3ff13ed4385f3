"""Each verb in each role of a daemon is carried out by the one that was asked, or says who it is; each call
of a client goes on, or says what is not known, wherever the daemon dies.

Lives in virtual time take the place of clocks and sockets for the whole process, so these have one of their
own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "0"))


def run(module: str, *arguments: str) -> None:
    """Runs a module of this folder; fails with what it calls wrong."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.generated.{module}", *arguments],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        wrong = [line for line in done.stdout.splitlines() if line.startswith("WRONG")]
        pytest.fail("\n".join(wrong or [done.stdout]), pytrace=False)


@pytest.mark.slow
def test_each_verb_in_each_role() -> None:
    run("roles")


@pytest.mark.slow
def test_each_call_with_the_daemon_dead_before_each_packet() -> None:
    run("deaths")


@pytest.mark.torture(long=True)
def test_each_call_with_each_death() -> None:
    run("deaths", *["--whole"] * bool(ROUNDS))
