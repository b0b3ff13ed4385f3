"""How long does one change take from a writer's call to an observer's hands?

Writer and observer are processes of their own.  The writer notes when it sends each change and the observer
when it has it; the clock of a Linux machine is one for all processes.  There is one change at a time, and the
writer pauses after each, so that none waits behind another.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Final

import trio

import dataspace
from bench._floor import Frames, connect, floor, forward, frame
from bench._processes import Side, daemon
from index.values.values import Record

PAUSE: Final = 0.001


def measure_latency(count: int) -> dict[str, float]:
    """Returns one round of all figures, in milliseconds."""
    figures: dict[str, float] = {}
    with floor(forward) as served:
        p50, p99 = latency(floor_tick, floor_hear, served.url, count)
        figures |= {"floor_latency_p50_ms": p50, "floor_latency_p99_ms": p99}
    with daemon() as url:
        p50, p99 = latency(tick, hear, url, count)
        figures |= {"latency_p50_ms": p50, "latency_p99_ms": p99}
    return figures


def latency(
    tick: Callable[..., Any], hear: Callable[..., Any], address: str, count: int
) -> tuple[float, float]:
    """Returns median and 99th percentile; the first tenth of the changes is for warming up.

    The observer reports ``ready`` and then when it had each; the writer reports when it sent each.
    """
    return latency_between(tick, hear, (address, address), count)


def latency_between(
    tick: Callable[..., Any], hear: Callable[..., Any], addresses: tuple[str, str], count: int
) -> tuple[float, float]:
    """Returns the same for a writer and an observer at different addresses."""
    written, observed = addresses
    observer = Side.start(hear, observed, count)
    assert observer.pipe.recv() == "ready"
    writer = Side.start(tick, written, count)
    sent, seen = writer.pipe.recv(), observer.pipe.recv()
    for side in (writer, observer):
        side.stop()
    samples = [there - here for here, there in zip(sent, seen, strict=True)]
    samples = sorted(samples[count // 10 :])
    return statistics.median(samples) * 1000, samples[int(len(samples) * 0.99)] * 1000


async def tick(url: str, count: int, report: Connection) -> None:
    """Writes to the daemon."""
    sent = []
    async with dataspace.connect(url, name="bench writer") as space:
        for n in range(count):
            draft = space.draft()
            draft.send(Record("tick", n))
            sent.append(time.perf_counter())
            ticket = space.submit_nowait(draft)
            await ticket.wait()
            await trio.sleep(PAUSE)
        report.send(sent)
        await trio.sleep_forever()


async def hear(url: str, count: int, report: Connection) -> None:
    """Observes a daemon."""
    seen = []
    async with dataspace.connect(url, name="bench observer") as space:
        async with space.observe("tick($n)", quiet=True) as observation:
            await observation.next_epoch()
            report.send("ready")
            for n in range(count):
                change = await anext(observation)
                seen.append(time.perf_counter())
                assert change.n == n
            report.send(seen)
            await trio.sleep_forever()


async def floor_tick(port: str, count: int, report: Connection) -> None:
    """Writes to a floor."""
    stream = await connect(port)
    sent = []
    for n in range(count):
        sent.append(time.perf_counter())
        await stream.send_all(frame([[0, n, ["tick", n]]]))
        await trio.sleep(PAUSE)
    report.send(sent)
    await trio.sleep_forever()


async def floor_hear(port: str, count: int, report: Connection) -> None:
    """Observes a floor, from when a frame of another connection has come."""
    stream, other = await connect(port), await connect(port)
    frames = Frames()
    await other.send_all(frame("here"))
    while not frames.feed(await stream.receive_some(65536)):
        pass
    report.send("ready")
    seen: list[float] = []
    while len(seen) < count:
        for said in frames.feed(await stream.receive_some(65536)):
            seen.append(time.perf_counter())
            assert said[0][1] == len(seen) - 1
    report.send(seen)
    await trio.sleep_forever()
