"""Recording locks: what clients in processes of their own did and believed, and a store that they write to.

The validator is ``tests.model.locks``.
"""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from tests.model.locks import Belief, Grant, LockHistory, Write


class Notes:
    """The file in which one client notes what it does."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)

    def note(self, what: Grant | Belief) -> None:
        self._file.write(json.dumps([type(what).__name__, asdict(what)]) + "\n")


class Store:
    """A store outside of the dataspace, which takes no lower token than it has seen; processes share it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, client: str, token: int) -> bool:
        """Takes a write in one transaction with the look at its token."""
        with self._path.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            highest = max((each.token for each in map(_write, file) if each.accepted), default=0)
            done = Write(client, token, token >= highest)
            file.write(json.dumps(asdict(done)) + "\n")
            return done.accepted

    def writes(self) -> list[Write]:
        return [_write(line) for line in self._path.read_text().splitlines()] if self._path.exists() else []


def _write(line: str) -> Write:
    return Write(**json.loads(line))


def read_notes(paths: Iterable[Path], history: LockHistory) -> None:
    """Adds what clients have noted; the last line of one that was killed may be torn."""
    for path in paths:
        for line in path.read_text().splitlines():
            try:
                kind, told = json.loads(line)
            except ValueError:
                continue
            if kind == "Grant":
                history.grants.append(Grant(**told))
            else:
                history.beliefs.append(Belief(**told))


def now() -> float:
    """Returns the time by the clock that all processes of a machine share."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)
