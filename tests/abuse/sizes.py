"""How large attacks are, and the report of what the innocent had to bear in each."""

from __future__ import annotations

import os
from typing import Final

from tests.abuse.stage import Stage

ROUNDS: Final = int(os.environ.get("TORTURE_ROUNDS", "0"))
LARGE: Final = ROUNDS > 0
"""True where attacks have their full size, as under ``make torture``."""

HEAD: Final = (
    f"{'attack':34} {'trips':>6} {'p50':>8} {'p99':>8} {'max':>8} {'loop':>8} {'MiB':>6}  answer"
    "   (ms of round trips, and of the daemon's loop in the worst)"
)
ROWS: Final[list[str]] = []


def report(attack: str, stage: Stage, answer: str) -> None:
    """Adds a line to the report, which is printed at the end of the run."""
    trips = stage.trips
    ROWS.append(f"{attack:34} {len(trips.wall):6} {trips.row()} {stage.grown() >> 20:6}  {answer}")
