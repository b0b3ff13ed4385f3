"""Programs started by the demo are watched, can be killed and started again, and are gone at the end."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from examples.flights.processes import Peak, Program

FOREVER = "import time; print('here', flush=True); time.sleep(600)"


@pytest.fixture
def sleeper(tmp_path: Path) -> Program:
    # The standard library's timeit runs any statement that it is given.
    return Program("timeit", "-n1", "-r1", FOREVER, log=tmp_path / "log")


def wait_said(program: Program) -> None:
    while "here" not in program.said():
        assert program.poll() is None


def test_it_is_gone_after_its_block(sleeper: Program) -> None:
    with sleeper:
        pid = sleeper.pid
        wait_said(sleeper)
    assert sleeper.poll() == -signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_it_is_gone_after_an_error_too(sleeper: Program) -> None:
    with pytest.raises(ZeroDivisionError), sleeper:
        raise ZeroDivisionError
    assert sleeper.poll() is not None


def test_a_killed_one_starts_again_and_says_only_what_is_new(sleeper: Program) -> None:
    with sleeper:
        wait_said(sleeper)
        sleeper.kill()
        assert sleeper.poll() == -signal.SIGKILL
        sleeper.start()
        wait_said(sleeper)
        assert sleeper.said().count("here") == 1


def test_memory_is_looked_at(sleeper: Program) -> None:
    peak = Peak()
    with sleeper:
        wait_said(sleeper)
        assert 1 << 20 < peak.look(sleeper.pid) < 1 << 30
    before = peak.bytes
    assert peak.look(sleeper.pid) == before
