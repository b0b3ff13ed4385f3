"""A step log reads on in its archive where that has all epochs before those on disk, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from dataspace.topics.times import Maxima, Order
from relay.topics.steps import LAST, Completed, Step, StepLog
from relay.topics.topic import Topic


@dataclass
class FakeArchive:
    """An archive that has some epochs, and is only asked which."""

    oldest: int
    completed: int
    position: int = 0
    shown: str = "an archive"

    @property
    def forgotten(self) -> Maxima:
        return Maxima([self.oldest - 2] if self.oldest > 1 else [])

    def renew(self) -> None: ...

    def epochs(self, first: int = 1, last: int = LAST) -> Iterator[tuple[Completed, int]]:
        raise NotImplementedError  # borders are found without reading

    def steps(self, after: int, upto: int = LAST) -> Iterator[Step]:
        raise NotImplementedError  # as above


def test_which_epochs_can_be_read_over_all_borders() -> None:
    """Epoch n is at time n - 1; the disk has some of the newest of nine, the archive some in a row."""
    for held, oldest, newest in product(range(1, 11), range(1, 10), range(10)):
        step_log = StepLog(Topic("t", Order(0), 1, lasting=True), 1, 1, 1 << 20)
        step_log.join(7)
        for time in range(9):
            step_log.finish(7, time, b"", [(time, -1), (time + 1, +1)])
        step_log.forget([Completed(n, n - 1, n + 1, n + 1, 0, "", n + 1) for n in range(1, held)])
        step_log.archive = FakeArchive(oldest, newest)
        there = {*range(held, 10), *range(oldest, newest + 1)}
        first = min(n for n in range(1, 11) if {*range(n, 10)} <= there)
        covers = oldest < held <= newest + 1
        assert step_log.oldest_read == (first if covers else held)
        assert covers or first == held or oldest > newest
        for number in range(1, 10):
            assert step_log.gone.covers(number - 1) == (number < step_log.oldest_read)
            found = step_log.archive_before(number)
            assert (found is step_log.archive) == (covers and oldest <= number < held)
