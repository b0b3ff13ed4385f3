"""Delays: what rules derive over time from the departures, and whether Spark's own windows say the same.

The replay sends ``departed(origin, minutes)`` with each departure, which left so many minutes late.
``flights.rules`` derives the delays of the last hour by airport, which change with every departure and as
time passes, and the delays of each whole hour.  The replay passes days in a second, so an hour is a second
here, of the time of epochs.

Always: the plain computation and Spark read only the messages; what rules derived is only compared.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import trio

from dataspace import Change, connect

HOUR: Final = 1_000_000
"""Microseconds of the hour in ``flights.rules``."""

GRID: Final = 10_000
"""Microseconds between two instants at which facts come or go by time alone."""

DEPARTED: Final = "departed($origin:str, $minutes:int)"
_HOURLY: Final = "hourly($begin, $origin, $count, $minutes)"
_DELAYED: Final = "delayed($origin, $count, $average)"

_PATIENCE: Final = 30.0
"""Seconds for which the last hour may still be missing."""

Hours = Mapping[tuple[int, str], tuple[int, int]]
"""By the beginning of an hour in microseconds, and airport: departures, and their minutes together."""


@dataclass(frozen=True, slots=True)
class Delays:
    """What rules derived: the delays of whole hours, and in how many epochs the last hour was ``wrong``."""

    hours: Hours
    epochs: int
    wrong: int

    def compared(self, spark: Hours) -> Comparison:
        """Returns how that compares with Spark's windows."""
        different = sum(self.hours.get(at) != spark.get(at) for at in {*self.hours, *spark})
        return Comparison(len(spark), different, self.epochs, self.wrong)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Of so many windows by Spark, how many are ``different``; of so many epochs, how many were ``wrong``."""

    windows: int
    different: int
    epochs: int
    wrong: int

    @property
    def equal(self) -> bool:
        return self.windows > 0 and not (self.different or self.wrong)

    def __str__(self) -> str:
        hours = f"DIFFERENT in {self.different} of" if self.different else "equal in all"
        last = f"WRONG in {self.wrong} of" if self.wrong else "right in all"
        return (
            f"delays by airport and hour, by rules and by Spark's windows: {hours} {self.windows}; "
            f"delays of the last hour: {last} {self.epochs} epochs"
        )


async def derived(url: str, read: str = "leader") -> Delays:
    """Reads from the log what rules derived, once the last hour is over."""
    async with connect(url, name="delays", read=read) as space:

        async def told(pattern: str, upto: int) -> list[Change]:
            async with space.observe(pattern, after=0, upto=upto, durable=True, quiet=True) as changes:
                return [change async for change in changes]

        departed = await told(DEPARTED, await space.sync())
        last = max([each.micros // HOUR * HOUR for each in departed], default=0)
        with trio.move_on_after(_PATIENCE):
            while True:
                newest = await space.sync()
                hours = hours_of(await told(_HOURLY, newest))
                if not departed or any(begin == last for begin, _ in hours):
                    break
                await trio.sleep(0.2)
        changes = await told(_DELAYED, newest)
        return Delays(hours, *judge(departed, changes))


def hours_of(changes: Iterable[Change]) -> Hours:
    """Returns the delays of whole hours as they were derived; of two values of one hour, neither is right."""
    found: dict[tuple[int, str], tuple[int, int]] = {}
    for each in changes:
        match each.captures:
            case (begin, str(origin), int(count), int(minutes)) if each.kind == "+":
                at = round(begin.timestamp() * 1_000_000), origin  # type: ignore[union-attr]  # a time
                found[at] = (count, minutes) if at not in found else (-1, -1)
    return found


def judge(departed: Iterable[Change], delayed: Iterable[Change]) -> tuple[int, int]:
    """Returns the epochs with departures or derived delays, and those after which a delay was wrong."""
    rows = sorted([*departed, *delayed], key=lambda each: each.epoch)
    held: set[tuple[object, ...]] = set()
    inside: dict[str, deque[tuple[int, int]]] = {}
    count = wrong = 0
    for at, each in enumerate(rows):
        origin = str(each.captures[0])
        if each.kind == "!":
            inside.setdefault(origin, deque()).append((each.micros, int(str(each.captures[1]))))
        else:
            (held.add if each.kind == "+" else held.discard)(each.captures)
        if at + 1 < len(rows) and rows[at + 1].epoch == each.epoch:
            continue
        since = each.micros // GRID * GRID - HOUR
        wanted = set[tuple[object, ...]]()
        for name, window in inside.items():
            while window and window[0][0] <= since:
                window.popleft()
            if window:
                wanted.add((name, len(window), sum([minutes for _, minutes in window]) / len(window)))
        count += 1
        wrong += held != wanted
    return count, wrong
