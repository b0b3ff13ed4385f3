"""What kill tests need: a Spark program as a process, and facts with a plain computation over them."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.relay.spark.daemons import Daemon
from tests.relay.spark.queries import PATIENCE

Fact = tuple[str, int]


class World:
    """Facts ``on(k, n)`` that come and go at random, and what a plain computation makes of all of them.

    They are in one daemon or several, which have every ``k`` but no fact in common; results are in ``sink``.
    """

    def __init__(self, *sources: Daemon, seed: int, sink: Daemon | None = None) -> None:
        self.sources = sources
        self.sink = sink or sources[0]
        self.random = random.Random(seed)
        self.now: list[set[Fact]] = [set() for _ in sources]
        self.came: Counter[Fact] = Counter()

    @property
    def daemons(self) -> list[Daemon]:
        """All that have a part in it, once each."""
        return list(dict.fromkeys([*self.sources, self.sink]))

    def turns(self, count: int) -> None:
        """So many turns at each source."""
        for _ in range(count):
            for at, daemon in enumerate(self.sources):
                self._turn(at, daemon)

    def _turn(self, at: int, daemon: Daemon) -> None:
        now = self.now[at]
        going = self.random.sample(sorted(now), min(len(now), self.random.randrange(3)))
        coming = {self._fact(at) for _ in range(4)} - now
        self.now[at] = (now | coming) - set(going)
        self.came.update(coming)
        operations = [f'+on("{k}", {n})' for k, n in sorted(coming)]
        daemon.turn(*operations, *[f'-on("{k}", {n})' for k, n in going])

    def _fact(self, at: int) -> Fact:
        return self.random.choice("abc"), self.random.randrange(1000) * len(self.sources) + at

    def check(self) -> None:
        now = set[Fact]().union(*self.now)
        assert self.sink.facts("copy($k, $n)") == sorted(now, key=repr)
        messages = Counter(row for kind, _, row in self.sink.changes("copy($k, $n)") if kind == "!")
        assert messages == self.came
        totals = Counter(k for k, _ in now)
        assert self.sink.facts("total($k, $n)") == sorted(totals.items())


class Flow:
    """One run of ``flow.py``, which dies whole when a named point is reached, or when it is told to."""

    def __init__(
        self,
        sources: Sequence[str],
        sink: str,
        checkpoints: Path,
        *,
        fault: str | None = None,
        master: str = "local[2, 4]",
        start: str = "earliest",
    ) -> None:
        environment = os.environ | {"PYTHONUNBUFFERED": "1", "FLOW_MASTER": master, "FLOW_START": start}
        if fault is not None:
            environment["DATASPACE_FAULT"] = fault
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.relay.spark.flow", ",".join(sources), sink, str(checkpoints)],
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        self.said: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            if line.startswith("fault reached"):
                self.kill()

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)

    def end(self) -> int:
        return self.process.wait(3 * PATIENCE)  # a start alone may take a minute where others are at work

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.kill()
            self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        assert self.process.stderr is not None
        self.process.stderr.close()

    def last_words(self) -> str:
        """What went wrong, out of the many lines in which Spark says it."""
        telling = [line for line in self.said if "rror" in line or "Refused" in line or "Broken" in line]
        return "".join(telling[:40])

    def struck(self, point: str) -> bool:
        return f"fault reached: {point}\n" in self.said
