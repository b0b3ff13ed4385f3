"""Draws programs and carries them out until one fails, or the time is over: ``python -m tests.generated``."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from tests.generated.kernel import failure
from tests.generated.programs import Program, draw, shrunk
from tests.generated.searching import options_of, search

MOST_SECONDS = 5.0
"""CPU for one program; it takes some milliseconds."""


class TooLong(Exception):
    """A program does not end."""


def main() -> int:
    """Returns 1 if a program fails, else 0."""
    parser = options_of("python -m tests.generated", __doc__)
    parser.add_argument("--shrink", action="store_true", help="print what is left of a program that fails")
    options = parser.parse_args()
    found = search(lambda seed: _failure(draw(seed)), options.first, options.seconds)
    if found is not None and options.shrink:
        print(*shrunk(draw(found), _failure), sep="\n")
    return int(found is not None)


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
