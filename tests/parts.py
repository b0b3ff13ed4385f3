"""Which part of the tests a file belongs to: parts take about as long as each other, by what files took.

``python -m tests --record`` writes to ``tests/seconds.txt`` how long files took, where that is two seconds or
more; any other file counts as one second.  A table that is out of date costs time and nothing else.

Always: each file is in exactly one part.
"""

from __future__ import annotations

import fcntl
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parent
SECONDS: Final = TESTS / "seconds.txt"
LEAST: Final = 2


@cache
def seconds() -> dict[str, int]:
    """Returns the seconds of each file that takes long, by its path from the top."""
    lines = [line.split() for line in SECONDS.read_text().splitlines()]
    return {name: int(number) for number, name in lines}


@cache
def part_of(parts: int) -> dict[str, int]:
    """Returns the part of each file, from 1: the longest first, each to the part that has least."""
    names = [path.relative_to(TESTS.parent).as_posix() for path in TESTS.rglob("test_*.py")]
    loads, found = [0] * parts, {}
    for name in sorted(names, key=lambda name: (-seconds().get(name, 1), name)):
        at = loads.index(min(loads))
        loads[at] += seconds().get(name, 1)
        found[name] = at + 1
    return found


def record(took: Mapping[str, float]) -> None:
    """Writes what files took, beside what other processes write."""
    with SECONDS.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        seconds.cache_clear()
        known = seconds() | {name: round(each) for name, each in took.items()}
        rows = sorted((-each, name) for name, each in known.items() if each >= LEAST)
        file.truncate()
        file.write("".join(f"{-each} {name}\n" for each, name in rows))
