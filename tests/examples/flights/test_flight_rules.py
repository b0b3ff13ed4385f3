"""On real flights, rules derive turn by turn what a plain computation over the flights in the air gives."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from dataspace.kernel.actions import ASSERT, RETRACT, Action
from dataspace.kernel.space import Space
from examples.flights import flights as f
from index.patterns.patterns import capture
from index.values.values import Record, Value

RULES = "".join(
    [
        Path(f.__file__).with_name(name).read_text(encoding="utf-8")
        for name in ("flights.rules", "airports.rules")
    ]
)
CROWDED = 12
TURNS = 250


def wanted(flights: list[f.Flight]) -> dict[int, tuple[str, int]]:
    """For every seventh flight somebody who wants to go on 100 minutes after it was to leave."""
    return {each.row: (f"P{each.row}", each.scheduled + 100) for each in flights if each.row % 7 == 0}


def connection(flight: f.Flight, who: str, leaves: int) -> Value:
    scheduled = f.time_of(flight.scheduled)
    return Record("connection", who, flight.carrier, flight.number, scheduled, flight.dest, f.time_of(leaves))


@pytest.mark.slow
def test_rules_over_the_flights_say_what_a_plain_computation_says() -> None:
    flights = [each for each in f.read(1) if each.landed is not None]
    plans, by_slot = wanted(flights), [turn for origin in f.ORIGINS for turn in f.turns(flights, origin)]
    space, clock = Space("flights"), 0
    space.commit("rules", [(ASSERT, 0, Record("rule", "flights", RULES))], 0)
    aloft: dict[int, f.Flight] = {}
    derived = 0
    for turn in sorted(by_slot, key=lambda each: each.slot)[:TURNS]:
        actions: list[Action] = []
        for each in turn.departures:
            actions.append((ASSERT, 2 * each.row, each.record()))
            if each.row in plans:
                actions.append((ASSERT, 2 * each.row + 1, connection(each, *plans[each.row])))
        for each in turn.landings:
            actions.append((RETRACT, 2 * each.row))
            if each.row in plans:
                actions.append((RETRACT, 2 * each.row + 1))
        now = (turn.slot + 1) * f.SLOT
        if now != clock:
            actions.append((ASSERT, 1_000_000 + now, Record("clock", f.time_of(now))))
            actions += [(RETRACT, 1_000_000 + clock)] if clock else []
            clock = now
        space.commit("demo", actions, now)
        aloft.update((each.row, each) for each in turn.departures)
        for each in turn.landings:
            del aloft[each.row]
        derived += check(space, list(aloft.values()), plans, now)
    assert derived > 10_000, "there was something to derive"


def check(space: Space, aloft: list[f.Flight], plans: dict[int, tuple[str, int]], now: int) -> int:
    counts = Counter(each.dest for each in aloft)
    assert rows(space, "on-the-way", 2) == set(counts.items())
    assert rows(space, "busy", 2) == {(dest, n) for dest, n in counts.items() if n > CROWDED}
    late = {e for e in aloft if e.row in plans and plans[e.row][1] <= now}
    assert rows(space, "missed", 2) == {(plans[each.row][0], each.dest) for each in late}
    joined = components(aloft)
    assert rows(space, "joined", 2) == joined
    return len(counts) + len(late) + len(joined)


def rows(space: Space, label: str, width: int) -> set[tuple[Value, ...]]:
    return set(space.matches(Record(label, *[capture() for _ in range(width)])))


def components(aloft: list[f.Flight]) -> set[tuple[str, str]]:
    """Every pair of airports within one component."""
    of: dict[str, set[str]] = {}
    for each in aloft:
        both = of.get(each.origin, {each.origin}) | of.get(each.dest, {each.dest})
        for name in both:
            of[name] = both
    return {(one, other) for one, members in of.items() for other in members}
