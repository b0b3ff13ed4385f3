"""What does a change cost the daemon, and what one more observer of it, in CPU time and in memory?

The CPU time is that of the daemon's process, all its threads included: so it says less about what else the
machine does than a rate would.  Writer and watchers are processes of their own, with the real client.  All
turns are single changes with values of 64 bytes, durable and acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Final

import trio

import dataspace
from bench._processes import Measuring, Run, Served, Side, resident_bytes, serving
from index.values.values import Record

WATCHERS: Final = 100
OBSERVATIONS: Final = 10_000
TURN: Final = 50
VALUE: Final = "x" * 64


def measure_fanout(scale: float = 1.0) -> dict[str, float]:
    """Returns one round of all figures; ``scale`` shrinks the amounts."""
    few, many = int(4000 * scale), int(40_000 * scale)
    return {
        "fanout_single_cpu_us": cpu_of_turns(few, WATCHERS) / WATCHERS,
        "single_turn_cpu_us": cpu_of_turns(many, 1),
        "bytes_per_observation": memory_of_observations(int(OBSERVATIONS * scale), shared=False),
        "bytes_per_shared_observation": memory_of_observations(int(OBSERVATIONS * scale), shared=True),
    }


def cpu_of_turns(turns: int, watchers: int) -> float:
    """Returns microseconds of the daemon's CPU time for each turn of one change that so many watch."""
    with serving() as served:
        return run_of_turns(served, write, watch_all, watchers, turns).cpu * 1e6


def run_of_turns(
    served: Served, write: Callable[..., Any], watch: Callable[..., Any], watchers: int, turns: int
) -> Run:
    """Returns the rate of so many changes and what one costs a server, from the first to the last watcher."""
    watching = _ready(watch, served.url, watchers, turns)
    writing = _ready(write, served.url, turns)
    with Measuring(served.pid) as measuring:
        writing.pipe.send("go")
        watching.pipe.recv()
        writing.pipe.recv()
    for side in (writing, watching):
        side.stop()
    return measuring.run(turns)


def memory_of_observations(count: int, *, shared: bool) -> float:
    """Returns the bytes that each of so many observations costs the daemon, of one pattern or of as many."""
    with serving() as served:
        return memory_of(served, open_all, count, shared=shared)


def memory_of(
    served: Served, opened: Callable[..., Any], count: int, *, shared: bool, connections: int = 10
) -> float:
    """Returns the bytes that each of so many observations costs a server."""
    opening = _ready(opened, served.url, count, shared, connections)
    before = resident_bytes(served.pid)
    opening.pipe.send("go")
    opening.pipe.recv()
    after = resident_bytes(served.pid)
    opening.stop()
    return (after - before) / count


def _ready(function: Callable[..., Any], *args: object) -> Side:
    side = Side.start(function, *args)
    assert side.pipe.recv() == "ready"
    return side


async def write(url: str, turns: int, report: Connection) -> None:
    """Writes so many turns of one change."""
    async with dataspace.connect(url, name="bench writer") as space:
        report.send("ready")
        await trio.to_thread.run_sync(report.recv)
        for n in range(turns):
            draft = space.draft()
            draft.assert_(Record("says", n, VALUE))
            await space.submit(draft)
        await space.drain(60)
        report.send("written")
        await trio.sleep_forever()


async def watch_all(url: str, watchers: int, turns: int, report: Connection) -> None:
    """Watches on so many connections, each to the last change."""
    left = watchers

    async def watch(*, task_status: trio.TaskStatus[None]) -> None:
        nonlocal left
        async with dataspace.connect(url, name="bench watcher") as space:
            async with space.observe("says($i, $what)", quiet=True) as observation:
                await observation.next_epoch()
                task_status.started()
                seen = 0
                while seen < turns:
                    epoch = await observation.next_epoch()
                    assert epoch is not None and not epoch.conflated
                    seen += len(epoch)
                left -= 1
                if not left:
                    report.send("seen")
                await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        for _ in range(watchers):
            await nursery.start(watch)
        report.send("ready")
        await trio.sleep_forever()


async def open_all(url: str, count: int, shared: bool, connections: int, report: Connection) -> None:
    """Opens so many observations, of one key each, on some connections, and reads the state of each."""
    async with trio.open_nursery() as nursery:
        spaces = [await nursery.start(_stay_connected, url) for _ in range(connections)]
        observations = [
            spaces[n % connections].observe(f'says("key {0 if shared else n}", $)', quiet=True)
            for n in range(count)
        ]
        report.send("ready")
        await trio.to_thread.run_sync(report.recv)
        for observation in observations:
            observation.open()
        for observation in observations:
            await observation.next_epoch()
        report.send("open")
        await trio.sleep_forever()


async def _stay_connected(url: str, *, task_status: trio.TaskStatus[dataspace.RemoteSpace]) -> None:
    async with dataspace.connect(url, name="bench observers") as space:
        task_status.started(space)
        await trio.sleep_forever()
