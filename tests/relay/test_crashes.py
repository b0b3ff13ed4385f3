"""A process killed at any moment has lost no accepted epoch, and left no half one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from index.values import Value
from relay.log import Log
from tests.relay import crashing
from tests.relay.histories import plain

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "3"))

pytestmark = [pytest.mark.slow, pytest.mark.torture]


def start(directory: Path, fault: str = "") -> subprocess.Popen[str]:
    environment = {**os.environ, "DATASPACE_FAULT": fault, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, crashing.__file__, str(directory)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def outcome(process: subprocess.Popen[str]) -> tuple[int, list[int], str]:
    """Where a killed writer began, what it said was accepted, and its last words."""
    said, complained = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, complained
    lines = said.split("\n")[:-1]  # a line without its end was not said whole
    return int(lines[0].split()[1]), [int(line) for line in lines[1:]], complained


def check(directory: Path, began: int, accepted: list[int], before: list[int]) -> list[int]:
    """Opens what a crash left: all that was accepted is there, and every epoch is whole."""
    log = Log.open(directory)
    assert accepted == list(range(began, began + len(accepted)))
    held = [epoch.number for epoch in log.read(0)]
    assert held == before + list(range(began, began + len(held) - len(before))), "a gap, or an old number"
    assert len(held) - len(before) >= len(accepted), "an accepted epoch is lost"
    state: dict[int, Value] = {}
    for epoch in log.read(0):
        expected, facts = crashing.content(epoch.number)
        assert plain([epoch]) == plain([expected])
        state.update((epoch.number * 100 + at, fact) for at, fact in enumerate(facts))
    assert log.recover().owners.get("durable:writer", {}) == state
    assert log.verify().changes == len(state)
    log.close()
    return held


@pytest.mark.parametrize("point", ["log-before-write", "log-after-write"])
@pytest.mark.parametrize("count", [1, 4])
def test_a_kill_at_a_named_point(tmp_path: Path, point: str, count: int) -> None:
    began, accepted, complained = outcome(start(tmp_path, f"{point}:{count}"))
    assert complained == f"fault reached: {point}\n"
    held = check(tmp_path, began, accepted, [])
    groups = Log.open(tmp_path)
    assert (len(held) > len(accepted)) == (point == "log-after-write"), "written, but not yet accepted"
    groups.close()


def test_kills_at_any_moment_one_after_the_other(tmp_path: Path) -> None:
    random = Random(5)
    held: list[int] = []
    for _ in range(ROUNDS):
        process = start(tmp_path)
        assert process.stdout is not None
        time.sleep(0.3 + random.random() * 0.7)
        process.kill()
        began, accepted, _ = outcome(process)
        shutil.copytree(tmp_path, tmp_path.with_name("copy"), dirs_exist_ok=False)
        held = check(tmp_path.with_name("copy"), began, accepted, held)
        shutil.rmtree(tmp_path.with_name("copy"))
    assert held, "nothing was ever written"
