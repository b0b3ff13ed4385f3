"""Draws programs and carries them out until one fails, or the time is over: ``python -m tests.generated``.

Prints one line of JSON: how many programs there were, in how many seconds of CPU, and what failed.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from tests.generated.kernel import failure
from tests.generated.programs import Program, draw, shrunk

MOST_SECONDS = 5.0
"""CPU for one program; it takes some milliseconds."""


class TooLong(Exception):
    """A program does not end."""


def main() -> int:
    """Returns 1 if a program fails, else 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.generated")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=float, default=60.0, help="CPU after which no program is begun")
    parser.add_argument(
        "--shrink", action="store_true", help="make the program that fails smaller, and print it"
    )
    options = parser.parse_args()
    seed, said, begun = options.first, None, time.process_time()
    while said is None and time.process_time() - begun < options.seconds:
        said, seed = _failure(draw(seed)), seed + 1
    seconds = round(time.process_time() - begun, 2)
    print(json.dumps({"programs": seed - options.first, "seconds": seconds, "seed": seed - 1, "said": said}))
    if said is not None and options.shrink:
        print(*shrunk(draw(seed - 1), _failure), sep="\n")
    return int(said is not None)


def _failure(program: Program) -> str | None:
    try:
        with _limited():
            return failure(program)
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
