"""Draws programs and carries them out until one fails, or the time is over: ``python -m tests.generated``."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from tests.generated import kernel, programs
from tests.generated.searching import options_of, search
from tests.generated.shrinking import shrunk

MOST_SECONDS = 5.0
"""CPU for one program; it takes some milliseconds."""


class TooLong(Exception):
    """A program does not end."""


def main() -> int:
    """Returns 1 if a program fails, else 0."""
    parser = options_of("python -m tests.generated", __doc__)
    parser.add_argument("--shrink", action="store_true", help="print what is left of a program that fails")
    parser.add_argument("--door", choices=["kernel", "daemon"], default="kernel", help="what is tried")
    options = parser.parse_args()
    if options.door == "daemon":
        return _of_daemon(options)
    found = search(lambda seed: _failure(programs.draw(seed)), options.first, options.seconds)
    if found is not None and options.shrink:
        print(*shrunk(programs.draw(found), _failure, programs.less), sep="\n")
    return int(found is not None)


def _of_daemon(options: argparse.Namespace) -> int:
    from tests.generated import clients, daemon

    def fails(seed: int) -> str | None:
        return daemon.failure(clients.draw(seed))

    try:
        found = search(fails, options.first, options.seconds, daemon.cpu)
        if found is not None and options.shrink:
            smaller = shrunk(clients.draw(found), daemon.failure, clients.less)
            print(daemon.failure(smaller), *smaller, sep="\n")
    finally:
        daemon.POOL.close()
    return int(found is not None)


def _failure(program: programs.Program) -> str | None:
    try:
        with _limited():
            return kernel.failure(program)
    except TooLong:
        return "0: TooLong()"


@contextmanager
def _limited() -> Iterator[None]:
    """Raises ``TooLong`` in a block that takes too much CPU, and again in what takes that for an error."""
    before = signal.signal(signal.SIGVTALRM, _raise)
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_SECONDS, 0.5)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _raise(_number: int, _frame: FrameType | None) -> None:
    raise TooLong


if __name__ == "__main__":
    sys.exit(main())
