"""A long run over real daemons, which goes on from where it was stopped:
``python -m tests.generated --door daemon --steps N --keep FILE``.

Programs are carried out in blocks, each in a process of its own that an interrupt of the run does not reach,
with a daemon of its own.  A step is a packet with a verb, or a request over HTTP.

Always: blocks count whole, and in the order of their seeds; one that was not finished is carried out again.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from tempfile import gettempdir
from typing import Any, Final

from tests.generated import clients, daemon
from tests.generated.covering import Covered
from tests.generated.explaining import MOST
from tests.generated.shrinking import remains
from tests.model.daemon import Segment

ROOT: Final = Path(__file__).parents[2]
GIVEN_UP: Final = f"no cause is found in {MOST} steps"
OFTEN: Final = 30.0
"""Seconds between two lines of progress."""


class Run:
    """How far a run has come: the next seed, and what was covered; read from a file, if there is one."""

    def __init__(self, file: Path | None = None, first: int = clients.FURTHER) -> None:
        self.file, self.next = file, first
        self.cpu = 0.0
        """Seconds, of programs and their daemons."""
        self.covered = Covered()
        if file is not None and file.exists():
            kept = json.loads(file.read_text())
            self.next, self.cpu = kept["next"], kept["cpu"]
            self.covered.merge(kept["covered"])

    @property
    def steps(self) -> int:
        """How many steps were carried out."""
        return self.covered.steps

    def add(self, done: Mapping[str, Any]) -> None:
        """Adds what a block has done, and saves that."""
        self.next = done["next"]
        self.cpu += done["cpu"]
        self.covered.merge(done["covered"])
        if self.file is not None:
            kept = {"next": self.next, "cpu": self.cpu, "covered": self.covered.kept()}
            beside = self.file.with_name(f"{self.file.name}.new")
            beside.write_text(json.dumps(kept))
            beside.replace(self.file)

    def go_on(self, steps: int, processes: int = 1, programs: int = daemon.SPACES) -> list[str]:
        """Carries out blocks of so many programs until there were so many steps, with all earlier ones.

        Returns what fails, and what is left of it; nothing if nothing does.
        """
        blocks, ahead, progress = deque[_Block](), self.next, _Progress(self, steps)
        try:
            while self.steps < steps:
                while len(blocks) < processes:
                    blocks.append(_Block(ahead, programs))
                    ahead += programs
                done = blocks[0].done()
                blocks.popleft()
                self.add(done)
                progress.show()
                if done["said"]:
                    return [f"seed {self.next}", *done["said"], f"again: {again(self.next)}"]
        finally:
            for block in blocks:
                block.end()
        return []


def again(seed: int) -> str:
    """Returns the command that carries out one program."""
    return f"python -m tests.generated --door daemon --first {seed} --seconds 0.1 --shrink"


class _Progress:
    """Lines about how far a run has come."""

    def __init__(self, run: Run, wanted: int) -> None:
        self.run, self.wanted = run, wanted
        self.steps, self.cpu, self.begun = run.steps, run.cpu, time.monotonic()
        self.shown = 0.0

    def show(self) -> None:
        """Prints a line, unless there was one lately."""
        now, steps = time.monotonic(), self.run.steps - self.steps
        if now - self.shown < OFTEN or not steps:
            return
        self.shown = now
        rate, each = steps / (now - self.begun), (self.run.cpu - self.cpu) / steps
        rest = max(self.wanted - self.run.steps, 0) / rate / 60
        print(
            f"{self.run.steps:,} of {self.wanted:,} steps, next seed {self.run.next}:"
            f" {rate:.0f} steps/s, {1_000 * each:.2f} ms of CPU each, {rest:.0f} min left",
            flush=True,
        )


class _Block:
    """A process that carries out some programs."""

    def __init__(self, first: int, programs: int) -> None:
        command = [sys.executable, "-m", "tests.generated.runs", str(first), str(programs)]
        self.name = f"{first} to {first + programs - 1}"
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
        )

    def done(self) -> dict[str, Any]:
        """Waits for its end; returns what it has done."""
        said, _ = self._process.communicate()
        if self._process.returncode:
            raise RuntimeError(f"programs {self.name}: the process has ended with {self._process.returncode}")
        done: dict[str, Any] = json.loads(said)
        return done

    def end(self) -> None:
        """Ends it, and its daemon."""
        self._process.terminate()
        self._process.communicate()


def carried_out(first: int, programs: int) -> dict[str, Any]:
    """Carries out some programs in this process, up to one that fails; returns what a run adds."""
    said: list[str] = []
    for seed in range(first, first + programs):
        program = clients.draw(seed)
        failed = daemon.failure(program)
        if failed is not None and GIVEN_UP in failed and (failed := daemon.failure(program)) is None:
            daemon.COVERED.faults["search given up, and the program explained when it was repeated"] += 1
        if failed is not None:
            break
    else:
        seed, failed = first + programs, None
    done = {"next": seed, "cpu": daemon.cpu(), "covered": deepcopy(daemon.COVERED.kept())}
    if failed is not None:
        seen = Path(gettempdir(), f"program-{seed}.txt")
        seen.write_text("".join(_lines(daemon.SEEN)))
        left = remains(program, daemon.failure, clients.less)
        said = [
            failed,
            f"what was seen is in {seen}; what is left of the program:",
            *(left or ["nothing, as it did not fail again", *map(repr, program)]),
        ]
    return done | {"said": said}


def _lines(segments: Iterable[Segment]) -> Iterator[str]:
    """Yields what was seen, a line for each event and each epoch."""
    for at, (lanes, epochs, *more) in enumerate(segments):
        yield f"segment {at}: {more}\n"
        for number, lane in enumerate(lanes):
            yield from [f"  lane {number}: {event}\n" for event in lane]
        yield from [f"  {epoch}\n" for epoch in epochs]


def _end(_number: int, _frame: object) -> None:
    sys.exit(os.EX_TEMPFAIL)


def main() -> None:
    """Carries out the programs that the arguments name, and prints one line of JSON."""
    signal.signal(signal.SIGTERM, _end)
    first, programs = map(int, sys.argv[1:])
    try:
        print(json.dumps(carried_out(first, programs)))
    finally:
        daemon.POOL.close()


if __name__ == "__main__":
    main()
