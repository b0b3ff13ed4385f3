"""A pace: how many values may pass before other tasks run?

trio requires of every async call a checkpoint, at which other tasks run.  For a read of a value that is at
hand this would cost many times the read itself (2.8 µs against a few tenths), so a stage has a checkpoint
only from time to time: after ``LONGEST`` values, and sooner where the values take long, so that about
``SECONDS`` pass in between.

Always: the length of a run is between 1 and ``LONGEST``; it doubles while runs are short in time and halves
when one was not.
"""

from __future__ import annotations

from time import perf_counter
from typing import Final

from dataspace.loops.here import loop

LONGEST: Final = 128
"""Values between two checkpoints at the most."""

SECONDS: Final = 0.002
"""Seconds that a run of values should take at the most."""


class Pace:
    """The length of the runs of one stage, in values; ``passed`` is counted by the code that answers
    reads."""

    __slots__ = ("_since", "passed", "run")

    def __init__(self) -> None:
        self.run = 1
        self.passed = 0
        self._since = perf_counter()

    async def rest(self) -> None:
        """Runs other tasks and sets the length of the next run.  A full checkpoint: may be cancelled."""
        self.adapt()
        await loop().checkpoint()
        self.begin()

    def begin(self) -> None:
        """Starts a new run after a wait, in which other tasks ran; the wait is not a part of it."""
        self.passed = 0
        self._since = perf_counter()

    def adapt(self) -> None:
        """Sets the length of the next run by how long this one took."""
        if perf_counter() - self._since > SECONDS:
            self.run = max(1, self.run // 2)
        elif self.run < LONGEST:
            self.run *= 2
