"""Windows and sessions beside an oracle that computes them anew from all that has come."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest

from dataspace.flows.flows import Flow
from dataspace.flows.windows import Windows
from dataspace.instants import NEVER
from index.errors import UsageError
from tests.dataspace.flows.window_oracle import Item, Oracle

STEP = 10_000
"""Microseconds of a step of time, in which the spans of these tests are stated."""

Ticks = list[tuple[int, list[tuple[Item, int]]]]
"""The time of each tick, and its changes."""


def flow_of(oracle: Oracle) -> tuple[Flow, Counter[Any], Windows]:
    """A flow with the window that an oracle stands for, and what it has passed on and not taken back."""
    flow, said = Flow(), Counter[Any]()
    seconds = {name: getattr(oracle, name) / 1_000_000 for name in ("size", "slide", "lateness", "keep")}
    lateness, keep, final = seconds["lateness"], seconds["keep"], oracle.final
    numbers = flow.source()
    if oracle.kind == "sessions":
        at = (lambda item: item[1][1]) if oracle.has_times else None
        pairs = numbers.map(lambda item: (item[0], (item[1], item[2])))
        window = pairs.sessions(seconds["size"], lateness, at=at, keep=keep, final=final, name="window")
    else:
        at = (lambda item: item[2]) if oracle.has_times else None
        slide = seconds["slide"] or None
        window = numbers.window(
            seconds["size"], slide, lateness, at=at, keep=keep, final=final, name="window"
        )

    def note(item: Any, weight: int) -> None:
        match oracle.kind:
            case "sliding":
                said[None, item] += weight
            case "hopping":
                said[item] += weight
            case _:
                said[item[0], (item[0][0], *item[1])] += weight

    window.each_change(note)
    operator = flow.operators["window"]
    assert isinstance(operator, Windows)
    return flow, said, operator


def check(oracle: Oracle, ticks: Ticks) -> None:
    flow, said, operator = flow_of(oracle)
    told = repr(oracle)
    for at, (now, changes) in enumerate(ticks):
        for item, weight in changes:
            flow["source-1"].put(item, weight)
        flow.run_tick(now)
        expected = oracle.tick(now, changes)
        assert not -said, (told, ticks[: at + 1])
        assert +said == expected, (told, ticks[: at + 1])
        assert operator.late == oracle.late, (told, ticks[: at + 1])


KINDS = {
    "sliding": ("sliding", 2 * STEP, 0),
    "tumbling": ("hopping", 2 * STEP, 2 * STEP),
    "hopping": ("hopping", 2 * STEP, STEP),
    "sessions": ("sessions", 2 * STEP, 0),
}


def oracles(kind: str) -> list[Oracle]:
    """All ways to have a window of a kind: with times of items and of ticks."""
    late, later = 1 * STEP, 3 * STEP
    ways = [
        (0, 0, False, True),
        (late, 0, False, True),
        (later, STEP, False, True),
        (0, 0, True, True),
        (late, STEP, True, True),
        (0, 0, False, False),
        (0, STEP, True, False),
    ]
    return [
        Oracle(*KINDS[kind], *way[:2], *way[2:])
        for way in ways
        if kind != "sliding" or way[1:3] == (0, False)
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_all_short_histories(kind: str) -> None:
    """All ways to bring and take back an item at a few times, three ticks long, and time that passes."""
    letters = [(0, 1), (STEP, 1), (2 * STEP, 1), (4 * STEP, 1), (0, -1), (2 * STEP, -1)]
    for number in range(len(oracles(kind))):
        for history in product(letters, repeat=3):
            oracle = oracles(kind)[number]
            ticks: Ticks = []
            for time, weight in history:
                item = ("k", 1, time if oracle.has_times else 0)
                ticks.append((max([time, *[now for now, _ in ticks]]), [(item, weight)]))
            check(oracle, [*ticks, (10 * STEP, []), (20 * STEP, [])])


@pytest.mark.parametrize("kind", KINDS)
def test_random_histories(kind: str) -> None:
    """Several keys, equal items, many changes in a tick, in any order, some of them late."""
    for seed in range(40):
        rng = random.Random(seed)
        for oracle in oracles(kind):
            ticks: Ticks = []
            now = 0
            for _ in range(rng.randint(3, 12)):
                now += rng.choice((0, 1, STEP // 2, STEP, STEP, 3 * STEP, 10 * STEP))
                changes: list[tuple[Item, int]] = []
                for _ in range(rng.choice((0, 1, 3, 8))):
                    time = max(0, now + rng.choice((-5, -3, -2, -1, 0, 0, 1)) * STEP // rng.choice((1, 2)))
                    item = (rng.choice("ab"), rng.randrange(2), time if oracle.has_times else 0)
                    changes.append((item, rng.choice((1, 1, 1, 2, -1))))
                    brought = [item for _, before in ticks[-3:] for item, weight in before if weight > 0]
                    if brought and rng.random() < 0.4:
                        changes[-1] = (rng.choice(brought), -1)
                ticks.append((now, changes))
            check(oracle, ticks)


def test_a_sliding_mean_is_that_of_what_came_last() -> None:
    flow, means = Flow(), Counter[Any]()
    readings = flow.source().window(2, at=lambda item: item[1])
    total = readings.map(lambda item: ("d", item[2])).fold_keyed(
        lambda: (0, 0),
        lambda so_far, v: (so_far[0] + v, so_far[1] + 1),
        undo=lambda so_far, v: (so_far[0] - v, so_far[1] - 1),
        lifetime="static",
    )
    total.each_change(lambda item, weight: means.update({item: weight}))
    for second in range(10):
        flow["source-1"].put(("d", second * 1_000_000, second))
        flow.run_tick()
        held = [each for each in range(second + 1) if each > second - 2]
        assert +means == {("d", (sum(held), len(held))): 1}


def test_times_may_be_time_values_and_windows_begin_with_one() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    flow, seen = Flow(), list[Any]()
    events = flow.source([(start + timedelta(seconds=at), at) for at in (0, 59, 61)])
    events.window(60, 60, at=lambda item: item[0], keep=60).for_each(
        lambda item: seen.append((item[0], item[1][1]))
    )
    flow.run_tick()
    assert seen == [(start, 0), (start, 59), (start + timedelta(seconds=60), 61)]


def test_what_is_late_has_an_output_and_is_counted() -> None:
    flow, late = Flow(), list[Any]()
    window = flow.source().window(1, 1, 1, at=lambda item: item)
    window.for_each(lambda item: None, gone=lambda item: None)
    window["late"].each_change(lambda item, weight: late.append((item, weight)))
    for times in ([0, 2_500_000], [400_000], [1_600_000], [0]):
        for time in times:
            flow["source-1"].put(time)
        flow.run_tick()
    assert late == [(400_000, 1), (0, 1)]
    assert flow.statistics().late == 2


def test_nothing_is_held_of_windows_that_have_gone() -> None:
    flow = Flow()
    items = flow.source()
    for stage in (items.window(1), items.window(2, 1, keep=1, final=True), items.sessions(1, keep=1)):
        stage.each_change(lambda item, weight: None)
    for now in range(3):
        for number in range(10):
            flow["source-1"].put((number, now))
        flow.run_tick(now * 100_000)
    flow["source-1"].retract((1, 0))
    flow.run_tick(300_000)
    assert flow.statistics().held == 29 * 3
    assert flow.due == 1_000_000
    while flow.due != NEVER:
        flow.run_tick(flow.due)
    assert flow.statistics().held == 0
    assert flow.time < 6_000_000


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda s: s.window(0), "a window of 0 s: more than nought"),
        (lambda s: s.window(3, 2), "a window of 3 s that slides by 2 s: its size is no multiple of that"),
        (lambda s: s.window(1, -1), "a slide of -1 s: more than nought"),
        (lambda s: s.window(1, keep=1), "keep and final are of windows with a slide"),
        (lambda s: s.window(1, 1, 1), "a lateness needs at="),
        (lambda s: s.window(1, 1, -1, at=len), "a lateness of -1 s: nought or more"),
        (lambda s: s.sessions(0), "a gap of 0 s: more than nought"),
    ],
)
def test_what_cannot_be_a_window_is_refused(build: Any, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        build(Flow().source())


@pytest.mark.parametrize("time", ["noon", 1.5, None])
def test_a_time_that_is_none_ends_the_flow(time: Any) -> None:
    flow = Flow()
    flow.source([time]).window(1, at=lambda item: item).each_change(lambda item, weight: None)
    with pytest.raises(UsageError, match="the time of an item is microseconds or a time value, not"):
        flow.run_tick()
