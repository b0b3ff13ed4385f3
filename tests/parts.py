"""Which part of the tests a file belongs to: by what files took, each part is shorter than the one before it.

Parts begin in their order, and the processes that run them end with short ones, so about together.

``python -m tests --record`` writes to ``tests/seconds.txt`` how long files took, where that is two seconds or
more; any other file counts as one second.  A table that is out of date costs time and nothing else.  Tests
with Spark are apart: their files are cut into parts of their own, and have rows that end with ``spark``.

Always: each file is in exactly one part, and if it has tests with Spark in exactly one of theirs.
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
LAST: Final = 0.25
SPARK: Final = " spark"
"""Ends the names of files where their tests with Spark are meant."""


@cache
def seconds() -> dict[str, int]:
    """Returns the seconds of each file that takes long, by its path from the top and perhaps ``SPARK``."""
    lines = [line.split(maxsplit=1) for line in SECONDS.read_text().splitlines()]
    return {name: int(number) for number, name in lines}


def has_spark(path: Path) -> bool:
    """True if some tests of a file start Spark."""
    return b"mark.spark" in path.read_bytes()


@cache
def part_of(parts: int, *, spark: bool = False) -> dict[str, int]:
    """Returns the part of each file, from 1: the longest first, each to the part that lacks most.

    The last part is ``LAST`` times as long as the first one, and others are in between; those with Spark,
    which begin at the same time, are as long as each other.
    """
    paths = [path for path in TESTS.rglob("test_*.py") if not spark or has_spark(path)]
    took = {
        name: seconds().get(f"{name}{SPARK if spark else ''}", 1)
        for name in [path.relative_to(TESTS.parent).as_posix() for path in paths]
    }
    shares = [1.0 if spark else 1 - (1 - LAST) * at / (parts - 1 or 1) for at in range(parts)]
    whole, found = sum(took.values()) / sum(shares), {}
    lacking = [whole * share for share in shares]
    for name in sorted(took, key=lambda name: (-took[name], name)):
        at = lacking.index(max(lacking))
        lacking[at] -= took[name]
        found[name] = at + 1
    return found


def record(took: Mapping[str, float], *, spark: bool = False) -> None:
    """Writes what files took, or their tests with Spark, beside what other processes write."""
    with SECONDS.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        seconds.cache_clear()
        known = seconds() | {f"{name}{SPARK if spark else ''}": round(each) for name, each in took.items()}
        rows = sorted((-each, name) for name, each in known.items() if each >= LEAST)
        file.truncate()
        file.write("".join(f"{-each} {name}\n" for each, name in rows))
