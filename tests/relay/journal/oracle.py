"""What a durable topic has completed, by the simplest rule: an epoch is over when nobody may send to it.

A partition that never had a producer waits for its first, who may begin anywhere; the join of the first one
may complete epochs at once, or leave them to the next step that is not a join.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container
from dataclasses import dataclass, field

from dataspace.topics.times import Time, less_equal


@dataclass
class Epoch:
    """What was sent at one time: batches by partition, and why some of it may be missing."""

    batches: dict[int, list[bytes]] = field(default_factory=dict)
    crashed: str = ""

    @property
    def items(self) -> tuple[bytes, ...]:
        return tuple(each for partition in sorted(self.batches) for each in self.batches[partition])


@dataclass
class Oracle:
    """Who holds what, what is open, and what is completed: the number is the place, from 1."""

    partitions: int
    held: dict[int, Counter[Time]] = field(default_factory=dict)
    at: dict[int, int] = field(default_factory=dict)
    opened: dict[Time, Epoch] = field(default_factory=dict)
    completed: list[tuple[Time, Epoch]] = field(default_factory=list)
    oldest: int = 1

    def join(self, producer: int, partition: int, time: Time, completed: Container[Time] = ()) -> None:
        self.held[producer], self.at[producer] = Counter([time]), partition
        self._complete(lambda time: time in completed)

    def send(self, producer: int, time: Time, items: bytes) -> None:
        epoch = self.opened.setdefault(time, Epoch())
        epoch.batches.setdefault(self.at[producer], []).append(items)

    def progress(self, producer: int, changes: list[tuple[Time, int]]) -> None:
        for time, by in changes:
            self.held[producer][time] += by
        self._complete()

    def leave(self, producer: int) -> None:
        del self.held[producer]
        self._complete()

    def crash(self, producer: int, reason: str) -> None:
        lost = [time for time, count in self.held.pop(producer).items() if count]
        for time, epoch in self.opened.items():
            if any(less_equal(each, time) for each in lost):
                epoch.crashed = epoch.crashed or reason
        self._complete()

    def _complete(self, among: Callable[[Time], bool] = lambda _: True) -> None:
        if len(set(self.at.values())) < self.partitions:
            return
        held = [time for each in self.held.values() for time, count in each.items() if count]
        over = [
            time for time in filter(among, self.opened) if not any(less_equal(each, time) for each in held)
        ]
        self.completed += [(time, self.opened.pop(time)) for time in sorted(over)]
