"""All tests, in three processes at a time: those that start Spark in two parts, and all others in more.

Spark's parts begin first, as the longest. One of the three is seen as it goes, and whoever is done first
takes the next part.  One more than there are cores, since tests wait for much: leases, disks, a JVM.
Arguments go to all of them: ``python -m tests -q -k epoch`` (a second ``-m`` would take the place of the one
that parts them).

What is quick and what is long: every test runs here, with the few seeds or examples that show its class of
defect.  With ``TORTURE_ROUNDS``, which ``make torture`` sets, tests marked ``torture`` have further seeds.
Tests marked ``torture(long=True)`` run there alone.

Temporary files lie in memory where there is room, since a third of the time went into syncs; a killed
process loses nothing there either, and `make torture` and pytest itself have them on the disk.
Where ``PYTHONDONTWRITEBYTECODE`` keeps a checkout clean, bytecode lies in the environment, for later runs as
well: tests start some thousand programs, each of which would compile half a second anew.

Always: green only if all are, and something was tested; what failed tests leave behind is kept.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, Final

from pytest import ExitCode

PARTS: Final = 10
"""Parts of the tests without Spark, each shorter than the one before (``tests/parts.py``); each costs some
seconds."""

SPARK_PARTS: Final = 2
"""Parts of the tests with Spark, so that none goes on alone for long; each costs a session of Spark."""

SPARK: Final = tuple(("-m", "spark", f"--part=spark/{at + 1}/{SPARK_PARTS}") for at in range(SPARK_PARTS))
OTHERS: Final = tuple(("-m", "not spark", f"--part={part}/{PARTS}") for part in range(1, PARTS + 1))


BESIDE: Final = 2
"""Processes beside the one that is seen."""

MEMORY: Final = Path("/dev/shm")
ROOM: Final = 6 << 30
"""Bytes that must be free there: several times what tests leave in it at once."""

BYTECODE: Final = Path(sys.prefix) / "bytecode"
"""A folder in which the paths of sources go on."""

PASSED: Final = ("-o", "tmp_path_retention_policy=failed")
"""So that what a test that passed leaves behind is deleted at once."""

STUCK: Final = ("-o", "faulthandler_timeout=300", "-o", "faulthandler_exit_on_timeout=true")
"""Seconds after which a test that waits for ever ends the run, with the stacks of all threads."""


class Run:
    """The tests, as three threads that each wait for one process after the other."""

    def __init__(self, arguments: Sequence[str], place: str | None) -> None:
        """``place`` is where temporary files go; None for where they always go."""
        self._arguments = arguments
        self._environment = dict(os.environ)
        if place is not None:
            self._environment["TMPDIR"] = place
        if self._environment.pop("PYTHONDONTWRITEBYTECODE", None):
            self._environment.setdefault("PYTHONPYCACHEPREFIX", str(BYTECODE))
        self._parts: SimpleQueue[Sequence[str]] = SimpleQueue()
        for part in (*SPARK, *OTHERS):
            self._parts.put(part)
        self.statuses: list[int] = []

    def run(self, out: IO[bytes] | None = None) -> None:
        """Runs parts until none is left, with their output in a file, or as it comes."""
        while part := self._next():
            self._test(part, out)

    def _next(self) -> Sequence[str] | None:
        try:
            return self._parts.get_nowait()
        except Empty:
            return None

    def stop(self) -> None:
        """Leaves out the parts that no process has begun."""
        while self._next():
            pass

    def _test(self, part: Sequence[str], out: IO[bytes] | None = None) -> None:
        command = [sys.executable, "-m", "pytest", *PASSED, *STUCK, *part, *self._arguments]
        process = subprocess.Popen(command, stdout=out, stderr=out, env=self._environment)
        try:
            status = process.wait()
        except KeyboardInterrupt:  # which it was sent as well, and it ends what it started
            process.wait()
            raise
        self.statuses.append(status)
        if status == ExitCode.INTERRUPTED:
            self.stop()


def main(arguments: Sequence[str]) -> int:
    """Runs all; the exit status of one that failed, or of one that found something."""
    place = in_memory()
    status = at_once(Run(arguments, place))
    if place is not None:  # of what tests have written and imported
        shutil.rmtree(f"{BYTECODE}{place}", ignore_errors=True)
    if place is not None and status not in (0, ExitCode.INTERRUPTED):
        print(f"--- what failed tests left behind is in {place}")
    elif place is not None:
        shutil.rmtree(place, ignore_errors=True)
    return status


def at_once(run: Run) -> int:
    """Runs all in several processes, and returns one status."""
    with ExitStack() as stack:
        outs = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(BESIDE)]
        threads = [threading.Thread(target=run.run, args=(out,), daemon=True) for out in outs]
        for each in threads:
            each.start()
        try:
            run.run()
        except KeyboardInterrupt:  # the other processes were sent it as well
            run.stop()
            for each in threads:
                each.join()
            return ExitCode.INTERRUPTED
        for each, out in zip(threads, outs, strict=True):
            each.join()
            print("--- and beside these", flush=True)
            out.seek(0)
            sys.stdout.buffer.write(out.read())
            sys.stdout.flush()
    return together(run.statuses)


def in_memory() -> str | None:
    """Returns a new folder in memory for temporary files; None if ``TMPDIR`` is set or there is no room."""
    if "TMPDIR" in os.environ or not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < ROOM:
        return None
    return tempfile.mkdtemp(prefix="tests-", dir=MEMORY)


def together(statuses: Sequence[int]) -> int:
    """One status of several: that one of them had no tests is no failure, that all had none is one."""
    empty = int(ExitCode.NO_TESTS_COLLECTED)
    failed = [status for status in statuses if status not in (0, empty)]
    return failed[0] if failed else min(statuses)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
