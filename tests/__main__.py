"""All tests, in two processes at once: those that start Spark, and all others.

The first mostly wait for a JVM, the others keep one core busy, so that both together take hardly longer than
the longer one; and neither knows of the other.  Arguments go to both: ``python -m tests -q -k epoch`` (a
second ``-m`` would take the place of the one that parts them).  What the others say is seen as they say it,
what Spark's tests say when they are over.

Always: green only if both are, and something was tested.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import IO, Final

from pytest import ExitCode

MARKS: Final = ("spark", "not spark")


def main(arguments: Sequence[str]) -> int:
    """Runs both; the exit status of the one that failed, or of the one that found something."""
    with tempfile.TemporaryFile() as said:
        spark, others = start(MARKS[0], arguments, said), start(MARKS[1], arguments)
        try:
            statuses = [others.wait(), spark.wait()]
        except KeyboardInterrupt:  # which they were sent as well: what they started has to be ended
            others.wait()
            spark.wait()
            return ExitCode.INTERRUPTED
        print("--- and those that start Spark", flush=True)
        said.seek(0)
        sys.stdout.buffer.write(said.read())
        sys.stdout.flush()
    return together(statuses)


def start(mark: str, arguments: Sequence[str], out: IO[bytes] | None = None) -> subprocess.Popen[bytes]:
    """pytest, with the tests that have a mark or have it not."""
    command = [sys.executable, "-m", "pytest", "-m", mark, *arguments]
    return subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT if out else None)


def together(statuses: Sequence[int]) -> int:
    """One status of several: that one of them had no tests is no failure, that all had none is one."""
    empty = int(ExitCode.NO_TESTS_COLLECTED)
    failed = [status for status in statuses if status not in (0, empty)]
    return failed[0] if failed else min(statuses)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
