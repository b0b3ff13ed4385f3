"""The recipe ``report``: Spark's counts are right after the query was killed twice, and the daemon once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

import dataspace
from dataspace import BlockingSpace, Record
from tests.recipes.programs import RECIPES
from tests.server.processes import DaemonProcess

PATIENCE: Final = 120.0
"""Seconds for a session of Spark to start, and a batch to run, on a busy machine."""


@contextmanager
def reporting(daemon: DaemonProcess, checkpoint: Path) -> Iterator[None]:
    """The program while the block runs, at whose end it is killed."""
    process = subprocess.Popen(
        [sys.executable, str(RECIPES / "report.py"), str(checkpoint)],
        env=os.environ | {"DATASPACE_URL": daemon.url, "PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,  # with its JVM
    )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def shows(space: BlockingSpace, expected: dict[str, int]) -> None:
    """Waits until the report is this."""
    with space.live("report($who:str, $results:int)", by="who") as report:
        deadline = time.monotonic() + PATIENCE
        while {who: row.results for who, row in report.items()} != expected:
            report.changed(timeout=deadline - time.monotonic())


@pytest.mark.spark
@pytest.mark.torture(long=True)
def test_the_counts_are_right_though_the_query_and_the_daemon_are_killed(tmp_path: Path) -> None:
    daemon = DaemonProcess(tmp_path / "data")
    daemon.start()
    try:
        with dataspace.connect_blocking(daemon.url, owner="results") as space:
            with reporting(daemon, tmp_path / "checkpoint"):
                done = [space.assert_(Record("done", n, 7 * n, "ann" if n % 3 else "ben")) for n in range(9)]
                shows(space, {"ann": 6, "ben": 3})
            space.retract(done[0])
            with reporting(daemon, tmp_path / "checkpoint"):
                daemon.kill()
                daemon.start()
                space.assert_(Record("done", 9, 63, "cat"))
                shows(space, {"ann": 6, "ben": 2, "cat": 1})
    finally:
        daemon.stop()
