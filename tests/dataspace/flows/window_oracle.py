"""What windows hold, from all that has come: computed anew after each tick, without any state in between but
the items that were not late.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

GRID = 10_000
LONG = 1 << 62

Item = tuple[Any, ...]
"""An item: a pair of a key and a value, then its time in microseconds."""


@dataclass
class Oracle:
    """``kind`` is sliding, hopping or sessions; spans are microseconds."""

    kind: str
    size: int
    slide: int = 0
    lateness: int = 0
    keep: int = 0
    final: bool = False
    has_times: bool = True
    watermark: int = -LONG
    late: int = 0
    open: list[tuple[int, Item]] = field(default_factory=list)
    """Items with their times that are in an open window."""
    complete: list[tuple[int, int, Any, Item]] = field(default_factory=list)
    """The items of complete windows: the tick in which that was seen, when they leave, and the window."""
    ticks: int = 0

    def tick(self, now: int, changes: list[tuple[Item, int]]) -> Counter[Any]:
        """Takes the changes of a tick; returns what is passed on and not taken back, with its number."""
        if self.has_times and not changes:
            return self.shown()  # nothing says that time passes
        self.ticks += 1
        net: Counter[Item] = Counter()
        for item, weight in changes:
            net[item] += weight
        come = [(self.time(item, now), item) for item, weight in net.items() for _ in range(weight)]
        gone = [item for item, weight in net.items() for _ in range(-weight)]
        for time, item in sorted(come, key=lambda each: -each[0]):
            self.take(time, item)
        for item in gone:
            held = [each for each in self.open if each[1] == item]
            if held:
                self.open.remove(min(held))
            else:
                self.late += 1
        if self.has_times:
            now = max([self.time(item, now) for item, weight in net.items() if weight], default=-LONG)
        before, self.watermark = self.watermark, max(self.watermark, now - self.lateness)
        self.close(before)
        return self.shown()

    def time(self, item: Item, now: int) -> int:
        return int(item[2]) if self.has_times else now

    def take(self, time: int, item: Item) -> None:
        """Takes an item that has come, unless all windows that would have it are complete."""
        if all(end <= self.watermark for _, end in self.windows(time, item)):
            self.late += 1
        else:
            self.open.append((time, item))

    def windows(self, time: int, item: Item) -> list[tuple[Any, int]]:
        """The windows that have an item, complete ones too, each with its end."""
        if self.kind == "sliding":
            return [(None, -(-(time + self.size) // GRID) * GRID)]
        if self.kind == "hopping":
            step = time // self.slide * self.slide
            return [(step - back, step - back + self.size) for back in range(0, self.size, self.slide)]
        times = sorted({each for each, other in self.open if other[0] == item[0]} | {time})
        first = last = times.index(time)
        while first and times[first] - times[first - 1] < self.size:
            first -= 1
        while last + 1 < len(times) and times[last + 1] - times[last] < self.size:
            last += 1
        return [((item[0], times[first]), times[last] + self.size)]

    def close(self, before: int) -> None:
        """Notes what has become complete since the watermark before, and forgets what no open window has."""
        windows = [(item, *window) for time, item in self.open for window in self.windows(time, item)]
        self.complete += [
            (self.ticks, end + self.keep, window, item)
            for item, window, end in windows
            if end <= self.watermark and (end > before or self.kind == "sessions")
        ]
        self.open = [
            each for each in self.open if any(end > self.watermark for _, end in self.windows(*each))
        ]

    def shown(self) -> Counter[Any]:
        """What is passed on and not taken back: windows with their items."""
        is_new = self.ticks if self.final else -1
        shown = [
            (window, item)
            for tick, leaves, window, item in self.complete
            if (leaves > self.watermark or tick == is_new) and self.kind != "sliding"
        ]
        for time, item in () if self.final else self.open:
            shown += [(window, item) for window, end in self.windows(time, item) if end > self.watermark]
        return Counter(shown)
