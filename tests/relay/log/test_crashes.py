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

from index.values.values import Value
from relay.log.log import Log
from tests.relay.log import crashing
from tests.relay.log.histories import facts_of, plain
from tests.relay.log.test_retention import LATE, fill

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "3"))

pytestmark = [pytest.mark.slow, pytest.mark.torture]


class Writer:
    """The program in a process of its own; what it says goes to a file, so that it is never held up."""

    def __init__(self, directory: Path, said: Path, fault: str = "") -> None:
        self.said = said
        environment = {**os.environ, "DATASPACE_FAULT": fault, "PYTHONPATH": os.pathsep.join(sys.path)}
        with said.open("w") as file:
            self.process = subprocess.Popen(
                [sys.executable, crashing.__file__, str(directory)],
                env=environment,
                stdout=file,
                stderr=subprocess.PIPE,
                text=True,
            )

    def kill_after(self, seconds: float) -> None:
        """Kills it so long after it has begun to write."""
        while "\n" not in self.said.read_text() and self.process.poll() is None:
            time.sleep(0.01)
        time.sleep(seconds)
        self.process.kill()

    def outcome(self) -> tuple[int, list[int], str]:
        """Where it began, what it said was accepted, and its last words."""
        _, complained = self.process.communicate(timeout=60)
        assert self.process.returncode == -signal.SIGKILL, complained
        lines = self.said.read_text().split("\n")[:-1]  # a line without its end was not said whole
        return int(lines[0].split()[1]), [int(line) for line in lines[1:]], complained


def check(directory: Path, began: int, accepted: list[int], before: list[int]) -> list[int]:
    """Opens what a crash left: all that was accepted is there, and every epoch is whole."""
    log = Log.open(directory)
    assert accepted == list(range(began, began + len(accepted)))
    epochs = list(log.read(0))
    held = [epoch.number for epoch in epochs]
    assert held == before + list(range(began, began + len(held) - len(before))), "a gap, or an old number"
    assert len(held) - len(before) >= len(accepted), "an accepted epoch is lost"
    state: dict[int, Value] = {}
    for epoch in epochs:
        expected, facts = crashing.content(epoch.number)
        assert plain([epoch]) == plain([expected])
        state.update((epoch.number * 100 + at, fact) for at, fact in enumerate(facts))
    assert log.recover().owners.get("durable:writer", {}) == state
    assert log.verify().changes == len(state)
    log.close()
    return held


@pytest.mark.parametrize("point", ["snapshot-begun:2", "snapshot-chunk:2", "snapshot-complete:1"])
def test_a_kill_while_a_snapshot_is_written(tmp_path: Path, point: str) -> None:
    directory = tmp_path / "log"
    began, accepted, complained = Writer(directory, tmp_path / "said", point).outcome()
    assert complained == f"fault reached: {point.partition(':')[0]}\n"
    check(directory, began, accepted, [])


@pytest.mark.parametrize("point", ["log-before-write", "log-after-write"])
@pytest.mark.parametrize("count", [1, 4])
def test_a_kill_at_a_named_point(tmp_path: Path, point: str, count: int) -> None:
    directory = tmp_path / "log"
    began, accepted, complained = Writer(directory, tmp_path / "said", f"{point}:{count}").outcome()
    assert complained == f"fault reached: {point}\n"
    held = check(directory, began, accepted, [])
    assert (len(held) > len(accepted)) == (point == "log-after-write"), "written, but not yet accepted"


def test_kills_at_any_moment_one_after_the_other(tmp_path: Path) -> None:
    random = Random(5)
    held: list[int] = []
    for number in range(ROUNDS):
        writer = Writer(tmp_path / "log", tmp_path / "said")
        writer.kill_after(random.random() * 0.7)
        copy = tmp_path / str(number)  # the next one goes on from what the kill left, not from a clean end
        began, accepted, _ = writer.outcome()
        shutil.copytree(tmp_path / "log", copy)
        held = check(copy, began, accepted, held)
        shutil.rmtree(copy)
    assert held, "nothing was ever written"


@pytest.mark.parametrize("point", ["trim-before-write", "trim-after-write"])
def test_a_kill_while_old_epochs_go(tmp_path: Path, point: str) -> None:
    log = Log.open(tmp_path)
    fill(log, 20, snapshot=15)
    before = plain(log.read(12))
    log.close()
    program = (
        f"from dataspace.log import *; import pathlib; log = Log.open(pathlib.Path({str(tmp_path)!r})); "
    )
    trim = f"log.trim(Retention(age=0.0), {LATE})"
    environment = {**os.environ, "DATASPACE_FAULT": f"{point}:1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program + trim], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (-signal.SIGKILL, f"fault reached: {point}\n")
    log = Log.open(tmp_path)
    assert log.oldest == (1 if point == "trim-before-write" else 16), "wholly or not at all"
    assert log.verify().last == 20
    assert plain(log.read(log.oldest - 1))[-5:] == before[-5:]
    assert len(facts_of(log.recover())) == 20
    log.close()
