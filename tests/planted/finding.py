"""Runs the generated tests with one defect after the other, and says which are found, and at which door.

A defect that the simulation does not find is looked for at the door of a real daemon as well.
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
SIMULATION: Final = "simulation"
DAEMON: Final = "daemon"
DOORS: Final[Mapping[str, Sequence[str]]] = {
    KERNEL: ("tests.generated",),
    SIMULATION: ("tests.planted.lives",),
    DAEMON: ("tests.generated", "--door", "daemon"),
}
"""The generated tests, as modules with ``--seconds``."""
FURTHER: Final[Mapping[str, str]] = {SIMULATION: DAEMON}
"""Where a defect is looked for that its own door does not find."""

HELD: Final = (KERNEL,)
"""The doors that must find ``SHARE`` of their defects; others are shown, and count neither way."""
SHARE: Final = 0.9
SPARE: Final = 60
"""Seconds of CPU that a process may take beyond those of its search, to begin and to end."""
STUCK: Final = 3_600
"""Seconds after which a process is ended that takes no CPU."""


class Outcome(NamedTuple):
    """What came of one defect: the door that found it, or the last one that did not."""

    defect: Defect
    found: bool
    door: str
    said: str
    """One line of the table."""


def outcome(defect: Defect, seconds: float) -> Outcome:
    """Runs the tests of its doors with a defect for so many seconds of CPU each."""
    found = _outcome(defect, defect.door, seconds)
    if found.found or defect.door not in FURTHER:
        return found
    return _outcome(defect, FURTHER[defect.door], seconds)


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
            return Outcome(defect, True, door, f"found at the {door}: the tests do not end")
        lines = [line for line in ended.stdout.splitlines() if line.startswith("{")]
        if door == DAEMON:
            lines.append(json.dumps({"executed": counted.stat().st_size}))
    if len(lines) < 2:
        error = ended.stderr.strip().rpartition("\n")[2]
        said = f"found at the {door}: the tests end with {ended.returncode} ({error:.60})"
        return Outcome(defect, True, door, said)
    return _read(defect, door, json.loads(lines[0]), json.loads(lines[1])["executed"])


def _read(defect: Defect, door: str, ran: Mapping[str, object], executed: int) -> Outcome:
    after = f"{ran['programs']} programs, {ran['seconds']} s"
    if ran["said"] is not None:
        said = f"found at the {door} by seed {ran['seed']} after {after}: {ran['said']:.70}"
        return Outcome(defect, True, door, said)
    times = f"executed {executed} times" if executed else "NEVER EXECUTED"
    return Outcome(defect, False, door, f"NOT FOUND at the {door} in {after}, {times}")


def tabulated(defects: Iterable[Defect], seconds: float) -> int:
    """Prints a line for each defect; returns 1 if too few are found, else 0.

    A defect that another door than its own has found counts for that one, and its own is not charged.
    """
    outcomes: list[Outcome] = []
    for defect in defects:
        outcomes.append(outcome(defect, seconds))
        print(f"{defect.name:34} {outcomes[-1].said}", flush=True)
    status = 0
    for door in DOORS:
        found = [each.found for each in outcomes if each.door == door]
        if found:
            print(f"{door}: {sum(found)} of {len(found)} found")
            status |= door in HELD and sum(found) < SHARE * len(found)
    return status
