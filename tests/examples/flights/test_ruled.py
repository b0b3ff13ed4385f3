"""What rules derive from the flights, live, is judged epoch by epoch, and the judge finds what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from examples.flights import ruled
from examples.flights.display import Progress, lines
from examples.flights.flights import read, time_of
from examples.flights.processes import Daemon
from examples.flights.replay import Pace, Report, replay

FLIGHT = ("UA", 1, "EWR", "IAH", time_of(0))
WISH = ("P7", "UA", 1, time_of(0), "IAH", time_of(100))
BEGIN = [("rule", "+", ("…",)), ("flight", "+", FLIGHT), ("connection", "+", WISH)]


@pytest.mark.slow
async def test_on_the_flights_of_days_what_is_derived_is_right_in_every_epoch(tmp_path: Path) -> None:
    flights = [each for each in read(1) if each.row < 1500]
    progress = Progress()
    with Daemon(tmp_path, "--rules", str(ruled.RULES)) as daemon, trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            started = trio.Event()
            wanted = ruled.connections(flights)
            nursery.start_soon(lambda: ruled.travel(daemon.url, wanted, started=started))
            nursery.start_soon(ruled.watch, daemon.url, progress)
            await started.wait()
            await replay(daemon.url, flights, Report(), Pace(24))
            verdict = await ruled.judged(daemon.url)
            nursery.cancel_scope.cancel()
    assert verdict.wrong == 0 and verdict.epochs > 300, verdict
    assert verdict.busy > 20 and verdict.missed > 20, "there was something to derive"
    assert "missed" in lines(progress)[1]


@pytest.mark.parametrize(
    ("further", "wrong"),
    [
        ([], 0),
        ([("clock", "+", (time_of(99),))], 0),
        ([("clock", "+", (time_of(100),))], 1),
        ([("clock", "+", (time_of(100),)), ("missed", "+", ("P7", "IAH"))], 0),
        ([("clock", "+", (time_of(100),)), ("flight", "-", FLIGHT)], 0),
        ([("missed", "+", ("P7", "IAH"))], 1),
        ([("busy", "+", ("IAH", 13))], 1),
        ([("flight", "+", ("UA", n, "EWR", "IAH", time_of(0))) for n in range(2, 14)], 1),
    ],
)
def test_the_judge_finds_what_lacks_and_what_is_too_much(
    further: list[tuple[str, str, ruled.Row]], wrong: int
) -> None:
    assert ruled.judge([BEGIN, further]).wrong == wrong
