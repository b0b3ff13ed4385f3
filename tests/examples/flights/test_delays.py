"""The delays that rules derive over time are judged in every epoch, and what is wrong with them is found."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import trio

from dataspace import Change, Value
from examples.flights import delays, ruled
from examples.flights.delays import GRID, HOUR
from examples.flights.flights import read, time_of
from examples.flights.processes import Daemon
from examples.flights.replay import Pace, Report, replay

START = time_of(0)


def change(kind: str, epoch: int, micros: int, *captures: Value) -> Change:
    return Change(kind, captures, epoch, micros, ("a", "b", "c", "d"), False)


DEPARTED = [change("!", 1, 5 * HOUR, "EWR", 10), change("!", 2, 5 * HOUR + 12_345, "EWR", 5)]
DERIVED = [
    change("+", 1, 5 * HOUR, "EWR", 1, 10.0),
    change("-", 2, 5 * HOUR + 12_345, "EWR", 1, 10.0),
    change("+", 2, 5 * HOUR + 12_345, "EWR", 2, 7.5),
    change("-", 3, 6 * HOUR, "EWR", 2, 7.5),
    change("+", 3, 6 * HOUR, "EWR", 1, 5.0),
    change("-", 4, 6 * HOUR + 2 * GRID, "EWR", 1, 5.0),
]


@pytest.mark.parametrize(
    ("derived", "found"),
    [
        (DERIVED, (4, 0)),
        (DERIVED[:3], (2, 0)),
        (DERIVED[:1], (2, 1)),
        ([*DERIVED[:3], change("-", 3, 6 * HOUR - GRID, "EWR", 2, 7.5)], (3, 1)),
        ([*DERIVED[:5], change("-", 4, 6 * HOUR + GRID, "EWR", 1, 5.0)], (4, 1)),
        ([*DERIVED, change("+", 5, 7 * HOUR, "JFK", 1, 5.0)], (5, 1)),
    ],
)
def test_the_judge_finds_what_is_early_late_or_too_much(
    derived: list[Change], found: tuple[int, int]
) -> None:
    assert delays.judge(DEPARTED, derived) == found


def test_an_hour_that_was_derived_twice_is_no_hour_of_spark() -> None:
    once = [change("+", 1, 7 * HOUR, START, "EWR", 2, 15), change("-", 2, 9 * HOUR, START, "EWR", 2, 15)]
    hours = delays.hours_of(once)
    assert hours == {(0, "EWR"): (2, 15)}
    right = delays.Delays(hours, 4, 0)
    assert right.compared(hours).equal and "equal in all 1;" in str(right.compared(hours))
    twice = delays.Delays(delays.hours_of([*once, *once]), 4, 0).compared(hours)
    assert not twice.equal and "DIFFERENT in 1 of 1" in str(twice)
    assert right.compared({**hours, (0, "JFK"): (1, 1)}).different == 1
    assert not delays.Delays(hours, 4, 1).compared(hours).equal
    assert not delays.Delays({}, 0, 0).compared({}).equal, "nothing was compared"


@pytest.mark.slow
async def test_on_the_flights_of_days_every_delay_is_right_and_counted_once(tmp_path: Path) -> None:
    flights = [each for each in read(1) if each.row < 900]
    with Daemon(tmp_path, "--rules", str(ruled.RULES)) as daemon, trio.fail_after(60):
        await replay(daemon.url, flights, Report(), Pace(48), delays=True)
        derived = await delays.derived(daemon.url)
    assert derived.wrong == 0 and derived.epochs > 50
    flown = [each for each in flights if each.landed is not None and each.departed is not None]
    late: Counter[str] = Counter()
    for (_, origin), (_, minutes) in derived.hours.items():
        late[origin] += minutes
    assert sum(count for count, _ in derived.hours.values()) == len(flown)
    for origin in ("EWR", "JFK", "LGA"):
        mine = [each for each in flown if each.origin == origin]
        assert late[origin] == sum([each.departed - each.scheduled for each in mine if each.departed])
