"""The planted defects by name, each with the door whose generated tests should find it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.planted import (
    of_doors,
    of_following,
    of_groups,
    of_index,
    of_logs,
    of_owners,
    of_rules,
    of_topics,
    of_turns,
)
from tests.planted.finding import DAEMON, GROUPS, KERNEL, SIMULATION, TOPICS
from tests.planted.planting import Defect, Rows

OF_OWNERS: Final = {
    "server.owners.leases": "leases",
    "server.spaces.sessions": "sessions",
    "server.sessions.requests": "sessions",
}
"""The fields of what stands in one table with others; of the rest of it, ``turns``."""


def _defects(door: str, field: str, rows: Rows) -> Iterator[Defect]:
    for module, defects in rows.items():
        for name, qualified, there, instead in defects:
            yield Defect(
                name, door, module, qualified, there, instead, field or OF_OWNERS.get(module, "turns")
            )


ALL: Final = (
    *_defects(KERNEL, "kernel", of_turns.ROWS),
    *_defects(KERNEL, "kernel", of_index.ROWS),
    *_defects(KERNEL, "rules", of_rules.ROWS),
    *_defects(GROUPS, "groups", of_groups.OF_THE_CORE),
    *_defects(SIMULATION, "groups", of_groups.ROWS),
    *_defects(TOPICS, "topics", of_topics.OF_STEPS),
    *_defects(SIMULATION, "topics", of_topics.ROWS),
    *_defects(SIMULATION, "following", of_following.ROWS),
    *_defects(SIMULATION, "", of_owners.ROWS),
    *_defects(SIMULATION, "logs", of_logs.ROWS),
    *_defects(DAEMON, "", of_doors.ROWS),
)

DEFECTS: Final[dict[str, Defect]] = {each.name: each for each in ALL}
