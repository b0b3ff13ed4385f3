"""What aggregates and calendars of rules cost, beside a count and a join.

aggregate_…_us     a change of one of 100 000 values in 1 000 groups, a tick of its own, and the row it makes
clock_hour_us      a turn of the hour for a rule by a clock with 1 000 facts, of which none changes
calendar_…_us      one call
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from dataspace.kernel.actions import ASSERT
from dataspace.kernel.space import Space
from dataspace.rules.engine.program import Program
from dataspace.rules.language import zones
from dataspace.rules.language.arithmetic import micros_of
from index.values.values import Record, Value

GROUPS: Final = 1000
AGGREGATES: Final = {
    "count": "p($k, count($v)) <- row($k, $v).",
    "maybe": "p($k, count($v)) <- key($k), maybe row($k, $v).",
    "maybe_group": "p($k, count($v)) <- key($k), maybe (row($k, $v), not gone($v)).",
    "sum": "p($k, sum($v)) <- row($k, $v).",
    "stddev": "p($k, stddev($v)) <- row($k, $v).",
    "max": "p($k, max($v)) <- row($k, $v).",
    "percentile": "p($k, percentile($v, 95)) <- row($k, $v).",
    "last": "p($k, last($k, $v)) <- row($k, $v).",
}
ZONE: Final = "Europe/Zurich"
BEGIN: Final = datetime(2026, 11, 2, tzinfo=UTC)


def measure_aggregates(seconds: float, rounds: int, size: int) -> dict[str, float]:
    """All figures, in µs of CPU time; the best of the rounds counts."""
    figures: dict[str, float] = {}
    rows: list[Value] = [Record("row", n % GROUPS, n * 0.5) for n in range(size)]
    keys: list[Value] = [Record("key", n) for n in range(GROUPS)]
    for name, text in AGGREGATES.items():
        program = Program()
        program.add("bench", text)
        program.tick([*keys, *rows])

        def change(at: int, program: Program = program) -> None:
            row = (rows[at * 7 % size],)
            program.tick((), row)
            program.tick(row)

        figures[f"aggregate_{name}_us"] = _best(change, seconds, rounds) / 2
        del program
    figures["clock_hour_us"] = _hour(seconds, rounds)
    times = [BEGIN + timedelta(minutes=37 * n) for n in range(1000)]
    calls: dict[str, Callable[[datetime], object]] = {
        "hour": lambda at: zones.hour(at, ZONE),
        "floor_hour": lambda at: zones.floor_of(at, "1 hour", ZONE),
        "floor_month": lambda at: zones.floor_of(at, "1 month", ZONE),
        "next_month": lambda at: zones.next_of(at, "1 month", ZONE),
    }
    for name, call in calls.items():
        figures[f"calendar_{name}_us"] = _best(lambda at, call=call: call(times[at % 1000]), seconds, rounds)  # type: ignore[misc]  # a default binds it now
    return {name: round(figure, 2) for name, figure in figures.items()}


def _hour(seconds: float, rounds: int) -> float:
    space, hour = Space("bench"), 3_600_000_000
    text = f'open($s) <- shop($s), hour(now, "{ZONE}") >= 0, weekday(now, "{ZONE}") < 8.'
    shops: list[Value] = [Record("rule", "bench", text), *[Record("shop", n) for n in range(1000)]]
    begin = micros_of(BEGIN)
    space.commit("bench", [(ASSERT, at, shop) for at, shop in enumerate(shops)], begin)
    passed = [begin]

    def wake(_at: int) -> None:
        passed[0] += hour
        space.until(passed[0])

    return _best(wake, seconds, rounds)


def _best(operation: Callable[[int], object], seconds: float, rounds: int) -> float:
    """Returns µs of CPU time for an operation."""
    best = float("inf")
    for _ in range(rounds):
        gc.collect()
        done, begun = 0, time.process_time()
        while (taken := time.process_time() - begun) < seconds / 4:
            for _ in range(50):
                operation(done)
                done += 1
        best = min(best, taken / done * 1e6)
    return best
