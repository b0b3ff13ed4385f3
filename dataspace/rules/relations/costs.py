"""Costs: what each rule takes, in rows and in time.

To read a clock twice for each row would cost more than many rows do.  So one in a few of the rows that set a
rule off is timed, and stands for the others.

Always: rows are counted exactly, time is an estimate; without a clock neither is counted, and nothing is
slower.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

SAMPLED: Final = 16
"""Of so many rows one is timed."""


@dataclass(slots=True)
class Spent:
    """What a rule has cost: rows that set it off, and the time from there on in nanoseconds."""

    calls: int = 0
    nanoseconds: int = 0


@dataclass(frozen=True, slots=True)
class Meter:
    """What the text of a rule counts and times itself with."""

    spent: Spent
    clock: Callable[[], int]


class Costs:
    """What the rules of a program have cost, by their numbers; ``clock`` gives nanoseconds."""

    def __init__(self, clock: Callable[[], int] | None) -> None:
        self._clock = clock
        self._spent: dict[int, Spent] = {}

    def of(self, number: int) -> Spent:
        """Returns what a rule has cost so far."""
        return self._spent.get(number, Spent())

    def forget(self, number: int) -> None:
        """Deletes the costs of a rule."""
        self._spent.pop(number, None)

    def meter(self, number: int) -> Meter | None:
        """Returns what a rule is counted and timed with, if there is a clock."""
        if self._clock is None:
            return None
        return Meter(self._spent.setdefault(number, Spent()), self._clock)
