"""Windows and timers of rules and flows, for ``rules.py``: updates, memory, and what waiting costs.

A window has 2 s of 20 000 readings a second by 1 000 keys, in batches of 50.  Times are CPU times.

    flow_window_updates_per_s   sliding mean in a flow: one reading in, one out, and the mean
    space_window_updates_per_s  the same by a rule, through a space; each batch is a turn
    bytes_per_window_row        memory of the rule's window of 40 000 rows, by tracemalloc, divided by these
    bytes_per_window_row_alone  the same where each row comes in a turn of its own, at a time of its own
    timer_set_us                for each of 100 000 facts that wait for ``$due <= now``: beyond the same facts
                                under a rule that compares them with a fact
    timer_fired_us              for each of them when it comes due, 100 at each instant
    leave_16000_ms              the epoch in which 16 000 rows leave a window together
    leave_16000_step_ms         the longest of the steps in which a daemon makes it
    leave_16000_facts_step_ms   the same where each row is a fact that goes with it
    idle_timers_cpu_percent     of a daemon in which 100 000 timers wait and nothing else happens
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from bench._processes import cpu_seconds, serving
from dataspace import connect_blocking
from dataspace.flows.flows import Flow
from dataspace.kernel.actions import ASSERT, SEND, Action
from dataspace.kernel.limits import SpaceLimits
from dataspace.kernel.space import Space
from dataspace.rules.language.arithmetic import time_of
from index.values.values import Record

KEYS: Final = 1000
BATCH: Final = 50
SPAN: Final = 2_000_000
"""Microseconds of the window."""

RATE: Final = 20_000
"""Updates in a second of the window's own time."""

START: Final = 1_800_000_000_000_000
MEAN: Final = "mean($d, avg($v)) <- reading($d, $v) within 2 s."
RECENT: Final = "recent($d, $v) <- reading($d, $v) within 2 s."
TIMERS: Final = "due($j) <- job($j, $due), $due <= now."
PLAIN: Final = "due($j) <- job($j, $due), clock($now), $due <= $now."
LIMITS: Final = SpaceLimits(derive_work=1 << 40, time_rows=1 << 40, rule_reads=1 << 40)


def flow_window() -> Callable[[], None]:
    """Returns what carries out the next batch in a flow; the window is full."""
    flow = Flow()
    source = flow.source()
    means = source.window(SPAN / 1e6, at=lambda each: each[1]).map(lambda each: (each[0], each[2]))
    means = means.fold_keyed(
        lambda: (0, 0),
        lambda so_far, v: (so_far[0] + v, so_far[1] + 1),
        undo=lambda so_far, v: (so_far[0] - v, so_far[1] - 1),
        lifetime="static",
    )
    means.map(lambda each: (each[0], each[1][0] / each[1][1])).each_change(lambda _item, _weight: None)
    number = 0

    def batch() -> None:
        nonlocal number
        for _ in range(BATCH):
            source.put((number * 7 % KEYS, START + number * 1_000_000 // RATE, number % 40))
            number += 1
        flow.run_tick()

    fill(batch)
    return batch


def space_window() -> tuple[Space, Callable[[], None]]:
    """The same by a rule of a space."""
    space = Space("bench", limits=LIMITS)
    space.commit("rules", [(ASSERT, 0, Record("rule", "bench", MEAN))], START)
    number = 0

    def batch() -> None:
        nonlocal number
        at = START + number * 1_000_000 // RATE
        some: list[Action] = []
        for _ in range(BATCH):
            some.append((SEND, Record("reading", number * 7 % KEYS, number % 40)))
            number += 1
        space.until(at)
        space.commit("bench", some, at)

    fill(batch)
    return space, batch


def fill(batch: Callable[[], None]) -> None:
    """Carries out batches until a window is full, and a little more."""
    for _ in range((SPAN * RATE // 1_000_000 + 5_000) // BATCH):
        batch()


def updates(batch: Callable[[], None], seconds: float) -> float:
    """Returns how many items a second come, each with one that leaves."""
    gc.collect()
    done, begun = 0, time.process_time()
    while True:
        for _ in range(10):
            batch()
        done += 10 * BATCH
        taken = time.process_time() - begun
        if taken >= seconds:
            return done / taken


def bytes_per_row(count: int, batch: int) -> float:
    """Returns the memory of a window for each of so many rows that come in batches, with what is derived."""
    space = Space("bench", limits=LIMITS)
    space.commit("rules", [(ASSERT, 0, Record("rule", "bench", MEAN))], START)
    space.commit("bench", [(SEND, Record("reading", key, 1)) for key in range(KEYS)], START)
    gc.collect()
    tracemalloc.start()
    for number in range(0, count, batch):
        some: list[Action] = [
            (SEND, Record("reading", (number + at) * 7 % KEYS, (number + at) % 40)) for at in range(batch)
        ]
        space.commit("bench", some, START + 1 + number)
    gc.collect()
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert space.rules.times.rows == KEYS + count
    return used / count


def timers(count: int) -> dict[str, float]:
    """Returns what it costs to set and to fire so many timers."""
    jobs: list[Any] = [
        (ASSERT, n, Record("job", n, time_of(START + 60_000_000 + n * 100))) for n in range(count)
    ]
    setting: dict[str, float] = {}
    for name, text in ("plain", PLAIN), ("timed", TIMERS):
        space = Space("bench", limits=LIMITS)
        space.commit("rules", [(ASSERT, 0, Record("rule", "bench", text))], START)
        gc.collect()
        begun = time.process_time()
        for at in range(0, count, 100):
            space.until(START + at)
            space.commit("bench", jobs[at : at + 100], START + at)
        setting[name] = time.process_time() - begun
    assert space.rules.times.pending == count
    gc.collect()
    begun = time.process_time()
    space.until(START + 3_600_000_000)
    fired = time.process_time() - begun
    assert space.rules.claimed == count
    return {
        "timer_set_us": round((setting["timed"] - setting["plain"]) / count * 1e6, 2),
        "timer_fired_us": round(fired / count * 1e6, 2),
    }


def leaving(count: int, text: str = MEAN) -> tuple[float, float]:
    """Returns the seconds of CPU time of the epoch in which so many rows leave together: all, and the longest
    of its steps."""
    space = Space("bench", limits=LIMITS)
    space.commit("rules", [(ASSERT, 0, Record("rule", "bench", text))], START)
    space.commit("bench", [(SEND, Record("reading", n % KEYS, n)) for n in range(count)], START)
    gc.collect()
    took = [time.process_time()]
    for _ in space.making_instant():
        took.append(time.process_time())
    took.append(time.process_time())
    assert not space.rules.times.rows and not space.rules.claimed
    return took[-1] - took[0], max(map(float.__sub__, took[1:], took))


def idle(count: int, seconds: float) -> float:
    """Returns the share of a core, in percent, that a daemon takes while so many timers wait."""
    due = datetime.now(UTC) + timedelta(days=1)
    with serving() as served:
        with connect_blocking(served.url, owner="durable:bench") as space:
            space.assert_(Record("rule", "bench", TIMERS))
            for begin in range(0, count, 1000):
                with space.turn() as turn:
                    for n in range(begin, min(begin + 1000, count)):
                        turn.assert_(Record("job", n, due + timedelta(milliseconds=n)))
            space.sync()
        time.sleep(2.0)  # what the turns have left to do
        before = cpu_seconds(served.pid)
        time.sleep(seconds)
        return 100 * (cpu_seconds(served.pid) - before) / seconds


def measure_windows(seconds: float, rounds: int, size: int) -> dict[str, float]:
    """Returns all figures; the best of the rounds counts."""
    in_flow, in_space = flow_window(), space_window()[1]
    best = {"flow_window": 0.0, "space_window": 0.0}
    for _ in range(rounds):
        best["flow_window"] = max(best["flow_window"], updates(in_flow, seconds))
        best["space_window"] = max(best["space_window"], updates(in_space, seconds))
    figures = {f"{name}_updates_per_s": round(each, 1) for name, each in best.items()}
    figures["bytes_per_window_row"] = round(bytes_per_row(2 * size // 5, BATCH), 1)
    figures["bytes_per_window_row_alone"] = round(bytes_per_row(2 * size // 5, 1), 1)
    figures |= min([timers(size) for _ in range(rounds)], key=lambda each: each["timer_set_us"])
    count = min(size, 16_000)
    leave, step = map(min, zip(*[leaving(count) for _ in range(rounds)], strict=True))
    facts_step = min(leaving(count, RECENT)[1] for _ in range(rounds))
    figures["leave_16000_ms"] = round(leave * 1000, 1)
    figures["leave_16000_step_ms"] = round(step * 1000, 1)
    figures["leave_16000_facts_step_ms"] = round(facts_step * 1000, 1)
    figures["idle_timers_cpu_percent"] = round(idle(size, 2.0 if size < 100_000 else 10.0), 2)
    return figures
