"""Levels of features: what a daemon may write where an older one follows it, and may lead next.

A store has one level, and each daemon knows the levels up to one.  What an older daemon would lose or
misread is written only from the level on that brought it; an operator raises the level last, once all daemons
know it (``dataspace cluster upgrade``).  A new store, and a directory, has the latest level from the start.

Always: a store's level is known to each of its members, and never goes down.
"""

from __future__ import annotations

from typing import Final

from dataspace.errors import Refused
from relay.store.errors import LogDamaged

FIRST: Final = 1
"""The level of stores that were made before there were levels."""

PARKED_JOBS: Final = 2
"""Notes ``group-parked``: an older daemon refuses a log with one."""

GROUP_OPTIONS: Final = 2
"""Options of groups that an older daemon passes over, so that it would lose endings, or exceed limits."""

LATEST: Final = 2
"""The level up to which this program knows them all."""


def check_level(level: int, needed: int, what: str) -> None:
    """Raises ``Refused`` for a feature that came with a later level than that of the store."""
    if level < needed:
        raise Refused(
            "level",
            f"{what} needs level {needed} of the store, which has level {level}: once all its daemons know"
            f" level {needed}, an operator raises it by `dataspace cluster upgrade`",
        )


def check_known(level: int, place: str) -> None:
    """Raises ``LogDamaged`` for a store of a level that this program does not know."""
    if level > LATEST:
        raise LogDamaged(
            f"{place} has features of level {level}, this program knows them up to level {LATEST};"
            " UPGRADE.md says which version knows them"
        )
