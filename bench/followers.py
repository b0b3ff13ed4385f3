"""What do followers spare the leader, what do they cost, and how fast does a stand-by take over?

Writer and watchers are processes of their own, with the real client, and turns are pipelined.  A ratio is the
median of the ratios of the rounds, so it says little of what else the machine does.

    turn_cpu_us_N              CPU time of the leader for a turn with N watchers on itself, without followers
    turn_cpu_us_N_on_F         the same with the watchers on F followers
    observer_ratio_N_on_F      what a watcher on a follower costs the leader ÷ what it costs on the leader

For these the leader and the writer are on one half of the cores, followers and watchers on the other one:
else watchers slow the writer down, and the leader pays more for a turn since fewer come at once.  What the
leader pays is measured until it has done its own part; watchers on followers may see the last turn later.

    seen_p50_ratio, _p99       from the call of a writer to a watcher, a follower ÷ its leader, one at a time
    take_over_p50_ms, _p99     from SIGKILL of the leader, with 10 000 facts, to a turn that its stand-by has
                               accepted

What does it cost to show epochs only once they are on disk?  A daemon with ``show = "durable"`` and one with
``show = "committed"`` take turns within each round, in either order.

    gate_turns_ratio             turns a second, pipelined, from the first to the last one seen by one watcher
    gate_turns_ratio_20          the same with 20 watchers
    gate_turn_cpu_ratio          CPU time of the daemon for such a turn, with one watcher; ``…_20`` with 20
    gate_seen_p50_ratio, _p99    from the call of a writer to the watcher, one change at a time
"""

from __future__ import annotations

import os
import signal
import statistics
import tempfile
import time
from contextlib import ExitStack
from multiprocessing.connection import Connection
from typing import Final

import trio

import dataspace
from bench._fanout import run_of_turns, watch_all, write
from bench._figures import command_line, show
from bench._latency import hear, latency, latency_between, tick
from bench._processes import Measuring, Served, daemons_of, on_half, running, serving, serving_on
from index.values.values import Record

TURNS: Final = 8_000
CHANGES: Final = 400
MANY: Final = 20
SHOWN: Final = ("durable", "committed")


FACTS: Final = 10_000
KILLS: Final = 20
OBSERVERS: Final = (60, 500)
WELCOMED: Final = 50
"""Connections that are made at once."""


async def watch_quietly(url: str, watchers: int, turns: int, report: Connection) -> None:
    """Has so many connections watch what ``write`` writes, without an interest, until all have seen it."""
    async with trio.open_nursery() as nursery:
        ready = [trio.Event() for _ in range(watchers)]
        for at, each in enumerate(ready):
            nursery.start_soon(_watch, url, turns, each)
            if at >= WELCOMED:
                await ready[at - WELCOMED].wait()
        for each in ready:
            await each.wait()
        report.send("ready")
    report.send("seen")
    await trio.sleep_forever()


async def _watch(url: str, turns: int, ready: trio.Event) -> None:
    async with (
        dataspace.connect(url, name="bench observer") as space,
        space.observe("says($n, $v)", quiet=True) as seen,
    ):
        await seen.next_epoch()
        ready.set()
        async for change in seen:
            if change.captures and change.captures[0] == turns - 1:
                return


def turn_cpu(turns: int, watchers: int, followers: int) -> float:
    """Returns microseconds of the leader's CPU time for a turn, watched on it or spread over followers."""
    with tempfile.TemporaryDirectory() as data, ExitStack() as stack:
        with on_half(0):
            leader = stack.enter_context(serving_on(data))
            writing = stack.enter_context(running(write, leader.url, turns))
        with on_half(1):
            urls = [
                stack.enter_context(serving_on(data, options=["--follow"])).url for _ in range(followers)
            ] or [leader.url]
            time.sleep(1.0 if followers else 0.0)  # until they have registered
            sides = [
                stack.enter_context(running(watch_quietly, url, watchers // len(urls), turns))
                for url in (urls if watchers else ())
            ]
        for side in (*sides, writing):
            assert side.pipe.recv() == "ready"
        with Measuring(leader.pid) as measuring:
            writing.pipe.send("go")
            for side in (writing, *([] if followers else sides)):  # what it takes for its own ones
                side.pipe.recv()
        for side in sides if followers else ():
            side.pipe.recv()
        return measuring.run(turns).cpu * 1e6


def measure_followers(scale: float) -> dict[str, float]:
    """Returns one round of what watchers cost the leader."""
    turns = max(40, int(TURNS // 8 * scale))
    figures: dict[str, float] = {}
    bare = figures["turn_cpu_us_0"] = turn_cpu(turns, 0, 0)
    alone = {followers: turn_cpu(turns, 0, followers) for followers in (1, 2)}
    for watchers in OBSERVERS:
        here = figures[f"turn_cpu_us_{watchers}"] = turn_cpu(turns, watchers, 0)
        for followers, unwatched in alone.items():
            there = figures[f"turn_cpu_us_{watchers}_on_{followers}"] = turn_cpu(turns, watchers, followers)
            figures[f"observer_ratio_{watchers}_on_{followers}"] = (there - unwatched) / (here - bare)
    return figures


def measure_seen(scale: float) -> dict[str, float]:
    """Returns how much later a change is seen on a follower than on its leader."""
    count = max(40, int(CHANGES * scale))
    with (
        tempfile.TemporaryDirectory() as data,
        serving_on(data) as leader,
        serving_on(data, options=["--follow"]) as follower,
    ):
        time.sleep(1.0)
        here = latency_between(tick, hear, (leader.url, leader.url), count)
        there = latency_between(tick, hear, (leader.url, follower.url), count)
    return {
        f"seen_{name}_ratio": one / other
        for name, one, other in zip(("p50", "p99"), there, here, strict=True)
    }


def take_over(facts: int) -> float:
    """Returns milliseconds from SIGKILL of a leader to a turn that its stand-by has accepted."""
    with tempfile.TemporaryDirectory() as data, ExitStack() as stack:
        leader = stack.enter_context(serving_on(data))
        stand_by = stack.enter_context(serving_on(data, options=["--stand-by", "--follow"]))
        return trio.run(_take_over, leader, stand_by.url, facts)


async def _take_over(leader: Served, url: str, facts: int) -> float:
    async with dataspace.connect(leader.url, owner="bench") as space:
        for first in range(0, facts, 1000):
            draft = space.draft()
            for n in range(first, min(first + 1000, facts)):
                draft.assert_(Record("fact", n))
            await space.submit(draft)
        await space.sync()
    async with dataspace.connect([leader.url, url], name="bench writer") as space:
        await space.send(Record("tick", 0))
        await trio.sleep(1.5)  # the stand-by has registered and read all
        os.kill(leader.pid, signal.SIGKILL)
        began = time.perf_counter()
        await space.send(Record("tick", 1))
        await space.sync()
        return (time.perf_counter() - began) * 1000


def measure(quick: bool, *, reverse: bool) -> dict[str, float]:
    """Returns the figures of one round, the gate ÷ without."""
    scale = 0.02 if quick else 1.0
    found = {each: measure_one(each, scale) for each in (SHOWN if not reverse else tuple(reversed(SHOWN)))}
    gated, plain = found["durable"], found["committed"]
    ratios = {name: gated[name] / plain[name] for name in gated}
    return {**measure_followers(scale), **measure_seen(scale), **ratios}


def measure_one(shown: str, scale: float) -> dict[str, float]:
    """Returns what a daemon does that shows what is ``durable``, or ``committed``."""
    figures: dict[str, float] = {}
    with daemons_of({**os.environ, "DATASPACE_SERVE_SHOW": shown}):
        for name, watchers, turns in (("", 1, TURNS), (f"_{MANY}", MANY, TURNS // 4)):
            with serving() as served:
                run = run_of_turns(served, write, watch_all, watchers, max(40, int(turns * scale)))
            figures |= {f"gate_turns_ratio{name}": run.rate, f"gate_turn_cpu_ratio{name}": run.cpu}
        with serving() as served:
            p50, p99 = latency(tick, hear, served.url, max(40, int(CHANGES * scale)))
    return figures | {"gate_seen_p50_ratio": p50, "gate_seen_p99_ratio": p99}


def main() -> None:
    args = command_line(__doc__, rounds=9).parse_args()
    rounds = [
        measure(args.quick, reverse=bool(number % 2)) for number in range(1 if args.quick else args.rounds)
    ]
    figures = {name: statistics.median([each[name] for each in rounds]) for name in rounds[0]}
    times = sorted(
        [take_over(FACTS // 100 if args.quick else FACTS) for _ in range(1 if args.quick else KILLS * 3)]
    )
    figures |= {"take_over_p50_ms": statistics.median(times), "take_over_p99_ms": times[-1]}
    show(figures, as_json=args.json, note=f"median of {len(rounds)}; {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
