"""Runs the generated tests with one defect after the other, and says which are found.

A door that is not built yet has no command: its defects are listed.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from tests.planted.planting import ROOT, Defect

KERNEL: Final = "kernel"
SIMULATION: Final = "simulation"
DAEMON: Final = "daemon"
DOORS: Final[Mapping[str, Sequence[str] | None]] = {
    KERNEL: ("tests.generated",),
    SIMULATION: ("tests.planted.lives",),
    DAEMON: None,
}
"""The generated tests, as modules with ``--seconds``."""

HELD: Final = (KERNEL,)
"""The doors that must find ``SHARE`` of their defects; others are shown, and count neither way."""
SHARE: Final = 0.9
SPARE: Final = 60
"""Seconds of CPU that a process may take beyond those of its search, to begin and to end."""
STUCK: Final = 3_600
"""Seconds after which a process is ended that takes no CPU."""


class Outcome(NamedTuple):
    """What came of one defect."""

    defect: Defect
    found: bool
    said: str
    """One line of the table."""


def outcome(defect: Defect, seconds: float) -> Outcome:
    """Runs the tests of its door with a defect for so many seconds of CPU, in a process of their own."""
    command = DOORS[defect.door]
    if command is None:
        return Outcome(defect, False, f"no door yet ({defect.door})")
    run = [sys.executable, "-m", "tests.planted", "run", defect.name, *command, "--seconds", str(seconds)]
    most = int(seconds) + SPARE
    limit = partial(resource.setrlimit, resource.RLIMIT_CPU, (most, most))
    try:
        ended = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, timeout=STUCK, preexec_fn=limit)
    except subprocess.TimeoutExpired:
        return Outcome(defect, True, "found: the tests do not end")
    lines = [line for line in ended.stdout.splitlines() if line.startswith("{")]
    if len(lines) < 2:
        error = ended.stderr.strip().rpartition("\n")[2]
        return Outcome(defect, True, f"found: the tests end with {ended.returncode} ({error:.60})")
    return _read(defect, json.loads(lines[0]), json.loads(lines[1])["executed"])


def _read(defect: Defect, ran: Mapping[str, object], executed: int) -> Outcome:
    after = f"{ran['programs']} programs, {ran['seconds']} s"
    if ran["said"] is not None:
        return Outcome(defect, True, f"found by seed {ran['seed']} after {after}: {ran['said']:.70}")
    times = f"executed {executed} times" if executed else "NEVER EXECUTED"
    return Outcome(defect, False, f"NOT FOUND in {after}, {times}")


def tabulated(defects: Iterable[Defect], seconds: float) -> int:
    """Prints a line for each defect; returns 1 if too few are found, else 0."""
    outcomes: list[Outcome] = []
    for defect in defects:
        outcomes.append(outcome(defect, seconds))
        print(f"{defect.name:34} {outcomes[-1].said}", flush=True)
    status = 0
    for door in DOORS:
        found = [each.found for each in outcomes if each.defect.door == door]
        if found:
            print(f"{door}: {sum(found)} of {len(found)} found")
            status |= door in HELD and sum(found) < SHARE * len(found)
    return status
