"""Runs the generated tests with one defect after the other, and says which are found, and at which door.

A defect that a door does not find is looked for further on: in the steps of topics and in what hands out jobs
after the programs in this process by the simulation, and in the simulation by a real daemon.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from tests.planted.planting import ROOT, Defect

KERNEL: Final = "kernel"
GROUPS: Final = "groups"
TOPICS: Final = "topics"
SIMULATION: Final = "simulation"
DAEMON: Final = "daemon"
DOORS: Final[Mapping[str, Sequence[str]]] = {
    KERNEL: ("tests.generated",),
    GROUPS: ("tests.generated", "--door", "groups"),
    TOPICS: ("tests.generated", "--door", "topics"),
    SIMULATION: ("tests.planted.lives",),
    DAEMON: ("tests.generated", "--door", "daemon"),
}
"""The generated tests, as modules with ``--seconds``."""
FURTHER: Final[Mapping[str, str]] = {GROUPS: SIMULATION, TOPICS: SIMULATION, SIMULATION: DAEMON}
"""Where a defect is looked for that a door does not find."""

HELD: Final = (KERNEL, GROUPS, TOPICS)
"""The doors that must find ``SHARE`` of their defects; others are shown, and count neither way."""
SHARE: Final = 0.9
QUICK: Final[Mapping[str, int]] = {KERNEL: 500, GROUPS: 3_000, TOPICS: 300, SIMULATION: 21, DAEMON: 40}
"""How many programs, or lives, of each door ``make test`` runs; they are the first ones of a search."""
SPARE: Final = 60
"""Seconds of CPU that a process may take beyond those of its search, to begin and to end."""
STUCK: Final = 3_600
"""Seconds after which a process is ended that takes no CPU."""


class Outcome(NamedTuple):
    """What came of one defect: at the door that found it, or at its own."""

    name: str
    place: str
    """The mark of the defect's row, which is another one if the row is changed."""
    door: str
    found: bool
    said: str
    """What the tests say that found the defect; of another one, how often its place was executed."""
    executed: int = 0
    programs: int = 0
    """Of the search; 0 if the tests did not end as they should."""
    seconds: float = 0.0
    seed: int = 0

    @property
    def is_quick(self) -> bool:
        """True if the quick form of the tests finds the defect."""
        return self.found and 0 < self.programs <= QUICK[self.door]

    def __str__(self) -> str:
        after = f"{self.programs} programs, {self.seconds} s"
        if not self.found:
            return f"NOT FOUND at the {self.door} in {after}, {self.said}"
        by = f" by seed {self.seed} after {after}" if self.programs else ""
        return f"found at the {self.door}{by}: {self.said:.70}"


def outcome(defect: Defect, seconds: float) -> Outcome:
    """Runs the tests of its doors with a defect for so many seconds of CPU each."""
    first = found = _outcome(defect, defect.door, seconds)
    while not found.found and found.door in FURTHER:
        found = _outcome(defect, FURTHER[found.door], seconds)
    return found if found.found else first


def _outcome(defect: Defect, door: str, seconds: float) -> Outcome:
    command = ["--seconds", str(seconds)]
    if door == DAEMON:  # which starts the process that has the defect
        command = [sys.executable, "-m", *DOORS[door], *command]
    else:
        command = [sys.executable, "-m", "tests.planted", "run", defect.name, *DOORS[door], *command]
    most = int(seconds) + SPARE
    limit = partial(resource.setrlimit, resource.RLIMIT_CPU, (most, most))
    with TemporaryDirectory() as directory:
        counted = Path(directory, "counted")
        counted.touch()
        planted = {"PLANTED": defect.name, "PLANTED_COUNT": str(counted)} if door == DAEMON else {}
        try:
            ended = subprocess.run(
                command,
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=STUCK,
                preexec_fn=limit,
                env=os.environ | planted,
            )
        except subprocess.TimeoutExpired:
            return Outcome(defect.name, defect.place, door, True, "the tests do not end")
        lines = [line for line in ended.stdout.splitlines() if line.startswith("{")]
        if door == DAEMON:
            lines.append(json.dumps({"executed": counted.stat().st_size}))
    if len(lines) < 2:
        error = ended.stderr.strip().rpartition("\n")[2]
        said = f"the tests end with {ended.returncode} ({error})"
        return Outcome(defect.name, defect.place, door, True, said)
    ran, executed = json.loads(lines[0]), json.loads(lines[1])["executed"]
    said = ran.pop("said")
    times = f"executed {executed} times" if executed else "NEVER EXECUTED"
    return Outcome(defect.name, defect.place, door, said is not None, said or times, executed, **ran)


def tabulated(defects: Iterable[Defect], seconds: float, kept: Path | None = None, *, again: bool) -> int:
    """Prints a line for each defect, and the shares; returns 1 if too few are found, else 0.

    A defect that another door than its own has found counts for that one.
    What came of each is added to the file ``kept``; what came of the same row before is read from there,
    unless the defects are to be run ``again``.
    """
    before = read(kept) if kept is not None and not again else {}
    outcomes: dict[Defect, Outcome] = {}
    for defect in defects:
        came = before.get(defect.place)
        if came is None or (not came.found and came.seconds < seconds):
            came = outcome(defect, seconds)
            if kept is not None:
                with kept.open("a") as file:
                    file.write(json.dumps(came._asdict()) + "\n")
        outcomes[defect] = came
        print(f"{defect.name:34} {came}", flush=True)
    for field in sorted({each.field for each in outcomes}):
        _show(field, [each for defect, each in outcomes.items() if defect.field == field])
    status = 0
    for door in DOORS:
        if some := [each for each in outcomes.values() if each.door == door]:
            status |= _show(f"at the {door}", some) < SHARE and door in HELD
    return status


def read(kept: Path) -> dict[str, Outcome]:
    """Returns what came of defects by the marks of their rows: the last of each."""
    lines = kept.read_text().splitlines() if kept.exists() else []
    outcomes = [Outcome(**json.loads(line)) for line in lines]
    return {each.place: each for each in outcomes}


def _show(what: str, outcomes: Sequence[Outcome]) -> float:
    """Prints how many are found, and by the quick form; returns the share."""
    found, quick = sum(each.found for each in outcomes), sum(each.is_quick for each in outcomes)
    share = found / len(outcomes)
    shares = f"{share:.0%}, {quick / len(outcomes):.0%} by the quick form"
    print(f"{what}: {found} of {len(outcomes)} found ({shares})")
    return share
