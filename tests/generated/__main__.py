"""Draws programs and carries them out until one fails, or the time is over: ``python -m tests.generated``."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TypeVar

from tests.generated import groups, jobs, kernel, programs
from tests.generated.searching import options_of, search
from tests.generated.shrinking import remains, shrunk
from tests.relay.topics import durable_machine

MOST_SECONDS = 5.0
"""CPU for one program; it takes some milliseconds."""

T = TypeVar("T")


class TooLong(Exception):
    """A program does not end."""


def main() -> int:
    """Returns 1 if a program fails, else 0."""
    parser = options_of("python -m tests.generated", __doc__)
    parser.add_argument("--shrink", action="store_true", help="print what is left of a program that fails")
    parser.add_argument(
        "--door", choices=["kernel", "groups", "topics", "daemon"], default="kernel", help="what is tried"
    )
    parser.add_argument(
        "--steps", type=int, help="of a daemon: go on until there were so many, whatever they take"
    )
    parser.add_argument("--keep", type=Path, help="a file with how far that has come, from which it goes on")
    parser.add_argument("--processes", type=int, default=1, help="how many side by side")
    options = parser.parse_args()
    if options.steps is not None:
        return _steps(options)
    if options.door == "daemon":
        return _of_daemon(options)
    if options.door == "topics":
        return int(search(durable_machine.failure, options.first, options.seconds) is not None)
    if options.door == "groups":
        return _in_process(options, jobs.draw, groups.failure, jobs.less)
    return _in_process(options, programs.draw, kernel.failure, programs.less)


def _in_process(
    options: argparse.Namespace,
    draw: Callable[[int], tuple[T, ...]],
    failure: Callable[[tuple[T, ...]], str | None],
    less: Callable[[T], Iterator[T]],
) -> int:
    def fails(program: tuple[T, ...]) -> str | None:
        try:
            with _limited():
                return failure(program)
        except TooLong:
            return "0: TooLong()"

    found = search(lambda seed: fails(draw(seed)), options.first, options.seconds)
    if found is not None and options.shrink:
        print(*shrunk(draw(found), fails, less), sep="\n")
    return int(found is not None)


def _steps(options: argparse.Namespace) -> int:
    from tests.generated.runs import Run

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    run = Run(options.keep, *[options.first] * bool(options.first))
    said, is_stopped = [], False
    try:
        said = run.go_on(options.steps, options.processes)
    except KeyboardInterrupt:
        is_stopped = True
    print(run.covered)
    if is_stopped:
        kept = f"--keep {options.keep}" if options.keep else f"--first {run.next}"
        print(f"stopped; python -m tests.generated --door daemon --steps {options.steps} {kept} goes on")
    if said:
        print("", "FAILED", *said, sep="\n")
    return 130 if is_stopped else int(bool(said))


def _of_daemon(options: argparse.Namespace) -> int:
    from tests.generated import clients, daemon

    def fails(seed: int) -> str | None:
        return daemon.failure(clients.draw(seed))

    try:
        found = search(fails, options.first, options.seconds, daemon.cpu)
        if found is not None and options.shrink:
            print(*remains(clients.draw(found), daemon.failure, clients.less), sep="\n")
    finally:
        daemon.POOL.close()
    return int(found is not None)


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
