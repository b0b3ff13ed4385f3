"""All tests, in two processes at a time: those that start Spark, and all others in parts.

Those of Spark mostly wait for a JVM; one part of the others runs beside them and is seen as it goes, and
whoever is done first takes the next part.  So both cores are busy to the end.  Arguments go to all of them:
``python -m tests -q -k epoch`` (a second ``-m`` would take the place of the one that parts them).

Always: green only if all are, and something was tested.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import IO, Final

from pytest import ExitCode

PARTS: Final = 4
"""Parts of the tests without Spark: files by a hash of their names."""

SPARK: Final = ("-m", "spark")
OTHERS: Final = tuple(("-m", "not spark", f"--part={part}/{PARTS}") for part in range(1, PARTS + 1))


class Run:
    """The tests, as two threads that each wait for one process after the other."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._arguments = arguments
        self._parts: SimpleQueue[Sequence[str]] = SimpleQueue()
        for part in OTHERS:
            self._parts.put(part)
        self.statuses: list[int] = []

    def seen(self) -> None:
        """Runs parts until none is left, with their output as it comes."""
        while part := self._next():
            self._test(part)

    def kept(self, out: IO[bytes]) -> None:
        """Runs Spark's tests and then parts until none is left, with their output in a file."""
        self._test(SPARK, out)
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
        command = [sys.executable, "-m", "pytest", *part, *self._arguments]
        process = subprocess.Popen(command, stdout=out, stderr=out)
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
    with tempfile.TemporaryFile() as said:
        run = Run(arguments)
        beside = threading.Thread(target=run.kept, args=(said,))
        beside.start()
        try:
            run.seen()
        except KeyboardInterrupt:  # the other process was sent it as well
            run.stop()
            beside.join()
            return ExitCode.INTERRUPTED
        beside.join()
        print("--- and beside these", flush=True)
        said.seek(0)
        sys.stdout.buffer.write(said.read())
        sys.stdout.flush()
    return together(run.statuses)


def together(statuses: Sequence[int]) -> int:
    """One status of several: that one of them had no tests is no failure, that all had none is one."""
    empty = int(ExitCode.NO_TESTS_COLLECTED)
    failed = [status for status in statuses if status not in (0, empty)]
    return failed[0] if failed else min(statuses)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
