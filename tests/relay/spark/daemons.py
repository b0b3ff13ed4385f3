"""A real daemon in a process of its own, for tests that read from it and write to it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from dataspace.client.blocking_link import Link
from index.text import parse, parse_pattern
from index.values import Value


class Daemon:
    """Starts on a free port, and after ``kill`` and ``start`` comes back on the same one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = 0
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "server", "serve"]
        command += ["--listen", f"tcp:127.0.0.1:{self.port}", "--data", str(self.folder)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            found = re.search(r"tcp:(?://)?127\.0\.0\.1:(\d+)", line)
            if found:
                self.port = int(found[1])
                return
        raise AssertionError(f"the daemon ended with {self.process.wait()} before it listened")

    @property
    def url(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    def kill(self) -> None:
        """Ends it as a power cut would, as far as the process is concerned."""
        self.end(signal.SIGKILL)

    def end(self, by: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(by)
        self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.end()

    # -- what tests do with it ------------------------------------------------------------------------

    def turn(self, *operations: str, owner: str = "test") -> int:
        """One turn of ``+fact``, ``-fact`` and ``!message``, each as text; its epoch."""
        return self.turn_of([(VERBS[each[0]], parse(each[1:])) for each in operations], owner=owner)

    def turn_of(self, operations: Sequence[tuple[str, Value]], *, owner: str = "test") -> int:
        """One turn of operations by value; its epoch."""
        key = (uuid.uuid4().hex,)
        with Link(self.url) as link:
            link.stage(key, operations)
            return link.publish([key], client=key[0], sequence=1, owner=owner)

    def facts(self, pattern: str) -> list[tuple[Value, ...]]:
        """The captures of all that matches now, in order."""
        with Link(self.url) as link:
            epoch = link.frontier().epoch
            parts = link.changes(parse_pattern(pattern), as_of=epoch, upto=epoch) if epoch else ()
            return sorted((row for part in parts for row in part.added), key=repr)

    def changes(self, pattern: str) -> list[tuple[str, int, tuple[Value, ...]]]:
        """All that ever happened to what matches: kind, epoch, captures."""
        with Link(self.url) as link:
            now = link.frontier()
            parts = link.changes(parse_pattern(pattern), after=now.oldest - 1, upto=now.epoch)
            return [
                (kind, part.number, row)
                for part in parts
                for kind, rows in (("+", part.added), ("!", part.messages), ("-", part.removed))
                for row in rows
            ]


VERBS = {"+": "assert", "-": "retract", "!": "send"}


def texts(facts: Iterable[str]) -> list[str]:
    """``+`` before each fact."""
    return [f"+{fact}" for fact in facts]
